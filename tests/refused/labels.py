"""Labels that are no classes, wherever they are given: to federations in several ways, and to models."""

import decimal
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.models.example_checks import ExampleError
from refused.row import Refusal

CLASSES = [0, 1, 2, 0, 2, 1]
CLIENTS = [[0, 1, 2], [3, 4, 5]]
IMAGE = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2, 1)
MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
PARAMS = jax.eval_shape(MODEL.init, jax.random.key(0))


def in_memory(label):
    made = fp.Federation.from_arrays({"image": IMAGE, "label": label}, CLIENTS, num_classes=3)
    return np.asarray(made.examples["label"])


def read(federation):
    return federation.read(np.arange(federation.num_clients))[1]["label"]


def streamed(label):
    examples = {"image": IMAGE, "label": label}
    return read(fp.StreamedFederation.from_arrays(examples, CLIENTS, num_classes=3))


def sorted_by_client(label):
    examples = {"image": IMAGE, "label": label}
    return read(fp.StreamedFederation.from_sorted(examples, [3, 3], num_classes=3))


def in_files(label):
    """In the folder in which it is called."""
    fp.write_clients("clients", ({"image": IMAGE[own], "label": label[own]} for own in CLIENTS))
    return read(fp.StreamedFederation.from_folder("clients", num_classes=3))


WAYS = [in_memory, streamed, sorted_by_client, in_files]
WRONG = {
    "a fraction": (np.array([0, 1, 0.5, 0, 1, 2]), "0.5 in row 2"),
    "NaN": (np.array([0, np.nan, 0, 0, 1, 2]), "nan in row 1"),
    "inf": (np.array([0, np.inf, 0, 0, 1, 2]), "inf in row 1"),
    "one above": (np.array([0, 1, 3.0, 0, 1, 2]), "3 in row 2, outside [0, 3)"),
    "one below": (np.array([0, 1, -1.0, 0, 1, 2]), "-1 in row 2, outside [0, 3)"),
    "one beyond": (np.array([0, 1e30, 0, 0, 1, 2]), "e+30 in row 1"),
    "one-hot": (np.eye(3)[CLASSES], "argmax(-1)"),
    "one-hot booleans": (np.eye(3, dtype=bool)[CLASSES], "argmax(-1)"),
    "strings": (np.array(list("abcacb")), "<U1"),
    "strings in objects": (np.array(list("abcacb"), object), "'a'"),
    "a missing one": (np.array([0, None, 1, 0, 1, 2], object), "None in row 1"),
    "masked": (np.ma.masked_equal(CLASSES, 1), "masked in row 1"),
    "complex": (np.array(CLASSES, complex), "complex128"),
    "dates": (np.array(CLASSES, "M8[s]"), "datetime64[s]"),
    "decimals": (np.array([decimal.Decimal(c) for c in CLASSES]), "Decimal"),
    "spans": (np.array(CLASSES, "m8[s]"), "timedelta64[s]"),
    "a huge one": (np.array([0, 2**70, 0, 0, 1, 2], object), ""),
}
ROWS = [
    Refusal(f"{name} {way.__name__}", partial(way, label), "examples['label']", value)
    for name, (label, value) in WRONG.items()
    for way in WAYS
]
ROWS += [
    Refusal("no labels", lambda: in_memory(None), "examples['label']", "None"),
    Refusal("labels in a dict", lambda: in_memory({"fine": np.zeros(6)}), "examples['label']", "{"),
]


def shaped(shape, kind=int, function=MODEL.loss):
    """What a model says of a label that is traced."""
    label = jax.ShapeDtypeStruct(shape, kind)
    jax.eval_shape(function, PARAMS, {"image": IMAGE[0], "label": label})


def given(label):
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), PARAMS)
    MODEL.loss(params, {"image": IMAGE[0], "label": label})


TRACED = {
    "float32": ((), jnp.float32, "float32[]", "astype(int)"),
    "bfloat16": ((), jnp.bfloat16, "bfloat16[]", ""),
    "a row of one": ((1,), int, "int32[1]", "reshape(-1)"),
    "a row of one real": ((1,), jnp.float32, "float32[1]", ""),
    "two": ((2,), int, "int32[2]", ""),
    "one-hot": ((3,), int, "int32[3]", "argmax(-1)"),
    "one-hot reals": ((3,), jnp.float32, "float32[3]", ""),
    "one-hot booleans": ((3,), bool, "bool[3]", ""),
}
ROWS += [
    Refusal(
        f"a model's {f.__name__}: {name}",
        partial(shaped, shape, kind, f),
        "label",
        value,
        ExampleError,
        remedy,
    )
    for name, (shape, kind, value, remedy) in TRACED.items()
    for f in (MODEL.loss, MODEL.score)
]
ROWS += [
    Refusal(f"a model: {type(x).__name__}", partial(given, x), "label", "", ExampleError)
    for x in ("cat", b"cat", None, np.array("cat"), object())
]


@functools.cache
def reader():
    """A model of texts, and the shapes of its parameters."""
    model = fp.models.next_character(fp.models.modules.CharacterLSTM(5, 2, 3))
    return model, jax.eval_shape(model.init, jax.random.key(0))


def of_characters(example, function="loss"):
    """What a model of texts of 80 characters says of an example."""
    model, params = reader()
    example = {"text": np.zeros(80, np.uint8), "mask": np.ones(80, bool)} | example
    example = {name: leaf for name, leaf in example.items() if leaf is not None}
    return jax.eval_shape(getattr(model, function), params, example)


ROWS += [
    Refusal(f"characters: {value}", partial(of_characters, changed), field, value, ExampleError)
    for changed, field, value in (
        ({"label": jnp.zeros(80)}, "label", "float32[80]"),
        ({"label": jnp.zeros((), int)}, "label", "int32[]"),
        ({"label": jnp.zeros((80, 1), int)}, "label", "int32[80, 1]"),
        ({"label": jnp.zeros((80, 5))}, "label", "float32[80, 5]"),
        ({"label": np.zeros(80, int), "mask": None}, "example", '"mask"'),
    )
]


def norms(label):
    """Of gradients in closed form."""
    gradients = fp.per_example(MODEL.loss, closed_form=True)
    images = {"image": jax.ShapeDtypeStruct(IMAGE.shape, IMAGE.dtype), "label": label}
    return jax.eval_shape(lambda params, batch: gradients(params, batch).norms, PARAMS, images)


def of_three_axes():
    model = fp.models.from_apply(lambda key: jnp.zeros((4, 3)), lambda w, x: x.reshape(1, 4) @ w)
    model.loss(jnp.zeros((4, 3)), {"image": IMAGE[0], "label": 0})


ROWS += [
    Refusal(
        "closed form: float32", lambda: norms(jax.ShapeDtypeStruct((6,), float)), "label", "[]"
    ),
    Refusal("closed form: rows", lambda: norms(jax.ShapeDtypeStruct((6, 1), int)), "label", "[1]"),
    Refusal("logits of two axes", of_three_axes, "apply", "float32[1, 3]"),
]
