"""Examples that a model cannot take, before training: of the federation, and of the test set."""

from functools import cache

import flax.linen as nn
import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv import models
from refused.row import Refusal

ROWS_OF_DATA = 12
IMAGE = np.random.default_rng(0).integers(0, 255, (ROWS_OF_DATA, 4, 4, 1), np.uint8)
IMAGE[7] = 255
LABEL = np.arange(ROWS_OF_DATA, dtype=np.int32) % 3
GOOD = {"image": IMAGE, "label": LABEL}
WIDE = {"image": np.zeros((ROWS_OF_DATA, 8, 8, 3), np.uint8), "label": LABEL}


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.5, deterministic=not train)(x.reshape(-1) / 255)
        return nn.Dense(3)(x)


NETWORKS = {
    "regression": models.LogisticRegression(3),
    "convolutions": models.CNN((2,), (3,), 3),
    "dropout": Dropped(),
}


@cache
def made(name="regression"):
    return models.classifier(NETWORKS[name], (4, 4, 1))


def run(train=GOOD, test=GOOD, *, model=None, kind=fp.Federation, **given):
    """A round of training, up to its refusal."""
    model = model or made()
    functions = {"loss": model.loss, "score": model.score} | given
    algorithm = fp.fed_avg(
        functions["loss"],
        sampler=fp.everyone(3),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    federation = kind.from_arrays(train, np.array_split(np.arange(ROWS_OF_DATA), 3))
    return fp.simulate(algorithm, model.init, federation, test, score=functions["score"], rounds=1)


def with_label(value):
    label = LABEL.copy()
    label[5] = value
    return GOOD | {"label": label}


def changed(name, value):
    leaf = GOOD[name].astype(np.float32)
    leaf[4] = value
    return GOOD | {name: leaf}


def either(name, wrong, field, value, **given):
    """In the federation, and in the test set."""
    return [
        Refusal(f"{name}, in training", lambda: run(wrong, **given), field, value),
        Refusal(f"{name}, in the test set", lambda: run(test=wrong, **given), field, value),
    ]


def of_tests(name, test, field, value):
    return Refusal(name, lambda: run(test=test), f"test: {field}", value)


def of_another_width():
    """Of a function of one's own, which says nothing of the shapes that it takes."""
    model = models.from_apply(
        lambda key: np.zeros((5, 3), np.float32), lambda w, x: x @ w, inputs="features"
    )
    good = {"features": np.ones((ROWS_OF_DATA, 5), np.float32), "label": LABEL}
    return run(good, good | {"features": np.ones((ROWS_OF_DATA, 6), np.float32)}, model=model)


def typed(kind):
    return GOOD | {"image": (IMAGE // 2 if kind == "int8" else IMAGE).astype(kind)}


INTEGERS = ["int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ROWS = [
    *(
        row
        for value in (-1, -7, 3, 100)
        for row in either(f"label {value}", with_label(value), ": label:", str(value))
    ),
    *either("another name", {"x": IMAGE, "label": LABEL}, "image", "['label', 'x']"),
    *either("no label", {"image": IMAGE}, "label", ""),
    *either("a tuple", (IMAGE, LABEL), "example:", "a tuple"),
    *(
        row
        for name in NETWORKS
        for row in either(f"wide images, {name}", WIDE, "image:", "[8, 8, 3]", model=made(name))
    ),
    Refusal("tests of another width", of_another_width, "test: examples['features']", "[6]"),
    of_tests("nan", changed("image", np.nan), "examples['image']:", "nan"),
    of_tests("infinity", changed("image", np.inf), "examples['image']:", "inf"),
    of_tests("a label of nan", changed("label", np.nan), "examples['label']:", "nan"),
    of_tests("too few labels", GOOD | {"label": LABEL[:5]}, "examples['label']:", "5"),
    of_tests("no row", jax.tree.map(lambda leaf: leaf[:0], GOOD), "examples:", "no rows"),
    of_tests("a number", GOOD | {"label": np.int32(1)}, "examples['label']:", "1"),
    of_tests("text", GOOD | {"label": np.array(list("abcabcabcabc"))}, "examples['label']:", ""),
    of_tests("complex", GOOD | {"image": IMAGE * 1j}, "examples['image']:", "complex128"),
    of_tests("no leaf", {}, "examples:", ""),
    of_tests("None", None, "examples:", "None"),
    of_tests("a float", 3.0, "examples:", "3.0"),
    Refusal("a model for a score", lambda: run(score=made()), "score:", "Model"),
    Refusal("a model for a loss", lambda: run(loss=made()), "loss:", "Model"),
    *(
        Refusal(
            f"images of {kind}",
            lambda kind=kind: run(typed(kind), typed(kind)),
            "image:",
            "int" if kind in INTEGERS else "float",
            remedy="astype(np.uint8)",
        )
        for kind in INTEGERS + FLOATS
    ),
    *(
        Refusal(
            f"images of {kind} of {whose}, {of.__name__}",
            lambda train=train, test=test, of=of: run(train, test, kind=of),
            f"{whose}: image:",
            "",
        )
        for kind in ("int32", "float16")
        for whose, train, test in (
            ("federation", typed(kind), GOOD),
            ("test", GOOD, typed(kind)),
        )
        for of in (fp.Federation, fp.StreamedFederation)
        # whose values are read round by round
        if (of, kind, whose) != (fp.StreamedFederation, "float16", "federation")
    ),
]
