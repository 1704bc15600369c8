"""The number of clients side by side follows from the memory there is."""

import jax
import jax.numpy as jnp
import pytest

from fedpriv import Strategy
from fedpriv.fitting import fitted, free_memory
from fedpriv.strategy import spmd, sum_over

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NUMBERS = 2**16  # of a client's temporary array: 256 KiB


def compiled():
    def client(x):
        noise = jax.random.normal(jax.random.key(0), (NUMBERS,)) * x
        return jnp.sum(jnp.sort(noise)), ()  # a sort needs its argument in memory

    def total(x):
        return spmd(lambda x: sum_over(client, jnp.ones(64, bool), x)[0])(x)

    return jax.jit(total).lower(jax.ShapeDtypeStruct((64,), jnp.float32)).compile()


def test_twice_the_memory_takes_twice_the_clients():
    counts = [fitted(Strategy("fit"), compiled, free).clients for free in (2**26, 2**27)]
    assert counts[0] >= 8
    assert abs(counts[1] - 2 * counts[0]) <= 1
    # 0.8 of 64 MiB hold 204 such arrays; a client needs one and no more than ten
    assert 20 <= counts[0] <= 204


def test_one_client_at_least():
    assert fitted(Strategy("fit"), compiled, 1000) == Strategy(1)


def test_what_is_given_stays():
    def never():
        raise AssertionError

    for strategy in (Strategy("map"), Strategy(5, 2), Strategy("vmap")):
        assert fitted(strategy, never) is strategy


def test_there_is_free_memory():
    assert free_memory() > 2**20
