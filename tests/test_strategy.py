"""Layouts of the client axis differ in speed only."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from jax import lax
from small import assert_close

from fedpriv import Federation, Strategy, epochs, fed_avg, fixed_size, models, one_round
from fedpriv.devices.layout import current, default, spmd, sum_over, use
from fedpriv.models import modules

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LAYOUTS = [Strategy(clients, devices) for devices in (1, 2) for clients in (3, "map", 2, "vmap")]


def run(strategy, fn, *args):
    """`fn`, traced under `strategy` on the devices it asks for."""
    with use(strategy):
        return jax.device_get(jax.jit(spmd(fn))(*args))


@tiers.every("strategy", LAYOUTS, lambda strategy: strategy.devices)
def test_sum_over_is_a_loop(strategy):
    x = {"a": np.arange(10.0, dtype=np.float32).reshape(5, 2), "n": np.arange(5, dtype=np.int32)}
    factor = np.array([1, 2, 0, 4, 5], np.float32)
    valid = np.array([True, False, True, True, True])

    def fn(x, factor):
        # Where `valid` is False this is 0 / 0, and must not be seen.
        safe = jnp.where(x["n"] == 1, jnp.nan, 1.0)
        return {"sum": x["a"] * factor * safe, "count": x["n"] * 0 + 1}, (x["n"], factor * safe)

    total, (kept_n, kept_f) = run(strategy, lambda *a: sum_over(fn, *a), valid, x, factor)
    np.testing.assert_array_equal(total["sum"], (x["a"] * factor[:, None])[valid].sum(0))
    assert total["count"] == 4
    np.testing.assert_array_equal(kept_n, np.where(valid, x["n"], 0))
    np.testing.assert_array_equal(kept_f, np.where(valid, factor, 0))


@pytest.mark.parametrize("strategy", [Strategy("map", 2), Strategy(7, 1)], ids=str)
def test_sum_over_one_element(strategy):
    total, kept = run(
        strategy, lambda x: sum_over(lambda x: (x, 2 * x), jnp.ones(1, bool), x), jnp.array([3.0])
    )
    assert total == 3
    np.testing.assert_array_equal(kept, [6])


def test_the_sum_is_streamed():
    """No array of the program but the inputs has both the clients' and the coordinates' axis."""
    x = jnp.zeros(6)
    jaxpr = jax.make_jaxpr(
        lambda x: sum_over(lambda x: (jnp.full(1000, x), ()), jnp.ones(6, bool), x)
    )(x)
    assert "f32[1000]" in str(jaxpr)
    assert "6,1000]" not in str(jaxpr)


@pytest.mark.slow
def test_a_round_with_the_fast_convolution_is_one_with_xlas(monkeypatch):
    """Three local steps of a CNN; side by side, each client has kernels of its own."""
    rng = np.random.default_rng(0)
    examples = {
        "image": rng.integers(0, 256, (8, 4, 4, 1), np.uint8),
        "label": rng.integers(0, 3, 8, np.int32),
    }
    federation = Federation.from_arrays(examples, np.arange(8).reshape(4, 2))
    model = models.classifier(models.CNN((2,), (), 3), (4, 4, 1))
    algorithm = fed_avg(
        model.loss,
        sampler=fixed_size(4, 2),
        optimizer=lambda t: optax.sgd(0.1),
        batches=epochs(3, 2),
    )
    state = algorithm.init(model.init(jax.random.key(0)), federation)
    arguments = jax.random.key(0), state, federation
    fast = run(Strategy("vmap"), one_round(algorithm), *arguments)
    monkeypatch.setattr(modules, "conv_general_dilated", lax.conv_general_dilated)
    assert "_weight_cotangent" not in str(jax.make_jaxpr(one_round(algorithm))(*arguments))
    xlas = run(Strategy(), one_round(algorithm), *arguments)
    assert np.abs(jax.tree.leaves(fast)[0] - jax.tree.leaves(state)[0]).max() > 1e-3
    assert_close(xlas, fast)


def test_what_is_in_force():
    assert current() == Strategy()
    with use(Strategy(3)), use(Strategy("vmap")) as inner:
        assert current() is inner
    assert current() == Strategy()

    def fail():
        with use(Strategy(3)):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert current() == Strategy()
    assert default() == Strategy("map", 2)  # of two host devices
