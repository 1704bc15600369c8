"""Data that a model cannot take are refused before training, in one line that says what and why."""

import traceback

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from flax import nnx
from small import compiler_of_one_program, filled, refused

import fedpriv as fp
from fedpriv.engine.example_fit import check_examples

ROWS = 12
IMAGE = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4, 1), np.uint8)
LABEL = np.arange(ROWS, dtype=np.int32) % 3
GOOD = {"image": IMAGE, "label": LABEL}
MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (4, 4, 1))


def run(train=GOOD, test=GOOD, *, loss=MODEL.loss, score=MODEL.score, model=MODEL, **more):
    federation = fp.Federation.from_arrays(train, np.array_split(np.arange(ROWS), 3))
    algorithm = fp.fed_avg(
        loss,
        sampler=fp.everyone(3),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    return fp.simulate(algorithm, model.init, federation, test, score=score, rounds=1, **more)


def complaint(*args, **kwargs):
    with refused(r"^\w+: ") as error:
        run(*args, **kwargs)
    return str(error.value)


@pytest.mark.parametrize("whose", ["federation", "test"])
@pytest.mark.parametrize("value", [-1, -7, 3, 100])
def test_a_label_that_the_model_does_not_have(whose, value):
    label = LABEL.copy()
    label[5] = value
    wrong = GOOD | {"label": label}
    said = complaint(wrong) if whose == "federation" else complaint(test=wrong)
    assert said.startswith(f"{whose}: label: {value} is outside [0, 3)")


def test_labels_of_any_integer_type_are_taken():
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0))
    for kind in (np.int64, np.uint8, np.int32):
        right = GOOD | {"label": LABEL.astype(kind)}
        check_examples(MODEL.score, shapes, right, right)
        wrong = GOOD | {"label": (LABEL + 1).astype(kind)}
        with pytest.raises(ValueError, match=r"^federation: label: 3 is outside"):
            check_examples(MODEL.score, shapes, right, wrong)


def test_test_examples_of_another_width():
    """Of a function of one's own, which says nothing of the shapes that it takes."""
    model = fp.models.from_apply(
        lambda key: np.zeros((5, 3), np.float32), lambda w, x: x @ w, inputs="features"
    )
    good = {"features": np.ones((ROWS, 5), np.float32), "label": LABEL}
    wide = good | {"features": np.ones((ROWS, 6), np.float32)}
    said = complaint(good, wide, loss=model.loss, score=model.score, model=model)
    assert said.startswith("test: examples['features'] has the shape [6] for one example, but")


@pytest.mark.parametrize("part", ["train", "test"])
def test_wrong_names_and_tuples(part):
    assert "no \"image\", only ['label', 'x']" in complaint(**{part: {"x": IMAGE, "label": LABEL}})
    assert 'no "label"' in complaint(**{part: {"image": IMAGE}})
    assert "example: a tuple; this model reads" in complaint(**{part: (IMAGE, LABEL)})


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.5, deterministic=not train)(x.reshape(-1) / 255)
        return nn.Dense(3)(x)


@pytest.mark.parametrize(
    "module", [fp.models.LogisticRegression(3), fp.models.CNN((2,), (3,), 3), Dropped()]
)
def test_images_of_another_shape(module):
    model = fp.models.classifier(module, (4, 4, 1))
    functions = {"model": model, "loss": model.loss, "score": model.score}
    wide = {"image": np.zeros((ROWS, 8, 8, 3), np.uint8), "label": LABEL}
    for said in (complaint(wide, wide, **functions), complaint(test=wide, **functions)):
        assert "image: its shape is [8, 8, 3], but the model was made for [4, 4, 1]" in said


def test_parameters_of_another_model_are_not_taken_for_wrong_images():
    model = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
    params, images = filled(model.init), np.zeros((5, 2, 2, 1), np.uint8)
    with refused(
        r"^params: an axis of seeds, of length 1; give those of one, history.params\(seed"
    ):
        model.predict(jax.tree.map(lambda leaf: leaf[None], params), images)
    wrong = {"params": {"Dense_0": {"kernel": np.zeros((5, 3)), "bias": np.zeros(3)}}}
    with refused(
        r"^params: params.Dense_0.kernel has the shape \[5, 3\], but \[4, 3\] in the model"
    ):
        model.predict(wrong, images)
    with refused("^params: params.Dense_0.bias is missing; give its own parameters"):
        model.predict({"params": {"Dense_0": {"kernel": np.zeros((4, 3))}}}, images)
    with refused(r"^image: its shape is \[3, 2, 1\], but the model was made for \[2, 2, 1\]"):
        model.predict(params, np.zeros((5, 3, 2, 1), np.uint8))


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


def test_a_leaf_of_integers_for_one_of_floats():
    whole = jax.tree.map(lambda leaf: leaf.astype(int), filled(MODEL.init))
    with refused("^base: params.Dense_0.bias is of int32, but of float32 in the model; give"):
        fp.models.adapters(MODEL, whole, rank=1)


def test_test_examples_of_unequal_length():
    assert complaint(test={"image": IMAGE, "label": LABEL[1:]}).startswith(
        "test: examples['label']"
    )


def changed(name, value, row=4):
    leaf = GOOD[name].astype(np.float32)
    leaf[row] = value
    return GOOD | {name: leaf}


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (changed("image", np.nan), r"examples\['image'\]: nan in row 4; remove or repair"),
        (changed("image", np.inf), r"examples\['image'\]: inf in row 4; remove or repair"),
        (changed("label", np.nan), r"examples\['label'\]: nan in row 4; remove or repair"),
        (GOOD | {"label": LABEL[:5]}, r"examples\['label'\]: 5 rows, .* has 12; give"),
        (jax.tree.map(lambda leaf: leaf[:0], GOOD), "examples: there are no rows; give"),
        (GOOD | {"label": np.int32(1)}, r"examples\['label'\]: .*; give one of \[total"),
        (GOOD | {"label": np.array(list("abcabcabcabc"))}, r"examples\['label'\]: .*encode_text"),
        (GOOD | {"image": IMAGE * 1j}, r"examples\['image'\]: its data type is complex128; give"),
        ({}, "examples: there are no leaves; give"),
        (None, "examples: None is not an array; give"),
        (3.0, "examples: 3.0 is not an array; give"),
    ],
)
def test_test_examples_that_are_none(test, said):
    with refused(f"^test: {said}"):
        run(test=test)


def test_test_labels_are_taken_as_the_federation_takes_its_own():
    """Floats that are whole numbers, as of a JSON file, and booleans, are integers."""
    one_program = {"compiler": compiler_of_one_program()}

    def loss(label):
        return run(test=GOOD | {"label": label}, **one_program).loss

    np.testing.assert_array_equal(loss(LABEL.astype(np.float32)), loss(LABEL))
    np.testing.assert_array_equal(loss(LABEL % 2 == 1), loss(LABEL % 2))


def test_a_score_of_ones_own_is_named_with_its_line():
    def score(params, example):
        return {"correct": example["speaker"], "loss": 0.0, "weight": 1.0}

    with pytest.raises(KeyError, match="speaker") as error:
        run(score=score)
    assert traceback.extract_tb(error.tb)[-1].name == "score"


def test_a_model_in_the_place_of_its_functions():
    assert "score: an object of type Model; give its `score`" in complaint(score=MODEL)
    assert "loss: a Model; give its `loss`" in complaint(loss=MODEL)
    made = {
        "sampler": fp.everyone(3),
        "optimizer": lambda t: optax.sgd(0.1),
        "batches": fp.full_batch(),
    }
    steps = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    for build in (
        lambda: fp.dp_fed_avg(MODEL, **made, **steps),
        lambda: fp.fed_smp(MODEL, sparsifier=fp.papers.select_rand_k(p=0.5), **made, **steps),
        lambda: fp.papers.ldp_fed_avg(MODEL, **made, mechanism=fp.gaussian(1.0, 1.0)),
        lambda: fp.per_example(MODEL),
        lambda: fp.mean_grad("loss"),
    ):
        with pytest.raises(ValueError, match=r"^loss: "):
            build()


def test_what_is_right_is_not_traced_into_another_result():
    """The refusals read shapes and labels alone; jitted or not, a loss is the number that it was."""
    params = MODEL.init(jax.random.key(0))
    example = {"image": IMAGE[0], "label": LABEL[0]}
    logits = IMAGE[0].reshape(-1) / np.float32(255) @ params["params"]["Dense_0"]["kernel"]
    expected = np.log(np.exp(logits).sum()) - logits[LABEL[0]]
    np.testing.assert_allclose(MODEL.loss(params, example), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(MODEL.loss)(params, example), expected, rtol=1e-5)
