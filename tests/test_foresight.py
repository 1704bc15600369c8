"""Whom a round asks for is read off its program, or it is said why not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedpriv.foresight import asking, asks_for, foresee

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(0)


def drawn(key, t):
    return jax.random.permutation(jax.random.fold_in(key, t), jnp.arange(20, dtype=jnp.int32))[:4]


def round(key, t, x):
    """Two cohorts, the second in a jitted function, among work that depends on x."""

    @jax.jit
    def second(key, x):
        asks_for(drawn(key, 7))
        return jnp.sin(x)

    asks_for(drawn(key, t))
    return {"x": second(key, x * 2), "key": key}


def test_ids_and_results():
    result, ids = jax.jit(asking(round))(KEY, 3, 1.5)
    expected = round(KEY, 3, 1.5)
    np.testing.assert_allclose(result["x"], expected["x"], rtol=1e-6)
    assert jnp.array_equal(result["key"], KEY)
    np.testing.assert_array_equal(ids, np.concatenate([drawn(KEY, 3), drawn(KEY, 7)]))


def test_ids_without_the_rest():
    who = foresee(round, (KEY, jnp.int32(0)), jax.ShapeDtypeStruct((), jnp.float32))
    for t in (3, 4):
        np.testing.assert_array_equal(who(KEY, t), np.concatenate([drawn(KEY, t), drawn(KEY, 7)]))


def test_what_is_not_needed_is_not_run():
    """Neither callbacks nor what they are called with."""
    called = []

    def printing(key, x):
        jax.debug.callback(called.append, x)
        asks_for(drawn(key, 1))
        return jax.pure_callback(lambda x: called.append(x) or x, x, x)

    who = foresee(printing, (KEY,), jax.ShapeDtypeStruct((), jnp.float32))
    np.testing.assert_array_equal(who(KEY), drawn(KEY, 1))
    jax.effects_barrier()
    assert not called


def test_what_one_jitted_function_does_is_told_apart():
    @jax.jit
    def both(key, x):
        return drawn(key, 1), x + 1

    def fn(key, x):
        ids, x = both(key, x)
        asks_for(ids)
        return x

    who = foresee(fn, (KEY,), jax.ShapeDtypeStruct((), jnp.float32))
    np.testing.assert_array_equal(who(KEY), drawn(KEY, 1))


def test_nobody():
    who = foresee(lambda key, x: x, (KEY,), jnp.float32(0))
    assert who(KEY).shape == (0,)


def test_of_several_at_once():
    ids = asking(jax.vmap(lambda key: asks_for(drawn(key, 0))))(jax.random.split(KEY, 3))[1]
    assert ids.shape == (12,)


def loops(key, late):
    return lax.scan(lambda c, t: (c, asks_for(drawn(key, t))), 0, jnp.arange(3))


def conditions(key, late):
    return lax.cond(late["x"] > 0, lambda: asks_for(drawn(key, 0)), lambda: drawn(key, 1))


def values(key, late):
    return asks_for(jnp.argsort(late["x"] * jnp.arange(4, dtype=jnp.float32)).astype(jnp.int32))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (loops, r"calls for_each_client inside a lax\.scan"),
        (conditions, r"calls for_each_client inside a lax\.cond"),
        (jax.jit(conditions), r"calls for_each_client inside a lax\.cond"),
        (values, r"who takes part depends on \['x'\], but whose records"),
        (jax.jit(values), r"who takes part depends on \['x'\], but whose records"),
    ],
)
def test_errors(fn, message):
    with pytest.raises(ValueError, match=message) as error:
        foresee(fn, (KEY,), {"x": jnp.float32(0), "y": jnp.float32(0)})
    assert "\n" not in str(error.value)
