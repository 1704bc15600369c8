"""The number of clients side by side follows from the memory there is."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from fedpriv import Strategy
from fedpriv.devices.layout import spmd, sum_over, use
from fedpriv.devices.memory import fitted, free_memory

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NUMBERS = 2**16  # of a client's temporary array: 256 KiB


def lowered(clients=64):
    def client(x):
        noise = jax.random.normal(jax.random.key(0), (NUMBERS,)) * x
        return jnp.sum(jnp.sort(noise)), ()  # a sort needs its argument in memory

    def total(x):
        return spmd(lambda x: sum_over(client, jnp.ones(clients, bool), x)[0])(x)

    return jax.jit(total).lower(jax.ShapeDtypeStruct((clients,), jnp.float32))


@pytest.mark.parametrize("clients", [3, 9, 64])
def test_what_is_chosen_fits_and_is_not_far_from_the_most(clients):
    free = 2**23  # of which 0.75 hold 24 arrays, more than nine clients need
    chosen = fitted(Strategy("fit"), partial(lowered, clients), free)
    assert chosen.clients >= 2
    for side_by_side, fits in ((chosen.clients, True), (4 * chosen.clients, False)):
        if side_by_side > clients:
            continue
        with use(Strategy(side_by_side)):
            needed = lowered(clients).compile().memory_analysis().temp_size_in_bytes
        assert (needed <= free) == fits


def test_twice_the_memory_takes_twice_the_clients():
    counts = [fitted(Strategy("fit"), lowered, free).clients for free in (2**26, 2**27)]
    assert counts[0] >= 8
    assert abs(counts[1] - 2 * counts[0]) <= 1


def test_one_client_at_least():
    assert fitted(Strategy("fit"), lowered, 1000) == Strategy(1)


def test_what_is_given_stays():
    def never():
        raise AssertionError

    for strategy in (Strategy("map"), Strategy(5, 2), Strategy("vmap")):
        assert fitted(strategy, never) is strategy


def test_there_is_free_memory():
    assert free_memory() > 2**20
