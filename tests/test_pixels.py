"""Images of 0 to 255 that are no bytes are refused before training; what is right is taken as it is."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from small import refused

import fedpriv as fp
from fedpriv.models.example_checks import ExampleError

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROWS = 12
BYTES = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4, 1), np.uint8)
BYTES[7] = 255
LABEL = np.arange(ROWS) % 3
CLIENTS = np.array_split(np.arange(ROWS), 3)
INTEGERS = ["int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
NETWORKS = [
    fp.models.LogisticRegression(3),
    fp.models.MLP((4,), 3),
    fp.models.CNN((2,), (3,), 3),
    fp.models.DropoutCNN(3),
    fp.models.SigmoidLeNet(3),
]


class Own(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x.reshape(-1) / 255)


def run(train, test, kind=fp.Federation, module=NETWORKS[0], name="image"):
    shape = np.shape(train)[1:]
    model = fp.models.classifier(module, np.zeros(shape, np.uint8), name)
    federation = kind.from_arrays({name: train, "label": LABEL}, CLIENTS)
    algorithm = fp.fed_avg(
        model.loss,
        sampler=fp.everyone(3),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    test = {name: test, "label": LABEL}
    given = {"score": model.score, "rounds": 1, "compiler": taken}
    return fp.simulate(algorithm, model.init, federation, test, **given)


def typed(kind):
    return (BYTES // 2 if kind == "int8" else BYTES).astype(kind)


class TakenError(Exception):
    """All checks of a run were passed."""


def taken(*program):
    """A compiler that ends the run."""
    raise TakenError


@pytest.mark.parametrize("kind", INTEGERS + FLOATS)
def test_images_that_would_not_be_scaled(kind):
    said = rf"image: \w*{'int' if kind in INTEGERS else 'float'}.*astype\(np.uint8\)"
    with pytest.raises(ValueError, match=said):
        run(typed(kind), typed(kind))


@pytest.mark.parametrize("kind", ["int32", "float16"])
def test_whose_images_would_not_be_scaled(kind):
    for whose, train, test in [
        ("(federation|test)", typed(kind), typed(kind)),
        ("federation", typed(kind), BYTES),
        ("test", BYTES, typed(kind)),
    ]:
        said = rf"^{whose}: image: \w*{'int' if kind in INTEGERS else 'float'}.*astype\(np.uint8\)"
        for federation in (fp.Federation, fp.StreamedFederation):
            if federation is fp.StreamedFederation and kind in FLOATS and test is BYTES:
                continue  # whose values are read round by round
            with refused(said):
                run(train, test, federation)


@pytest.mark.parametrize("module", NETWORKS)
@pytest.mark.parametrize("name", ["image", "photo"])
def test_every_network_of_images_asks_for_bytes(module, name):
    """Whatever its input is called, if it has the axes of an image; flat ones may be other features."""
    model = fp.models.classifier(module, (32, 32, 3), name)
    params = jax.eval_shape(model.init, jax.random.key(0))
    shape = jax.ShapeDtypeStruct((32, 32, 3), np.int32)
    label = jax.ShapeDtypeStruct((), np.int32)
    for function in (model.loss, model.score):
        with pytest.raises(ExampleError, match=rf"^{name}: int32\[32, 32, 3\]"):
            jax.eval_shape(function, params, {name: shape, "label": label})
    with pytest.raises(ExampleError, match=rf"^{name}: float64 of 0 to 255"):
        jax.eval_shape(
            lambda p: model.apply(p, np.full((32, 32, 3), 255.0) * np.eye(32)[..., None]), params
        )
    for kind in (np.uint8, np.float32, np.float16, np.bool_):
        right = jax.ShapeDtypeStruct((32, 32, 3), kind)
        jax.eval_shape(model.loss, params, {name: right, "label": label})


def test_what_is_right_is_taken():
    """Scaled, standardised, binary, of other features than pixels, or for a network of one's own."""
    standardised = (BYTES - BYTES.mean(0)) / BYTES.std(0) * 100  # as of a pixel that is seldom lit
    flat = BYTES.reshape(ROWS, -1)
    for given, options in [
        (BYTES / np.float32(255), {}),
        (BYTES.astype(np.float32) / 16, {}),
        (standardised, {}),
        (BYTES > 100, {}),
        (flat.astype(np.int32), {"name": "features"}),
        (flat.astype(np.float32), {"name": "features"}),
        (BYTES.astype(np.int32), {"module": Own()}),
        (BYTES.astype(np.float32), {"module": Own()}),
    ]:
        with pytest.raises(TakenError):
            run(given, given, **options)
