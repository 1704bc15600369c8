"""Models in bfloat16: what is computed in it, and that all that privacy rests on is in float32."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from flax import nnx
from small import assert_close, assert_identical, filled, refused

import fedpriv as fp
from fedpriv.core.jaxprs import equations
from fedpriv.mechanisms.per_example import private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")

B, D, CLASSES = 6, 5, 3
RNG = np.random.default_rng(0)
BATCH = {
    "x": RNG.normal(size=(B, D)).astype(np.float32),
    "label": RNG.integers(0, CLASSES, B, np.int32),
}
EXAMPLE = {name: leaf[0] for name, leaf in BATCH.items()}
FEDERATION = fp.Federation.from_arrays(BATCH, np.arange(B).reshape(3, 2))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(4)(x))
        return nn.Dense(CLASSES)(x)


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        return nn.Dense(CLASSES)(nn.Dropout(0.5, deterministic=not train)(x))


NETWORK = fp.models.classifier(Net(), BATCH["x"][0], inputs="x")
HALF = fp.models.in_bfloat16(NETWORK)
PARAMS = filled(NETWORK.init)


def by_hand(params, example):
    """Cross-entropy in float32 of logits that are computed in bfloat16."""
    layers = [params["params"][name] for name in ("Dense_0", "Dense_1")]
    (w, b), (v, c) = (
        (layer["kernel"].astype(jnp.bfloat16), layer["bias"].astype(jnp.bfloat16))
        for layer in layers
    )
    x = jnp.asarray(example["x"]).astype(jnp.bfloat16)
    logits = (jnp.maximum(x @ w + b, 0) @ v + c).astype(jnp.float32)
    return jax.nn.logsumexp(logits) - logits[example["label"]]


def kinds(tree):
    """Types of the leaves."""
    return {leaf.dtype for leaf in jax.tree.leaves(tree)}


def products(fn, *args):
    """Types of what the products of a program multiply."""
    found = equations(jax.make_jaxpr(fn)(*args).jaxpr)
    return {v.aval.dtype for eqn, _ in found if eqn.primitive.name == "dot_general" for v in eqn.invars}  # fmt: skip


FLOAT, SHORT = {jnp.dtype("float32")}, {jnp.dtype("bfloat16")}


def test_gradients_are_those_of_casts_by_hand_in_float32():
    both = [jax.jit(jax.value_and_grad(loss))(PARAMS, EXAMPLE) for loss in (HALF.loss, by_hand)]
    assert kinds(both) == FLOAT
    assert_close(*both)
    exact = jax.jit(jax.value_and_grad(NETWORK.loss))(PARAMS, EXAMPLE)
    gap = [optax.tree.norm(jax.tree.map(jnp.subtract, one, exact)) for one in both]
    assert 1e-5 < gap[0] / optax.tree.norm(exact) < 0.02


@pytest.mark.slow
def test_logits_are_rounded_but_cross_entropy_is_not():
    transformer = fp.models.next_character(fp.models.CharacterTransformer(9, 4, 2, 1))
    half = fp.models.in_bfloat16(transformer)
    params = filled(half.init)
    text = RNG.integers(0, 9, 81, np.int32)
    example = {"text": text[:-1], "label": text[1:], "mask": np.ones(80, bool)}
    logits = np.asarray(jax.jit(half.apply)(params, example["text"]), np.float64)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(80), example["label"]]
    loss, score = jax.jit(lambda p, e: (half.loss(p, e), half.score(p, e)))(params, example)
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-5)
    np.testing.assert_allclose(score["loss"], losses.sum(), rtol=1e-5)


def test_every_product_is_of_bfloat16():
    assert products(jax.grad(HALF.loss), PARAMS, EXAMPLE) == SHORT
    assert products(jax.grad(NETWORK.loss), PARAMS, EXAMPLE) == FLOAT


def test_a_record_is_clipped_in_float32():
    """Rounded to bfloat16, a gradient could be 0.4 % longer than its clip norm."""
    mean = jax.jit(private_mean(fp.per_example(HALF.loss), fp.gaussian(0.01, 0.0), 1.0))
    for number in range(B):
        total = mean(jax.random.key(0), PARAMS, BATCH, jnp.arange(B) == number)
        assert kinds(total) == FLOAT
        np.testing.assert_allclose(float(optax.tree.norm(total)), 0.01, rtol=1e-5)


def private(model, micro=None):
    return fp.dp_fed_avg(
        model.loss,
        sampler=fp.everyone(3),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(micro),
        clip_norm=0.5,
        noise_multiplier=2.0,
    )


def by_records(model):
    gradients = fp.per_example(model.loss, micro=1)
    steps = fp.LocalSteps(
        gradients, fp.poisson(2, 0.5), 2, lambda t: optax.sgd(0.1), fp.gaussian(0.5, 2.0)
    )
    return fp.dp_sgd(steps, sampler=fp.everyone(3))


MADE = {"records": by_records, "clients": private}


@tiers.every("name", MADE)
@pytest.mark.slow
def test_certificates_are_those_in_float32(name):
    if name == "clients":  # of records the check takes longer
        fp.check_algorithm(MADE[name](HALF), PARAMS, FEDERATION)
    one, other = (
        fp.certify(MADE[name](model), PARAMS, FEDERATION, rounds=3, delta=1e-3)
        for model in (HALF, NETWORK)
    )
    assert str(one) == str(other)


@pytest.mark.slow
def test_training_keeps_float32_and_learns_what_float32_learns():
    def trained(model):
        algorithm = fp.fed_avg(
            model.loss,
            sampler=fp.everyone(3),
            optimizer=lambda t: optax.sgd(0.2),
            batches=fp.epochs(2, 2, micro=1),
        )
        given = {"score": model.score, "rounds": 5, "strategy": fp.Strategy(devices=1)}
        history = fp.simulate(algorithm, lambda _: PARAMS, FEDERATION, BATCH, **given)
        return history.params(), history.evaluations[-1].metrics["loss"]

    (params, loss), (_, exact) = trained(HALF), trained(NETWORK)
    assert kinds(params) == FLOAT
    np.testing.assert_allclose(loss, exact, rtol=0.02)


@pytest.mark.slow
def test_dropout_draws_what_it_draws_in_float32():
    model = fp.models.classifier(Dropped(), BATCH["x"][0], inputs="x")
    half, params = fp.models.in_bfloat16(model), filled(model.init)
    losses = [[m.loss(params, EXAMPLE, jax.random.key(s)) for s in range(4)] for m in (half, model)]
    assert len({float(loss) for loss in losses[0]}) > 1
    np.testing.assert_allclose(*losses, rtol=0.03)
    np.testing.assert_allclose(half.loss(params, EXAMPLE), model.loss(params, EXAMPLE), rtol=0.03)
    # Its outputs can be trained on by another loss, with their keys.
    other = fp.models.from_apply(half.init, half.apply, "x")
    key = jax.random.key(1)
    assert_close(other.loss(params, EXAMPLE, key), half.loss(params, EXAMPLE, key))


@pytest.mark.slow
def test_token_ids_keep_all_their_digits():
    """In bfloat16, 1,001 would be 1,000."""

    class Ids(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(1100, CLASSES, rngs=rngs)

        def __call__(self, tokens):
            return self.embed(tokens).sum(0)

    half = fp.models.in_bfloat16(fp.models.from_nnx(lambda rngs: Ids(rngs), inputs="x"))
    params = half.init(jax.random.key(0))
    example = {"x": jnp.asarray([1001]), "label": jnp.int32(0)}
    rows = jax.jit(jax.grad(half.loss))(params, example)["embed"]["embedding"].any(1)
    assert np.flatnonzero(rows).tolist() == [1001]


@tiers.every("name", ["CNN", "DropoutCNN", "MLP"])
@pytest.mark.slow
def test_bytes_are_scaled_and_then_rounded(name):
    module = {
        "CNN": fp.models.CNN((2,), (4,), 3),
        "DropoutCNN": fp.models.DropoutCNN(3),
        "MLP": fp.models.MLP((4,), 3),
    }[name]
    model = fp.models.classifier(module, (8, 8, 1))
    half, params = fp.models.in_bfloat16(model), filled(model.init)
    example = {"image": RNG.integers(0, 256, (8, 8, 1), np.uint8), "label": np.uint8(2)}
    assert products(half.loss, params, example) == SHORT
    losses = [jax.jit(m.loss)(params, example) for m in (half, model)]
    np.testing.assert_allclose(*losses, rtol=0.02)


@pytest.mark.slow
def test_score_and_outputs_are_float32_and_near_those_of_float32():
    def of(model):
        outputs = model.predict(PARAMS, BATCH["x"])
        scored = jax.jit(jax.vmap(fp.models.Score.of(model.score), (None, 0)))
        return {**scored(PARAMS, BATCH), "outputs": outputs}

    half, exact = of(HALF), of(NETWORK)
    assert kinds(half) == FLOAT
    assert half.keys() == exact.keys() > {"loss", "accuracy"}
    for name in ("loss", "outputs"):
        np.testing.assert_allclose(half[name], exact[name], rtol=0.03, atol=0.03)


def test_a_kept_model_has_the_float32_parameters(tmp_path):
    fp.models.save_model(tmp_path, "a", 0, HALF, PARAMS)
    params, apply = fp.models.load_model(tmp_path, "a", model=HALF)
    assert_identical(params, PARAMS)
    assert_identical(apply(params, BATCH["x"][0]), HALF.apply(PARAMS, BATCH["x"][0]))


def constants(fn, *args):
    """Types of the arrays that a program closes over."""
    return kinds(jax.make_jaxpr(fn)(*args).consts)


@pytest.mark.slow
def test_adapters_are_float32_beside_a_base_in_bfloat16(tmp_path):
    lora = fp.models.adapters(HALF, PARAMS, 2, "kernel")
    params = filled(lora.init)
    assert kinds(params) == FLOAT
    assert constants(lora.loss, params, EXAMPLE) <= SHORT
    assert kinds(jax.jit(jax.grad(lora.loss))(params, EXAMPLE)) == FLOAT
    exact = fp.models.adapters(NETWORK, PARAMS, 2, "kernel")
    losses = [jax.jit(m.loss)(params, EXAMPLE) for m in (lora, exact)]
    np.testing.assert_allclose(*losses, rtol=0.02)

    whole = lora.merged(params)
    assert kinds(whole) == FLOAT
    added = jax.tree.map(jnp.subtract, whole, lora.merged(lora.init(jax.random.key(0))))
    for path, pair in params.items():
        _, layer, leaf = path.split(".")
        np.testing.assert_allclose(added["params"][layer][leaf], pair["A"] @ pair["B"], atol=1e-6)

    fp.models.save_model(tmp_path, "a", 0, lora, params)
    assert_identical(fp.models.load_model(tmp_path, "a", model=lora).params, params)
    certificate = fp.certify(private(lora), params, FEDERATION, rounds=1, delta=1e-3)
    other = fp.certify(private(exact), params, FEDERATION, rounds=1, delta=1e-3)
    assert str(certificate) == str(other)


def test_leaves_that_are_trained_are_float32_and_others_are_not():
    head = fp.models.frozen(HALF, PARAMS, "Dense_1")
    params = head.init(jax.random.key(0))
    assert kinds(params) == FLOAT
    assert constants(head.loss, params, EXAMPLE) <= SHORT
    assert kinds(head.merged(params)) == FLOAT


def test_products_that_are_not_of_bfloat16_are_refused():
    class Table(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(CLASSES)(x + np.arange(D, dtype=np.float32))

    model = fp.models.in_bfloat16(fp.models.classifier(Table(), BATCH["x"][0], inputs="x"))
    params = filled(model.init)
    for _ in range(2):
        with refused("model: 1 of its 1 products are in float32"):
            jax.eval_shape(jax.grad(model.loss), params, EXAMPLE)
