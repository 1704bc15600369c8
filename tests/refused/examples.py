"""Examples that a model cannot take, before training: of the federation, and of the test set."""

from functools import cache, partial

import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv import models
from fedpriv.engine.example_fit import check_examples, examples_of_test

COUNT = 12
IMAGE = np.random.default_rng(0).integers(0, 255, (COUNT, 4, 4, 1), np.uint8)
IMAGE[7] = 255
LABEL = np.arange(COUNT, dtype=np.int32) % 3
GOOD = {"image": IMAGE, "label": LABEL}
WIDE = {"image": np.zeros((COUNT, 8, 8, 3), np.uint8), "label": LABEL}
MODEL = models.classifier(models.LogisticRegression(3), (4, 4, 1))


@cache
def federation():
    return fp.Federation.from_arrays(GOOD, np.array_split(np.arange(COUNT), 3))


def looked_at(train=GOOD, test=GOOD, model=MODEL):
    """As before a run."""
    test = examples_of_test(test, federation())
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    check_examples(model.score, shapes, test, train)


def run(train=GOOD, kind=fp.Federation, loss=MODEL.loss, score=MODEL.score):
    """A round of training, up to its refusal."""
    how = {"sampler": fp.everyone(3), "batches": fp.full_batch()}
    algorithm = fp.fed_avg(loss, optimizer=lambda t: optax.sgd(0.1), **how)
    clients = kind.from_arrays(train, np.array_split(np.arange(COUNT), 3))
    return fp.simulate(algorithm, MODEL.init, clients, GOOD, score=score, rounds=1)


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


INTEGERS, BYTES = typed("int32"), ("int32", "astype(np.uint8)")
# In the federation, and in the test set: what is wrong, the field, what is shown.
EITHER = [
    ({"x": IMAGE, "label": LABEL}, "example: there is no", ("image", "['label', 'x']")),
    ({"image": IMAGE}, "example: there is no", ("label", "['image']")),
    ((IMAGE, LABEL), "example", "a tuple"),
    (WIDE, "image", "[8, 8, 3]"),
    (INTEGERS, "image", BYTES),
]
LABELS = [(with_label(value), "label", str(value)) for value in (-1, 3, 100)]
OF_TESTS = [
    (changed("image", np.nan), "examples['image']", "nan"),
    (changed("image", np.inf), "examples['image']", "inf"),
    (changed("label", np.nan), "examples['label']", "nan"),
    (GOOD | {"label": LABEL[:5]}, "examples['label']", "5"),
    (jax.tree.map(lambda leaf: leaf[:0], GOOD), "examples", "no rows"),
    (GOOD | {"label": np.int32(1)}, "examples['label']", "1"),
    (GOOD | {"label": np.array(list("abcabcabcabc"))}, "examples['label']", "<U1"),
    (GOOD | {"image": IMAGE * 1j}, "examples['image']", "complex128"),
    ({}, "examples", "no leaves"),
    (None, "examples", "None"),
    (3.0, "examples", "3.0"),
    (typed("float16"), "image", "float16 of 255 to 255"),
    *((typed(kind), "image", f"{kind}[4, 4, 1]") for kind in ("int8", "uint16", "uint32")),
]
STREAMED = fp.StreamedFederation
ROWS = [
    ("streamed images", partial(run, INTEGERS, STREAMED), "federation: image", BYTES),
    ("tests of another width", of_another_width, "test: examples['features']", "[6]"),
    ("a model for a score", lambda: run(score=MODEL), "score", "Model"),
    ("a model for a loss", lambda: run(loss=MODEL), "loss", "Model"),
]
for i, (wrong, field, shown) in enumerate(EITHER):
    ROWS.append((f"of training, {i}", partial(run, wrong), f"federation: {field}", shown))
for wrong, field, shown in LABELS:
    ROWS.append((f"a label, {shown}", partial(looked_at, wrong), f"federation: {field}", shown))
for i, (wrong, field, shown) in enumerate(EITHER + LABELS + OF_TESTS):
    ROWS.append((f"of tests, {i}", partial(looked_at, GOOD, wrong), f"test: {field}", shown))
