"""Labels that are no classes, wherever they are given: to federations in several ways, and to models."""

import decimal
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.models.example_checks import ExampleError

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


def with_one(value, kind=None):
    return np.array([0, value, 0, 0, 1, 2], kind)


# The labels, what is shown, and what files show, where that is something else.
WRONG = {
    "a fraction": (with_one(0.5), "0.5 in row 1"),
    "NaN": (with_one(np.nan), "nan in row 1"),
    "inf": (with_one(np.inf), "inf in row 1"),
    "one above": (with_one(3.0), "3 in row 1, outside [0, 3)"),
    "one below": (with_one(-1.0), "-1 in row 1, outside [0, 3)"),
    "one beyond": (with_one(1e30), "+30 in row 1"),
    "one-hot": (np.eye(3)[CLASSES], "argmax(-1)"),
    "one-hot booleans": (np.eye(3, dtype=bool)[CLASSES], "argmax(-1)"),
    "strings": (np.array(list("abcacb")), "<U1"),
    "strings in objects": (np.array(list("abcacb"), object), "'a'"),
    "a missing one": (with_one(None, object), "None in row 1"),
    "masked": (np.ma.masked_equal(CLASSES, 1), "masked in row 1"),
    "complex": (np.array(CLASSES, complex), "complex128"),
    "dates": (np.array(CLASSES, "M8[s]"), "datetime64[s]"),
    "spans": (np.array(CLASSES, "m8[s]"), "timedelta64[s]"),
    "decimals": (np.array([decimal.Decimal(c) for c in CLASSES]), "Decimal('0')"),
    "a huge one": (with_one(2**70, object), "more than 32 bits", "data type is object"),
}
ROWS = [
    (f"{name}, {way.__name__}", partial(way, label), "examples['label']", shown[of_files])
    for name, (label, *shown) in WRONG.items()
    for way, of_files in zip(WAYS, (0, 0, 0, -1), strict=True)
]


def traced(shape, kind, function):
    """What a model says of a label that is traced."""
    label = jax.ShapeDtypeStruct(shape, kind)
    jax.eval_shape(function, PARAMS, {"image": IMAGE[0], "label": label})


def given(label):
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), PARAMS)
    MODEL.loss(params, {"image": IMAGE[0], "label": label})


@cache
def reader():
    """A model of texts, and the shapes of its parameters."""
    model = fp.models.next_character(fp.models.modules.CharacterLSTM(5, 2, 3))
    return model, jax.eval_shape(model.init, jax.random.key(0))


def of_characters(function="loss", **example):
    """What a model of texts of 80 characters says of an example."""
    model, params = reader()
    example = {"text": np.zeros(80, np.uint8), "mask": np.ones(80, bool)} | example
    example = {name: leaf for name, leaf in example.items() if leaf is not None}
    return jax.eval_shape(getattr(model, function), params, example)


def norms(shape, kind):
    """Of gradients in closed form."""
    gradients = fp.per_example(MODEL.loss, closed_form=True)
    label = jax.ShapeDtypeStruct(shape, kind)
    images = {"image": jax.ShapeDtypeStruct(IMAGE.shape, IMAGE.dtype), "label": label}
    return jax.eval_shape(lambda params, batch: gradients(params, batch).norms, PARAMS, images)


def of_tokens(label, mask):
    """Tokens of six texts, of which a mask says which count."""
    examples = {"text": np.zeros((6, 2), int), "label": np.tile(label, (6, 1))}
    examples |= {} if mask is None else {"mask": np.tile(mask, (6, 1))}
    return fp.Federation.from_arrays(examples, CLIENTS, num_classes=3)


def of_masked(label):
    """A mask of whole records is no mask of tokens: a classifier reads them all."""
    examples = {"image": IMAGE, "label": label, "mask": label < 3}
    return fp.Federation.from_arrays(examples, CLIENTS, num_classes=3)


def of_three_axes():
    model = fp.models.from_apply(lambda key: jnp.zeros((4, 3)), lambda w, x: x.reshape(1, 4) @ w)
    model.loss(jnp.zeros((4, 3)), {"image": IMAGE[0], "label": 0})


TRACED = [
    ((), jnp.float32, ("float32[]", "astype(int)")),
    ((), jnp.bfloat16, "bfloat16[]"),
    ((1,), int, ("int32[1]", "reshape(-1)")),
    ((1,), jnp.float32, "float32[1]"),
    ((2,), int, "int32[2]"),
    ((3,), int, ("int32[3]", "argmax(-1)")),
    ((3,), jnp.float32, "float32[3]"),
    ((3,), bool, "bool[3]"),
]
TOKENS = [
    ([-100, 1], [True, True], ("-100 in row 0", "mask = labels >= 0")),
    ([-100, 1], None, ("-100 in row 0", "mask = labels >= 0")),
    ([-100, 1], True, "-100 in row 0"),
    ([0, 3], [False, True], "3 in row 0"),
]
CHARACTERS = [
    ({"label": jnp.zeros(80)}, "label", "float32[80]"),
    ({"label": jnp.zeros((), int)}, "label", "int32[]"),
    ({"label": jnp.zeros((80, 1), int)}, "label", "int32[80, 1]"),
    ({"label": jnp.zeros((80, 5))}, "label", "float32[80, 5]"),
    ({"label": np.zeros(80, int), "mask": None}, "example", '"mask"'),
]
GIVEN = [("cat", "<U3[]"), (b"cat", "|S3[]"), (None, "object[]")]
ROWS += [
    ("a mask of records", partial(of_masked, with_one(3)), "examples['label']", "3 in row 1"),
    ("no labels", lambda: in_memory(None), "examples['label']", "None"),
    ("a dict", lambda: in_memory({"fine": np.zeros(6)}), "examples['label']", "not an array"),
    ("closed form: float32", lambda: norms((6,), float), "label", "float32[]"),
    ("closed form: rows", lambda: norms((6, 1), int), "label", "int32[1]"),
    ("logits of two axes", of_three_axes, "apply", "float32[1, 3]"),
]
for shape, kind, shown in TRACED:
    for function in (MODEL.loss, MODEL.score):
        call = partial(traced, shape, kind, function)
        ROWS.append((f"{function.__name__}: {shown}", call, "label", shown, ExampleError))
for label, mask, shown in TOKENS:
    call = partial(of_tokens, label, mask)
    ROWS.append((f"tokens: {label}, {mask}", call, "examples['label']", shown))
for value, shown in GIVEN:
    ROWS.append((f"a model: {shown}", partial(given, value), "label", shown, ExampleError))
for changed, field, shown in CHARACTERS:
    call = partial(of_characters, **changed)
    ROWS.append((f"characters: {shown}", call, field, shown, ExampleError))
