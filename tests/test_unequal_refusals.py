"""Records of clients that hold unequal numbers of them: what would pass the accounting, and sizes that do not fit."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest
import tiers
from small import refused, regression, start
from unequal import GRADIENTS, LEAF, WALL, algorithm_of, mean_of, sending, three_ways

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def certified(algorithm, view="third_party"):
    return fp.trace_round(algorithm, start(), regression(WALL)).certify(1, 1e-3, view=view)


@pytest.mark.parametrize("way", ["secret", "public, batches"])
def test_a_size_reaches_nothing_but_its_private_mean(way):
    records = three_ways(WALL)[way]

    def sending_its_size(key, state, cohort):
        def client(key, shard):
            mean = shard.private_mean(
                GRADIENTS, state.params, records=records, mechanism=fp.gaussian(1.0, 1.0)
            )
            return fp.Sent(jax.tree.map(lambda leaf: leaf * shard.size, mean))

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        params = jax.tree.map(jnp.add, state.params, total)
        return state._replace(params=params, round=state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, sending_its_size, fp.everyone(8), "record")
    with refused("client's data", fp.LeakError):
        certified(algorithm)


def plus_capacity(key, params, shard):
    return jax.tree.map(lambda leaf: leaf + shard.capacity, mean_of(key, params, shard))


class FirstRecords(fp.PublicSizes):
    """Draws the same records again and again."""

    def draw(self, key, size):
        return fp.types.Draw(jnp.zeros(self.most, jnp.int32), jnp.ones(self.most, bool))


HOLES = {
    "a size": (
        lambda k, p, s: mean_of(k, p, replace(s, size=jnp.minimum(s.size, 3))),
        "shard: its size was changed",
    ),
    "a round": (
        lambda k, p, s: mean_of(k, p, replace(s, round=s.round + 9)),
        "shard: its round was changed",
    ),
    "a subclass": (
        lambda k, p, s: mean_of(k, p, s, FirstRecords(WALL, batch=10)),
        "records: .*; give one such as fp.poisson",
    ),
    "two adjacencies": (
        lambda k, p, s: jax.tree.map(
            jnp.add, mean_of(k, p, s), mean_of(k, p, s, fp.PublicSizes(WALL, rate=0.1))
        ),
        "nothing is proved of all of it: zeroed: .* removed: .* emptied: .* replaced: ",
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_what_would_get_past_the_accounting_is_refused(name):
    of_client, said = HOLES[name]
    with refused(said):
        certified(sending(of_client))


def test_the_room_for_records_is_public():
    with_it, without = (certified(sending(each), "server") for each in (plus_capacity, mean_of))
    assert with_it == without
    assert any("largest number of records" in text for text in with_it.assumptions)


def test_public_weights_are_for_private_means_of_records():
    weighting = fp.ByPublicSizes(WALL)
    for algorithm in (
        sending(mean_of, weighting=weighting),
        sending(lambda k, p, s: jax.tree.map(jnp.ones_like, p), weighting=weighting),
    ):
        with refused("weighting: public sizes cannot weight messages that are not private means"):
            certified(algorithm)
    public = partial(mean_of, records=fp.PublicSizes(WALL, rate=0.1))
    with refused("weighting: public sizes weight .* but the unit is 'client'"):
        of_clients = sending(public, unit="client", weighting=weighting)
        certified(of_clients)


def test_secret_and_public_sizes_do_not_compose():
    secret, public = (
        algorithm_of(fp.dp_sgd, three_ways(WALL)[way], 2.0) for way in ("secret", "public, Poisson")
    )
    with refused("nothing is proved of all of it: zeroed: .* removed: .* emptied: .* replaced: "):
        fp.certify_together([(secret, 2), (public, 2)], start(), regression(WALL), 1e-3)


MISFITS = {
    "records: drawn among 231, but client 0 holds 25; if": fp.fixed_size(231, 10),
    "records: drawn among 100, but client 3 holds 231; if": fp.poisson(100, 0.1),
    "records: drawn among 90, but client 3 holds 231; if": fp.everyone(90),
    "records: drawn among 231, but client 0": fp.with_replacement([1] * 231, 3),
    r"sizes\[0\]: 5, but the client holds 25; give federation.size": fp.PublicSizes(LEAF, batch=3),
    "sizes: 7; give 8, one a client": fp.PublicSizes(WALL[:-1], batch=3),
}


@tiers.every("said", MISFITS)
def test_sizes_that_do_not_fit_the_sampler_are_refused(said):
    algorithm = algorithm_of(fp.dp_sgd, MISFITS[said], 1.0)
    with refused(said):
        certified(algorithm)
