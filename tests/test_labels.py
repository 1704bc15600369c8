"""Labels of every type: classes where nothing is ambiguous, one line with type and remedy otherwise, wherever given."""

import decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import refused

import fedpriv as fp
from fedpriv.data.labels import labels_like
from fedpriv.models.example_checks import ExampleError

CLASSES = [0, 1, 2, 0, 2, 1]
ROWS = [[0, 1, 2], [3, 4, 5]]
IMAGE = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2, 1)
MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
PARAMS = jax.eval_shape(MODEL.init, jax.random.key(0))
PARAMS_OF_ZEROS = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), PARAMS)

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
OTHERS = ["float16", "bfloat16", "float32", "float64", "longdouble", "object"]


def array(kind, values=CLASSES):
    return np.array(values, jnp.bfloat16 if kind == "bfloat16" else kind)


def in_memory(label, folder):
    federation = fp.Federation.from_arrays({"image": IMAGE, "label": label}, ROWS, num_classes=3)
    return np.asarray(federation.examples["label"])


def read(federation):
    return federation.read(np.arange(federation.num_clients))[1]["label"]


def streamed(label, folder):
    examples = {"image": IMAGE, "label": label}
    return read(fp.StreamedFederation.from_arrays(examples, ROWS, num_classes=3))


def sorted_by_client(label, folder):
    examples = {"image": IMAGE, "label": label}
    return read(fp.StreamedFederation.from_sorted(examples, [3, 3], num_classes=3))


def in_files(label, folder):
    fp.write_clients(folder, ({"image": IMAGE[own], "label": label[own]} for own in ROWS))
    return read(fp.StreamedFederation.from_folder(folder, num_classes=3))


WAYS = [in_memory, streamed, sorted_by_client, in_files]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", INTEGERS + OTHERS)
def test_whole_numbers_of_any_type_are_classes(way, kind, tmp_path):
    if way is in_files and kind == "bfloat16":
        pytest.skip("NumPy's files have no bfloat16")
    found = way(array(kind), tmp_path)
    assert np.issubdtype(found.dtype, np.integer)
    np.testing.assert_array_equal(found, CLASSES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["bool", "object"])
def test_booleans_are_0_and_1(way, kind, tmp_path):
    found = way(np.array([True, False, True] * 2, kind), tmp_path)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [1, 0, 1] * 2)


def test_numbers_of_json_and_integers_on_the_device():
    for label in (CLASSES, [float(c) for c in CLASSES]):
        np.testing.assert_array_equal(in_memory(label, None), CLASSES)
    label = jnp.array(CLASSES, jnp.int8)
    made = fp.Federation.from_arrays({"label": label}, ROWS, num_classes=3)
    assert made.examples["label"] is label


STRINGS = "(unique.*encode_text|encode_text.*numbers)"
WRONG = {
    "fraction": (np.array([0, 1, 0.5, 0, 1, 2]), r": 0\.5 in row 2; .*whole numbers"),
    "nan": (np.array([0, np.nan, 0, 0, 1, 2]), ": nan in row 1; remove"),
    "infinite": (np.array([0, np.inf, 0, 0, 1, 2]), ": inf in row 1; remove"),
    "above": (np.array([0, 1, 3.0, 0, 1, 2]), r": 3 in row 2, outside \[0, 3\)"),
    "below": (np.array([0, 1, -1.0, 0, 1, 2]), r": -1 in row 2, outside \[0, 3\)"),
    "beyond": (np.array([0, 1e30, 0, 0, 1, 2]), r": 1\S*e\+30 in row 1; .*whole numbers"),
    "one-hot": (np.eye(3)[CLASSES], r": one-hot .*float.*argmax\(-1\)"),
    "one-hot of booleans": (np.eye(3, dtype=bool)[CLASSES], r": one-hot .*bool.*argmax\(-1\)"),
    "strings": (np.array(list("abcacb")), f": .*<U1.*{STRINGS}"),
    "objects": (np.array(list("abcacb"), object), f": .*'a'.*{STRINGS}"),
    "missing": (np.array([0, None, 1, 0, 1, 2], object), ": None in row 1; "),
    "masked": (np.ma.masked_equal(CLASSES, 1), ": masked in row 1; "),
    "complex": (np.array(CLASSES, complex), ": its data type is complex128; "),
    "dates": (np.array(CLASSES, "M8[s]"), r": its data type is datetime64\[s\]; "),
    "decimals": (np.array([decimal.Decimal(c) for c in CLASSES]), ": Decimal.*; give"),
    "spans": (np.array(CLASSES, "m8[s]"), r": its data type is timedelta64\[s\]; "),
    "huge": (np.array([0, 2**70, 0, 0, 1, 2], object), ": .*(32 bits|object); "),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WRONG)
def test_others_are_refused_in_one_line(way, name, tmp_path):
    label, said = WRONG[name]
    with refused(r"examples\['label'\]" + said):
        way(label, tmp_path)


def test_labels_that_are_none():
    for label, said in [(None, "None"), ({"fine": np.zeros(6, int)}, "{'fine'")]:
        with pytest.raises(
            ValueError, match=rf"^examples\['label'\]: {said}.* is not an array; give"
        ):
            in_memory(label, None)


def test_what_is_no_class_stays_as_it_is():
    """Without `num_classes` nothing says that the label is one: a target of a regression keeps its type."""
    for kind in ("bool", "int8", "float16", "float32"):
        label = array(kind)
        made = fp.Federation.from_arrays({"label": label}, ROWS)
        assert made.examples["label"].dtype == label.dtype
    made = fp.Federation.from_arrays({"label": array("float64"), "y": [0.0, 1.0] * 3}, ROWS)
    assert {leaf.dtype for leaf in made.examples.values()} == {np.dtype("float32")}
    with_classes = fp.Federation.from_arrays(
        {"label": CLASSES, "y": [0.0, 1.0] * 3}, ROWS, num_classes=3
    )
    assert with_classes.examples["y"].dtype == np.float32


def test_integers_of_a_sequence_are_classes_though_they_look_one_hot():
    label = np.eye(3, dtype=int)[CLASSES]
    np.testing.assert_array_equal(in_memory(label, None), label)


def test_test_labels_are_as_those_to_train_on():
    train = fp.Federation.from_arrays({"label": CLASSES}, ROWS)
    for kind in ["bool", *OTHERS]:
        test = {"label": array(kind, [1, 0, 1]), "x": np.zeros(3)}
        found = labels_like(test, train)
        assert np.issubdtype(found["label"].dtype, np.integer)
        assert found["x"] is test["x"]
        assert test["label"].dtype == array(kind, [1]).dtype
    whole = {"label": np.zeros(3)}
    assert labels_like({"label": np.array([0.5])}, train)["label"].dtype == float
    assert labels_like(whole, fp.Federation.from_arrays(whole, [[0]])) is whole
    of_disk = {"label": np.array(CLASSES, float)}
    for classes, kind in ((None, float), (3, np.int32)):
        host = fp.StreamedFederation.from_arrays(of_disk, ROWS, num_classes=classes)
        assert labels_like(whole, host)["label"].dtype == kind


TRACED = {
    "float32": (jnp.zeros(()), r"label: float32\[\] .*astype\(int\)"),
    "bfloat16": (jnp.zeros((), jnp.bfloat16), r"label: bfloat16\[\] .*astype\(int\)"),
    "[N, 1]": (jnp.zeros(1, int), r"label: int32\[1\] .*reshape\(-1\)"),
    "[N, 1] of floats": (jnp.zeros(1), r"label: float32\[1\] .*reshape\(-1\)"),
    "two": (jnp.zeros(2, int), r"label: int32\[2\] for an example; give one number"),
    "one-hot": (jnp.zeros(3, int), r"label: int32\[3\] .*one-hot for 3 classes; .*argmax\(-1\)"),
    "one-hot of floats": (jnp.zeros(3), r"label: float32\[3\] .*argmax\(-1\)"),
    "one-hot of booleans": (jnp.zeros(3, bool), r"label: bool\[3\] .*argmax\(-1\)"),
}


@pytest.mark.parametrize("function", [MODEL.loss, MODEL.score])
@pytest.mark.parametrize("name", TRACED)
def test_a_model_refuses_what_is_no_class(function, name):
    label, said = TRACED[name]
    with refused(f"^{said}", ExampleError):
        jax.eval_shape(function, PARAMS, {"image": IMAGE[0], "label": label})


@pytest.mark.parametrize("label", ["cat", b"cat", None, np.array("cat"), object()])
def test_a_model_refuses_what_is_no_number(label):
    with refused(r"^label: .*; .*unique.*encode_text", ExampleError):
        MODEL.loss(PARAMS_OF_ZEROS, {"image": IMAGE[0], "label": label})


def test_a_model_takes_integers_and_booleans_of_any_type():
    """To the same numbers."""
    params = MODEL.init(jax.random.key(0))

    def of(label):
        example = {"image": IMAGE[5], "label": label}
        return float(MODEL.loss(params, example)), jax.device_get(MODEL.score(params, example))

    assert of(np.int32(1)) != of(np.int32(0))
    for kind in ["bool", *INTEGERS]:
        assert of(np.array(1, kind)) == of(np.int32(1))


def test_gradients_in_closed_form_read_the_same_labels():
    gradients = fp.per_example(MODEL.loss, closed_form=True)

    def norms(label):
        return gradients(PARAMS_OF_ZEROS, {"image": IMAGE, "label": label}).norms

    binary = np.array([1, 0, 1, 0, 0, 1])
    wanted = jax.tree.leaves(norms(jnp.array(binary)))
    for kind in ("bool", "uint8", "int16"):
        found = jax.tree.leaves(norms(jnp.array(binary, kind)))
        assert all(map(np.array_equal, found, wanted))
    for label, shape in [(jnp.zeros(6), r"\[\]"), (jnp.zeros((6, 1), int), r"\[1\]")]:
        with pytest.raises(ValueError, match=rf"^label: \w+{shape} for an example; .*argmax"):
            jax.eval_shape(lambda label=label: norms(label))


def test_labels_of_a_sequence():
    model = fp.models.next_character(fp.models.modules.CharacterLSTM(5, 2, 3))
    params = jax.eval_shape(model.init, jax.random.key(0))
    text = {"text": np.zeros(80, np.uint8), "mask": np.ones(80, bool)}
    for function in (model.loss, model.score):
        for kind in ("int32", "uint8", "bool"):
            jax.eval_shape(function, params, text | {"label": jnp.zeros(80, kind)})
        for label, said in [
            (jnp.zeros(80), r"label: float32\[80\] .*astype\(int\)"),
            (jnp.zeros((), int), r"label: int32\[\] .*give \[80\]"),
            (jnp.zeros((80, 1), int), r"label: int32\[80, 1\] .*give \[80\]"),
            (jnp.zeros((80, 5)), r"label: float32\[80, 5\] .*argmax"),
        ]:
            with pytest.raises(ExampleError, match=f"^{said}"):
                jax.eval_shape(function, params, text | {"label": label})
    with pytest.raises(ExampleError, match=r'^example: there is no "mask", only'):
        jax.eval_shape(model.loss, params, {"text": text["text"], "label": np.zeros(80, int)})


def test_logits_of_another_shape():
    model = fp.models.from_apply(lambda key: jnp.zeros((4, 3)), lambda w, x: x.reshape(1, 4) @ w)
    with pytest.raises(ValueError, match=r"^apply: it gives float32\[1, 3\] .*logits \[classes\]"):
        model.loss(jnp.zeros((4, 3)), {"image": IMAGE[0], "label": 0})
