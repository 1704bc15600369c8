"""The papers' models have the papers' sizes; a model of any library is a loss function."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from flax import nnx
from small import assert_close, assert_identical, assert_uniform, classification, filled

from fedpriv import Strategy, everyone, fed_avg, full_batch, models, simulate
from fedpriv.core.leaves import as_float
from fedpriv.core.trees import dimension
from fedpriv.models import load_model, save_model


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (models.fashion_mnist_cnn, 1_663_370),
        (models.svhn_cnn, 3_431_754),
        (models.shakespeare_lstm, 820_522),
        (lambda: models.next_character(models.CharacterTransformer(90, 64, 2, 1)), 66_842),
        (lambda: models.classifier(models.DropoutCNN(10), (32, 32, 3)), 1_626_442),
        (lambda: models.classifier(models.LogisticRegression(10), (28, 28, 1)), 7_850),
        (lambda: models.classifier(models.MLP((200,), 10), (60,)), 60 * 200 + 200 + 2010),
    ],
)
def test_parameter_counts(make, count):
    assert dimension(jax.eval_shape(make().init, jax.random.key(0))) == count


@pytest.mark.slow
def test_initial_weights_compiled_as_a_whole_are_those_of_flax():
    """Up to the rounding of one program instead of many, which depends on the processor."""
    module, key = models.CNN((2,), (5,), 4, "pytorch"), jax.random.key(5)
    init = models.classifier(module, (8, 8, 1)).init
    ours = init(key)
    theirs = module.init(key, jnp.zeros((8, 8, 1), jnp.uint8))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert_close(ours, theirs, rtol=5e-7)


@pytest.mark.slow
def test_initial_weights_within_another_program():
    init = models.classifier(models.MLP([3], 4), (2, 2, 1)).init  # a list, which has no hash
    key = jax.random.key(5)
    assert_close(jax.jit(init)(key), init(key), rtol=5e-7)
    each = jax.jit(jax.vmap(init))(key[None])
    assert_close(jax.tree.map(lambda leaf: leaf[0], each), init(key), rtol=5e-7)


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


def test_networks_have_the_fast_convolution(tiny_cnn):
    """That it gives XLA's gradient is tested on whole rounds, in `test_strategy`."""
    model, params, batch = tiny_cnn

    def mean(params):
        return jnp.mean(jax.vmap(model.loss, in_axes=(None, 0))(params, batch))

    assert "_weight_cotangent" in str(jax.make_jaxpr(jax.grad(mean))(params))


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
    model = models.next_character(models.CharacterTransformer(90, 8, 2, 1))
    params = filled(model.init, 0.1)
    rng = np.random.default_rng(0)
    text = rng.integers(0, 90, 81)
    example = {"text": text[:-1].astype(np.uint8), "label": text[1:].astype(np.int32)}

    @jax.jit
    def score(params, example):
        return model.score(params, example), model.loss(params, example)

    return params, example, score


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_character_sees_only_those_before_it(characters):
    params, example, score = characters
    mask = np.arange(80) < 50
    text = example["text"].copy()
    text[50:] = 7
    one, _ = score(params, example | {"mask": mask})
    other, _ = score(params, {"text": text, "label": example["label"], "mask": mask})
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-6)


def test_a_transformer_is_numpys():
    """One block of two heads, on six characters, with parameters that are no zeros."""
    module, text = models.CharacterTransformer(5, 4, 2, 1), np.array([0, 3, 4, 1, 1, 2])
    params = filled(lambda key: module.init(key, text))["params"]
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def normal(x, layer):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return unit * layer["scale"] + layer["bias"]

    def dense(x, layer):
        return x @ layer["kernel"] + layer["bias"]

    x = p["Embed_0"]["embedding"][text] + p["positions"]
    y, attention = normal(x, p["LayerNorm_0"]), p["MultiHeadDotProductAttention_0"]
    for head in range(2):
        q, k, v = (
            y @ attention[name]["kernel"][:, head] + attention[name]["bias"][head]
            for name in ("query", "key", "value")
        )
        weights = np.tril(np.exp(q @ k.T / np.sqrt(2)))
        mean = weights / weights.sum(-1, keepdims=True) @ v
        x = x + mean @ attention["out"]["kernel"][head]
    x = x + attention["out"]["bias"]
    y = dense(normal(x, p["LayerNorm_1"]), p["Dense_0"])
    y = y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))) / 2
    x = x + dense(y, p["Dense_1"])
    logits = dense(normal(x, p["LayerNorm_2"]), p["head"])
    assert_close(jax.jit(module.apply)({"params": params}, text), logits, 1e-5)


def by_hand():
    """A user's own model, of no library: a pair of arrays and three functions."""

    def loss(params, example):
        z = logits(params, example["image"])
        return jax.nn.logsumexp(z) - z[example["label"]]

    def logits(params, image):
        return image.reshape(-1) / 255.0 @ params[0] + params[1]

    def score(params, example):
        return {"accuracy": jnp.zeros(()), "loss": loss(params, example), "weight": jnp.ones(())}

    def init(key):
        return 0.1 * jax.random.normal(key, (4, 3)), jnp.zeros(3)

    return models.Model(init, loss, score)


def flax_nnx():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, image):
            return self.linear(image.reshape(-1) / 255.0)

    return models.from_nnx(lambda rngs: Net(rngs))


def equinox():
    eqx = pytest.importorskip("equinox")

    def make(key):
        return eqx.nn.Linear(4, 3, key=key)

    fixed = eqx.partition(make(jax.random.key(0)), eqx.is_array)[1]

    def apply(params, image):
        return eqx.combine(params, fixed)(image.reshape(-1) / 255.0)

    return models.from_apply(lambda key: eqx.filter(make(key), eqx.is_array), apply)


LIBRARIES = {make.__name__: make for make in (flax_nnx, by_hand, equinox)}


@tiers.every("library", LIBRARIES)
@pytest.mark.slow
def test_a_model_of_any_library_trains_and_is_kept(library, tmp_path):
    federation, test, _ = classification(tests=30)
    model = LIBRARIES[library]()
    algorithm = fed_avg(
        model.loss, sampler=everyone(8), optimizer=lambda t: optax.sgd(1.0), batches=full_batch()
    )
    options = {"score": model.score, "rounds": 20, "every": 10, "strategy": Strategy()}
    run = simulate(algorithm, model.init, federation, test, **options)
    assert run.loss[-1, 0] < run.loss[0, 0] < np.log(3)
    params = jax.tree.map(lambda leaf: leaf[0], run.state.params)
    save_model(tmp_path, "fed_avg", 0, model, params)
    trained = load_model(tmp_path, "fed_avg", model=model)
    assert jax.tree.structure(trained.params) == jax.tree.structure(params)
    assert_identical(trained.params, params)
    if model.apply:
        right = np.mean(trained.predict(test["image"]).argmax(-1) == test["label"])
        assert right == pytest.approx(run.accuracy[-1, 0])


class Dropped(nnx.Module):
    """Two dropouts, one after the other."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)])
        self.scale = nnx.Param(jnp.ones(400))

    def __call__(self, x):
        return self.layers[1](self.layers[0](self.scale * x))


@pytest.mark.slow
def test_dropout_of_nnx_draws_from_the_key_and_only_in_training():
    """Both layers draw, each by itself: a quarter is left of 400 ones, four times as large."""
    model = models.from_nnx(Dropped, "x")
    params = model.init(jax.random.key(0))
    assert_identical(model.apply(params, jnp.ones(400)), np.ones(400))
    run = jax.jit(jax.vmap(lambda key: model.apply(params, jnp.ones(400), key)))
    keys = jax.random.split(jax.random.key(1), 20)
    drawn = np.asarray(run(keys))
    assert set(np.unique(drawn)) == {0.0, 4.0}
    assert_uniform((drawn > 0).sum(0), 20, 0.25)
    assert_uniform((drawn > 0).sum(1), 400, 0.25)
    assert len(np.unique(drawn, axis=0)) == 20
    assert_identical(run(keys), drawn)


def test_other_normalisation_than_of_batches_is_taken():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(nn.LayerNorm()(x))

    model = models.classifier(Normed(), np.zeros(4, np.float32))
    assert dimension(jax.eval_shape(model.init, jax.random.key(0))) == 23


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, ids):
        assert ids.dtype == jnp.int32
        return nn.Dense(3)(nn.Embed(50, 2)(ids).reshape(-1))


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (models.MLP((5,), 3), np.linspace(-1, 1, 7, dtype=np.float32)),
        (models.MLP((5,), 3), np.linspace(-1, 1, 7)),
        (Tokens(), np.arange(6, dtype=np.int32)),
    ],
)
def test_inputs_have_the_datas_own_type_and_shape(module, x):
    """Numbers that are not of an image are not scaled; tokens stay whole."""
    model = models.classifier(module, x, inputs="given")
    params = filled(model.init)
    example = {"given": jnp.asarray(x), "label": jnp.int32(2)}
    z = module.apply(params, jnp.asarray(x))
    np.testing.assert_allclose(model.apply(params, example["given"]), z, rtol=1e-6)
    expected = jax.nn.logsumexp(z) - z[2]
    np.testing.assert_allclose(model.loss(params, example), expected, rtol=1e-5)
