"""Labels of every type are classes where nothing is ambiguous; what is refused, lists `refused/labels.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from refused.labels import CLASSES, CLIENTS, IMAGE, MODEL, WAYS, in_files, in_memory, of_characters
from small import filled

import fedpriv as fp
from fedpriv.data.labels import labels_like

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
OTHERS = ["float16", "bfloat16", "float32", "float64", "longdouble", "object"]


def array(kind, values=CLASSES):
    return np.array(values, jnp.bfloat16 if kind == "bfloat16" else kind)


@pytest.mark.parametrize("way", WAYS)
@tiers.every("kind", INTEGERS + OTHERS, kind=lambda name: array(name).dtype.kind)
def test_whole_numbers_of_any_type_are_classes(way, kind, tmp_path, monkeypatch):
    if way is in_files and kind == "bfloat16":
        pytest.skip("NumPy's files have no bfloat16")
    monkeypatch.chdir(tmp_path)
    found = way(array(kind))
    assert np.issubdtype(found.dtype, np.integer)
    np.testing.assert_array_equal(found, CLASSES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["bool", "object"])
def test_booleans_are_0_and_1(way, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = way(np.array([True, False, True] * 2, kind))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [1, 0, 1] * 2)


def test_numbers_of_json_and_integers_on_the_device():
    for label in (CLASSES, [float(c) for c in CLASSES]):
        np.testing.assert_array_equal(in_memory(label), CLASSES)
    label = jnp.array(CLASSES, jnp.int8)
    made = fp.Federation.from_arrays({"label": label}, CLIENTS, num_classes=3)
    assert made.examples["label"] is label


def test_what_is_no_class_stays_as_it_is():
    """Without `num_classes` nothing says that the label is one: a target of a regression keeps its type."""
    for kind in ("bool", "int8", "float16", "float32"):
        label = array(kind)
        made = fp.Federation.from_arrays({"label": label}, CLIENTS)
        assert made.examples["label"].dtype == label.dtype
    made = fp.Federation.from_arrays({"label": array("float64"), "y": [0.0, 1.0] * 3}, CLIENTS)
    assert {leaf.dtype for leaf in made.examples.values()} == {np.dtype("float32")}
    with_classes = fp.Federation.from_arrays(
        {"label": CLASSES, "y": [0.0, 1.0] * 3}, CLIENTS, num_classes=3
    )
    assert with_classes.examples["y"].dtype == np.float32


def test_integers_of_a_sequence_are_classes_though_they_look_one_hot():
    label = np.eye(3, dtype=int)[CLASSES]
    np.testing.assert_array_equal(in_memory(label), label)


def test_test_labels_are_as_those_to_train_on():
    train = fp.Federation.from_arrays({"label": CLASSES}, CLIENTS)
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
        host = fp.StreamedFederation.from_arrays(of_disk, CLIENTS, num_classes=classes)
        assert labels_like(whole, host)["label"].dtype == kind


def test_a_model_takes_integers_and_booleans_of_any_type():
    """To the same numbers."""
    params = filled(MODEL.init)
    both = jax.jit(lambda example: (MODEL.loss(params, example), MODEL.score(params, example)))

    def of(label):
        return jax.device_get(both({"image": IMAGE[5], "label": label}))

    assert of(np.int32(1)) != of(np.int32(0))
    for kind in ("bool", "uint8", "int64"):
        assert of(np.array(1, kind)) == of(np.int32(1))


def test_gradients_in_closed_form_read_the_same_labels():
    gradients = fp.per_example(MODEL.loss, closed_form=True)
    params, binary = filled(MODEL.init), np.array([1, 0, 1, 0, 0, 1])
    of = jax.jit(lambda given: jax.tree.leaves(gradients(params, given).norms))

    def norms(kind):
        return of({"image": IMAGE, "label": binary.astype(kind)})

    for kind in ("bool", "uint8", "int16"):
        assert all(map(np.array_equal, norms(kind), norms(int)))


def test_labels_of_a_sequence():
    for function in ("loss", "score"):
        for kind in ("int32", "uint8", "bool"):
            of_characters(function, label=np.zeros(80, kind))
