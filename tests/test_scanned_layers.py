"""Layers that repeat as one program, their parameters stacked, against the same layers in a Python loop."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_identical, filled

import fedpriv as fp
from fedpriv.core.trees import dimension

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LAYERS, WIDTH, LENGTH, CHARACTERS = 3, 4, 5, 7
STACKED = "layers"
CLIENTS = 4
RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, CHARACTERS, (CLIENTS * 2, LENGTH + 1)).astype(np.int32)
FEDERATION = fp.Federation.from_arrays(
    {"text": TEXT[:, :-1], "label": TEXT[:, 1:]}, np.arange(len(TEXT)).reshape(CLIENTS, 2)
)


class Block(nn.Module):
    """A layer as `nn.scan` takes it."""

    @nn.compact
    def __call__(self, x, _):
        """f32[length, width] -> (the same after the layer, nothing)."""
        y = nn.LayerNorm()(x)
        x += nn.softmax(nn.Dense(WIDTH)(y) @ y.T) @ y
        return x + nn.Dense(WIDTH)(jnp.tanh(x)), None


class Scanned(nn.Module):
    """A transformer whose layers are scanned, perhaps computed again for their gradient."""

    again: bool = False

    @nn.compact
    def __call__(self, text):
        """i32[length] -> logits f32[length, characters]."""
        of_one = nn.remat(Block, prevent_cse=False) if self.again else Block
        given = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": LAYERS}
        x = nn.Embed(CHARACTERS, WIDTH, name="embed")(text)
        x, _ = nn.scan(of_one, **given)(name=STACKED)(x, None)
        return nn.Dense(CHARACTERS, name="head")(x)


def by_linen(params, text):
    return Scanned().apply(params, text)


def again(params, text):
    return Scanned(again=True).apply(params, text)


def looped(params, text):
    """For parameters that are not stacked."""
    own = params["params"]
    x = nn.Embed(CHARACTERS, WIDTH).apply({"params": own["embed"]}, text)
    for layer in own[STACKED]:
        x, _ = Block().apply({"params": layer}, x, None)
    return nn.Dense(CHARACTERS).apply({"params": own["head"]}, x)


def unstacked(params):
    stack = params["params"][STACKED]
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], stack) for i in range(LAYERS)]
    return {"params": params["params"] | {STACKED: each}}


def loss_of(apply):
    def loss(params, example):
        logits = apply(params, example["text"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, example["label"]).mean()

    return loss


def by_fed_avg(loss, noise):
    return fp.dp_fed_avg(
        loss,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.5),
        batches=fp.epochs(1, 1),
        clip_norm=0.3,
        noise_multiplier=noise,
    )


def by_dp_sgd(loss, noise):
    optimizer, mechanism = lambda t: optax.sgd(0.5), fp.gaussian(0.3, noise)
    local = fp.LocalSteps(fp.per_example(loss), fp.everyone(2), 2, optimizer, mechanism)
    return fp.dp_sgd(local, sampler=fp.everyone(CLIENTS))


PARAMS = filled(lambda key: Scanned().init(key, TEXT[0, :-1]))


def near(actual, expected):
    """Up to the rounding of sums of numbers of about 1, or larger; some gradients are 0 but for rounding."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


def after_a_round(algorithm, params):
    state = algorithm.init(params, FEDERATION)
    state, metrics = jax.jit(fp.one_round(algorithm))(jax.random.key(1), state, FEDERATION)
    return state.params, metrics


@pytest.mark.slow
def test_scanned_layers_train_as_those_of_a_loop():
    """Clipped as one, at the same epsilon, and as much is sent; each leaf has noise in its own shape."""
    make, ours, theirs, apart = by_dp_sgd, loss_of(again), loss_of(looped), unstacked(PARAMS)
    expected, metrics = after_a_round(make(theirs, 0.0), apart)
    params, own_metrics = after_a_round(make(ours, 0.0), PARAMS)
    near(unstacked(params), expected)
    assert not np.allclose(params["params"]["head"]["kernel"], PARAMS["params"]["head"]["kernel"])
    for way in ("uplink", "downlink"):
        assert_identical(own_metrics[way], metrics[way])
    own = fp.certify(make(ours, 1.0), PARAMS, FEDERATION, 3, 1e-3)
    assert own.basis == "constructed"
    assert own.epsilon == fp.certify(make(theirs, 1.0), apart, FEDERATION, 3, 1e-3).epsilon


@pytest.mark.slow
def test_a_base_of_stacked_leaves_is_known_as_public():
    loss = loss_of(by_linen)
    model = fp.models.Model(lambda key: PARAMS, loss, lambda *given: {"loss": loss(*given)})
    model = fp.models.frozen(model, PARAMS, STACKED)
    params = model.init(jax.random.key(0))
    certificate = fp.certify(by_fed_avg(model.loss, 1.0), params, FEDERATION, 3, 1e-3)
    (said,) = (text for text in certificate.assumptions if "fine-tuned" in text)
    fixed = dimension(PARAMS) - dimension(params)
    assert f"{fixed} numbers) is public" in said
    assert not any("closes over" in text for text in certificate.assumptions)
