"""Examples that a model cannot take, before training: of the federation, and of the test set."""

from functools import cache

import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv import models
from fedpriv.engine.example_fit import check_examples, examples_of_test
from refused.row import Refusal

COUNT = 12
IMAGE = np.random.default_rng(0).integers(0, 255, (COUNT, 4, 4, 1), np.uint8)
IMAGE[7] = 255
LABEL = np.arange(COUNT, dtype=np.int32) % 3
GOOD = {"image": IMAGE, "label": LABEL}
WIDE = {"image": np.zeros((COUNT, 8, 8, 3), np.uint8), "label": LABEL}
MODEL = models.classifier(models.LogisticRegression(3), (4, 4, 1))
INTEGERS = ["int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@cache
def federation(kind=fp.Federation):
    return kind.from_arrays(GOOD, np.array_split(np.arange(COUNT), 3))


def shapes(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def looked_at(train=GOOD, test=GOOD, model=MODEL):
    """As before a run."""
    test = examples_of_test(test, federation())
    check_examples(model.score, shapes(model), test, train)


def run(train=GOOD, test=GOOD, *, kind=fp.Federation, loss=MODEL.loss, score=MODEL.score):
    """A round of training, up to its refusal."""
    how = {"sampler": fp.everyone(3), "batches": fp.full_batch()}
    algorithm = fp.fed_avg(loss, optimizer=lambda t: optax.sgd(0.1), **how)
    clients = kind.from_arrays(train, np.array_split(np.arange(COUNT), 3))
    return fp.simulate(algorithm, MODEL.init, clients, test, score=score, rounds=1)


def with_label(value):
    label = LABEL.copy()
    label[5] = value
    return GOOD | {"label": label}


def changed(name, value):
    leaf = GOOD[name].astype(np.float32)
    leaf[4] = value
    return GOOD | {name: leaf}


def typed(kind):
    return GOOD | {"image": (IMAGE // 2 if kind == "int8" else IMAGE).astype(kind)}


def of_another_width():
    """Of a function of one's own, which says nothing of the shapes that it takes."""
    init = lambda key: np.zeros((5, 3), np.float32)  # noqa: E731
    model = models.from_apply(init, lambda w, x: x @ w, inputs="features")
    good = {"features": np.ones((COUNT, 5), np.float32), "label": LABEL}
    return looked_at(good, good | {"features": np.ones((COUNT, 6), np.float32)}, model)


def either(name, wrong, field, value="", remedy=""):
    """In the federation, and in the test set."""
    return [
        Refusal(f"{name}, in training", lambda: run(wrong), field, value, remedy=remedy),
        Refusal(f"{name}, in tests", lambda: looked_at(test=wrong), field, value, remedy=remedy),
    ]


def of_tests(name, test, field, value=""):
    return Refusal(f"tests of {name}", lambda: looked_at(test=test), f"test: {field}", value)


ROWS = [
    *(
        Refusal(
            f"a label of {v} in {whose}", lambda g=given: looked_at(*g), f"{whose}: label:", str(v)
        )
        for v in (-1, -7, 3, 100)
        for whose, given in (("federation", (with_label(v),)), ("test", (GOOD, with_label(v))))
    ),
    *either("another name", {"x": IMAGE, "label": LABEL}, "image", "['label', 'x']"),
    *either("no label", {"image": IMAGE}, "label"),
    *either("a tuple", (IMAGE, LABEL), "example:", "a tuple"),
    *either("wide images", WIDE, "image:", "[8, 8, 3]"),
    *either("images of int32", typed("int32"), "image:", "int", "astype(np.uint8)"),
    *(
        of_tests(f"images of {kind}", typed(kind), "image:", "int" if kind in INTEGERS else "float")
        for kind in INTEGERS + FLOATS
    ),
    Refusal(
        "a federation of images of floats",
        lambda: looked_at(typed("float16")),
        "federation: image:",
        "float",
    ),
    Refusal(
        "a streamed federation of images of int32",
        lambda: run(typed("int32"), kind=fp.StreamedFederation),
        "federation: image:",
        "int32",
    ),
    Refusal("tests of another width", of_another_width, "test: examples['features']", "[6]"),
    of_tests("nan", changed("image", np.nan), "examples['image']:", "nan"),
    of_tests("infinity", changed("image", np.inf), "examples['image']:", "inf"),
    of_tests("a label of nan", changed("label", np.nan), "examples['label']:", "nan"),
    of_tests("too few labels", GOOD | {"label": LABEL[:5]}, "examples['label']:", "5"),
    of_tests("no row", jax.tree.map(lambda leaf: leaf[:0], GOOD), "examples:", "no rows"),
    of_tests("a label alone", GOOD | {"label": np.int32(1)}, "examples['label']:", "1"),
    of_tests("text", GOOD | {"label": np.array(list("abcabcabcabc"))}, "examples['label']:"),
    of_tests("complex numbers", GOOD | {"image": IMAGE * 1j}, "examples['image']:", "complex128"),
    of_tests("no leaf", {}, "examples:"),
    of_tests("None", None, "examples:", "None"),
    of_tests("a number", 3.0, "examples:", "3.0"),
    Refusal("a model for a score", lambda: run(score=MODEL), "score:", "Model"),
    Refusal("a model for a loss", lambda: run(loss=MODEL), "loss:", "Model"),
]
