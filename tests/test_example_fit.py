"""Data that a model cannot take are refused before training, and what is right is taken as it is.

`refused/examples.py` has what is refused in a run.
"""

import traceback

import flax.linen as nn
import jax
import numpy as np
import pytest
import tiers
from flax import nnx
from small import filled, refused

import fedpriv as fp
from fedpriv.engine.example_fit import check_examples, examples_of_test
from fedpriv.models.example_checks import ExampleError

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROWS = 12
IMAGE = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4, 1), np.uint8)
LABEL = np.arange(ROWS, dtype=np.int32) % 3
IMAGE[7] = 255
GOOD = {"image": IMAGE, "label": LABEL}
LINEAR = fp.models.LogisticRegression(3)
MODEL = fp.models.classifier(LINEAR, (4, 4, 1))
SHAPES = jax.eval_shape(MODEL.init, jax.random.key(0))


FEDERATION = fp.Federation.from_arrays(GOOD, np.array_split(np.arange(ROWS), 3))


def test_labels_of_any_integer_type_are_taken():
    for kind in (np.int64, np.uint8, np.int32):
        right = GOOD | {"label": LABEL.astype(kind)}
        check_examples(MODEL.score, SHAPES, right, right)
        wrong = GOOD | {"label": (LABEL + 1).astype(kind)}
        with pytest.raises(ValueError, match=r"^federation: label: 3 is outside"):
            check_examples(MODEL.score, SHAPES, right, wrong)


class OnlyInTraining(nn.Module):
    """A layer, a width or all parameters that evaluation does not have."""

    what: str

    @nn.compact
    def __call__(self, x, train):
        if self.what == "a layer" and train:
            x = nn.Dense(5)(x)
        if self.what == "a width" and train:
            x = np.ones(2) @ jax.numpy.stack([x, x])
            x = jax.numpy.append(x, x)
        return x[:3] if self.what == "all" and not train else nn.Dense(3, name="head")(x)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a layer", 'parameter named "kernel" in scope "/Dense_0"'),
        ("a width", r'parameter "kernel" in "/head", .* \(10, 3\), .* \(5, 3\)'),
        ("all", '"kernel" .* in "/head" but the collection is empty'),
    ],
)
def test_a_module_that_has_other_parameters_in_training(what, said):
    model = fp.models.classifier(OnlyInTraining(what), np.zeros(5, np.float32), "x")
    params, example = filled(model.init), {"x": np.ones(5, np.float32), "label": 1}
    model.score(params, example)
    with refused(f"^module: it asks for other parameters than at `init` .*{said}"):
        model.loss(params, example, jax.random.key(0))


class Linear(nnx.Module):
    def __init__(self, rngs):
        self.d = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x):
        return self.d(x.reshape(-1) / 255)


MADE = {
    "linen": (MODEL, GOOD),
    "nnx": (fp.models.from_nnx(lambda rngs: Linear(rngs)), GOOD),
    "text": (
        fp.models.next_character(fp.models.CharacterLSTM(5, 2, 3)),
        {"text": np.zeros((2, 80), int), "label": np.zeros((2, 80), int), "mask": np.ones((2, 80))},
    ),
    "adapted": (fp.models.adapters(MODEL, filled(MODEL.init), rank=1), GOOD),
}


@pytest.mark.parametrize("name", MADE)
def test_a_tree_of_parameters_that_is_not_the_models(name):
    """Whatever the model is made by: a leaf that is missing, or has another shape."""
    model, examples = MADE[name]
    first = jax.tree.map(lambda leaf: leaf[0], examples)
    leaves, tree = jax.tree.flatten(filled(model.init))
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(filled(model.init))]
    for i, path in enumerate(paths):
        part = path[-1].key
        without = jax.tree.unflatten(tree, [None if j == i else x for j, x in enumerate(leaves)])
        with refused(rf"^params: \S*{part} is missing; give"):
            jax.eval_shape(model.loss, without, first)
        other = [np.ones((7, *x.shape), x.dtype) if j == i else x for j, x in enumerate(leaves)]
        with refused(rf"^params: \S*{part} has the shape \[7.*\], but"):
            jax.eval_shape(model.loss, jax.tree.unflatten(tree, other), first)


def test_test_labels_are_taken_as_the_federation_takes_its_own():
    """Floats that are whole numbers, as of a JSON file, and booleans, are integers."""
    for given, label in ((LABEL.astype(np.float32), LABEL), (LABEL % 2 == 1, LABEL % 2)):
        taken = examples_of_test(GOOD | {"label": given}, FEDERATION)["label"]
        np.testing.assert_array_equal(taken, label)
        assert np.issubdtype(taken.dtype, np.integer)


def test_a_score_of_ones_own_is_named_with_its_line():
    def score(params, example):
        return {"correct": example["speaker"], "loss": 0.0, "weight": 1.0}

    with pytest.raises(KeyError, match="speaker") as error:
        check_examples(score, SHAPES, GOOD, GOOD)
    assert traceback.extract_tb(error.tb)[-1].name == "score"


def test_what_is_right_is_not_traced_into_another_result():
    """The refusals read shapes and labels alone; jitted or not, a loss is the number that it was."""
    params = filled(MODEL.init)
    example = {"image": IMAGE[0], "label": LABEL[0]}
    layer = params["params"]["Dense_0"]
    logits = IMAGE[0].reshape(-1) / np.float32(255) @ layer["kernel"] + layer["bias"]
    expected = np.log(np.exp(logits).sum()) - logits[LABEL[0]]
    np.testing.assert_allclose(MODEL.loss(params, example), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(MODEL.loss)(params, example), expected, rtol=1e-5)


NETWORKS = {
    type(module).__name__: module
    for module in (
        fp.models.CNN((2,), (3,), 3),
        LINEAR,
        fp.models.MLP((4,), 3),
        fp.models.DropoutCNN(3),
        fp.models.SigmoidLeNet(3),
    )
}


class Own(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x.reshape(-1) / 255)


@tiers.every("network", NETWORKS, kind=lambda module: "a network")
@pytest.mark.parametrize("name", ["image", "photo"])
def test_every_network_of_images_asks_for_bytes(network, name):
    """Whatever its input is called, if it has the axes of an image; flat ones may be other features."""
    model = fp.models.classifier(NETWORKS[network], (32, 32, 3), name)
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
    standardised = (IMAGE - IMAGE.mean(0)) / IMAGE.std(0) * 100  # as of a pixel that is seldom lit
    flat = IMAGE.reshape(ROWS, -1)
    for given, module, name in [
        (IMAGE / np.float32(255), LINEAR, "image"),
        (IMAGE.astype(np.float32) / 16, LINEAR, "image"),
        (standardised, LINEAR, "image"),
        (IMAGE > 100, LINEAR, "image"),
        (flat.astype(np.int32), LINEAR, "features"),
        (flat.astype(np.float32), LINEAR, "features"),
        (IMAGE.astype(np.int32), Own(), "image"),
        (IMAGE.astype(np.float32), Own(), "image"),
    ]:
        data = {name: given, "label": LABEL}
        model = fp.models.classifier(module, np.zeros(given.shape[1:], np.uint8), name)
        check_examples(model.score, jax.eval_shape(model.init, jax.random.key(0)), data, data)


def test_a_network_of_ones_own_that_is_made_for_floats_refuses_bytes():
    """In training, scores and predictions; of other features than images nobody knows what bytes are."""
    bytes_, flat = {"image": IMAGE, "label": LABEL}, IMAGE.reshape(ROWS, -1)
    model = fp.models.classifier(Own(), np.zeros(IMAGE.shape[1:], np.float32))
    params = model.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"^test: image: uint8\[.*made for float32"):
        check_examples(model.score, params, bytes_, bytes_)
    with pytest.raises(ExampleError, match=r"^image: uint8\[.*give image / np.float32\(255\)"):
        jax.eval_shape(model.loss, params, jax.tree.map(lambda leaf: leaf[0], bytes_))
    with pytest.raises(ExampleError, match=r"^image: uint8\["):
        model.predict(params, IMAGE)
    assert model.predict(params, IMAGE / np.float32(255)).shape == (ROWS, 3)
    other = fp.models.classifier(Own(), np.zeros(flat.shape[1:], np.float32), "features")
    assert other.predict(other.init(jax.random.key(0)), flat).shape == (ROWS, 3)
