"""The papers' models have the papers' sizes; a model of any library is a loss function."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import assert_close, classification, filled

from fedpriv import Strategy, everyone, fed_avg, full_batch, models, simulate
from fedpriv.core.trees import as_float, dimension
from fedpriv.devices.layout import use


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (models.fashion_mnist_cnn, 1_663_370),
        (models.svhn_cnn, 3_431_754),
        (models.shakespeare_lstm, 820_522),
        (lambda: models.classifier(models.LogisticRegression(10), (28, 28, 1)), 7_850),
        (lambda: models.classifier(models.MLP((200,), 10), (60,)), 60 * 200 + 200 + 2010),
    ],
)
def test_parameter_counts(make, count):
    assert dimension(jax.eval_shape(make().init, jax.random.key(0))) == count


@pytest.mark.parametrize(
    "module",
    [
        models.MLP([7], 4),  # a list, which has no hash
        models.CNN((2, 3), (5,), 4),
        models.CNN((2,), (5,), 4, "pytorch"),
        pytest.param(models.SigmoidLeNet(4), marks=pytest.mark.slow),
    ],
)
def test_initial_weights_compiled_as_a_whole_are_those_of_flax(module):
    """Up to the rounding of one program instead of many, which depends on the processor."""
    key = jax.random.key(5)
    ours = models.classifier(module, (8, 8, 1)).init(key)
    theirs = module.init(key, jnp.zeros((8, 8, 1), jnp.uint8))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert_close(ours, theirs, rtol=5e-7)


@pytest.mark.parametrize("make", [models.fashion_mnist_cnn, models.svhn_cnn])
def test_scores_of_the_papers_cnns_have_no_axes(make):
    model = make()
    params = jax.eval_shape(model.init, jax.random.key(0))
    image = jnp.zeros((28, 28, 1) if make is models.fashion_mnist_cnn else (32, 32, 3), jnp.uint8)
    example = {"image": image, "label": jnp.int32(3)}
    assert jax.eval_shape(model.loss, params, example).shape == ()
    score = jax.eval_shape(model.score, params, example)
    assert {name: s.shape for name, s in score.items()} == dict.fromkeys(("accuracy", "loss"), ())


@pytest.fixture(scope="module")
def tiny_cnn():
    model = models.classifier(models.CNN((2, 3), (5,), 4), (8, 8, 1))
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (6, 8, 8, 1), np.uint8),
        "label": rng.integers(0, 4, 6, np.int32),
    }
    return model, filled(model.init), batch


@pytest.mark.parametrize("convolution", ["canonical", "xla"])
def test_the_strategy_chooses_the_convolution(tiny_cnn, convolution):
    """That both give the same gradient is tested on whole rounds, with the strategies."""
    model, params, batch = tiny_cnn

    def mean(params):
        return jnp.mean(jax.vmap(model.loss, in_axes=(None, 0))(params, batch))

    with use(Strategy(convolution=convolution)):
        program = str(jax.make_jaxpr(jax.grad(mean))(params))
    assert ("_weight_cotangent" in program) == (convolution == "canonical")


def test_score(tiny_cnn):
    model, params, batch = tiny_cnn
    module = models.CNN((2, 3), (5,), 4)

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def run(params, example):
        z = module.apply(params, example["image"])
        return z, model.score(params, example), model.loss(params, example)

    z, score, loss = run(params, batch)
    z = np.asarray(z, np.float64)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    np.testing.assert_array_equal(score["accuracy"], z.argmax(1) == batch["label"])
    np.testing.assert_allclose(score["loss"], -log_p[np.arange(6), batch["label"]], rtol=1e-5)
    np.testing.assert_allclose(loss, score["loss"], rtol=1e-6)


def test_bytes_are_scaled_and_floats_are_not():
    image = jnp.arange(256, dtype=jnp.uint8)
    np.testing.assert_allclose(as_float(image), np.arange(256) / 255, rtol=1e-6)
    assert as_float(image).dtype == jnp.float32
    np.testing.assert_array_equal(as_float(1000 * jnp.ones(3)), 1000)


@pytest.fixture(scope="module")
def characters():
    model = models.shakespeare_lstm()
    params = filled(model.init, 0.1)
    rng = np.random.default_rng(0)
    text = rng.integers(0, 90, 81)
    example = {"text": text[:-1].astype(np.uint8), "label": text[1:].astype(np.int32)}

    @jax.jit
    def score(params, example):
        return model.score(params, example), model.loss(params, example)

    return params, example, score


def test_masked_characters_count_nothing(characters):
    params, example, score = characters
    mask = np.arange(80) < 50
    other = example["label"].copy()
    other[50:] = 0
    one, loss = score(params, example | {"mask": mask})
    same, _ = score(params, {"text": example["text"], "label": other, "mask": mask})
    assert one == same
    assert one["weight"] == 50
    np.testing.assert_allclose(loss, one["loss"] / 50, rtol=1e-6)
    nothing, loss = score(params, example | {"mask": np.zeros(80, bool)})
    assert set(map(float, nothing.values())) == {0.0}
    assert loss == 0


def test_a_character_sees_only_those_before_it(characters):
    params, example, score = characters
    mask = np.arange(80) < 50
    text = example["text"].copy()
    text[50:] = 7
    one, _ = score(params, example | {"mask": mask})
    other, _ = score(params, {"text": text, "label": example["label"], "mask": mask})
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-6)


def logits_by_hand(params, example):
    return example["image"].reshape(-1) / 255.0 @ params[0] + params[1]


def pure_functions():
    """A user's own model, of no library: a pair of arrays and a function."""

    def loss(params, example):
        z = logits_by_hand(params, example)
        return jax.nn.logsumexp(z) - z[example["label"]]

    return (lambda key: (0.1 * jax.random.normal(key, (4, 3)), jnp.zeros(3))), loss


def flax_nnx():
    """A flax.nnx module: its state is the parameters, its graph definition is constant."""
    graph = nnx.split(nnx.Linear(4, 3, rngs=nnx.Rngs(0)))[0]

    def init(key):
        return nnx.to_pure_dict(nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(key))))

    def loss(params, example):
        z = nnx.merge(graph, nnx.State(params))(example["image"].reshape(-1) / 255.0)
        return optax.softmax_cross_entropy_with_integer_labels(z, example["label"])

    return init, loss


@pytest.mark.parametrize("library", [pure_functions, flax_nnx])
def test_a_model_of_any_library_trains(library):
    federation, test, _ = classification(tests=30)
    init, loss = library()

    def score(params, example):
        return {"accuracy": jnp.zeros(()), "loss": loss(params, example), "weight": jnp.ones(())}

    algorithm = fed_avg(
        loss, sampler=everyone(8), optimizer=lambda t: optax.sgd(1.0), batches=full_batch()
    )
    run = simulate(
        algorithm, init, federation, test, score=score, rounds=20, every=10, strategy=Strategy()
    )
    assert run.loss[-1, 0] < run.loss[0, 0] < np.log(3)
