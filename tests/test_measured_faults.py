"""Noise, clipping and draws that are not what is declared are measured, and refused by name.

Of the statistical tests behind them each refuses a sound algorithm with probability 1e-6.
"""

import jax
import jax.numpy as jnp
import pytest
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    SIGMA,
    D,
    by_hand,
    declaring,
    fed_avg,
    measured,
)
from small import refused

import fedpriv as fp
from fedpriv.core.trees import unflatten
from fedpriv.privacy import Poisson

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def alike(key, total):
    """Noise of one key for every tensor, so that differences between tensors are in clear."""
    noise = jax.tree.map(lambda x: CLIP * SIGMA * jax.random.normal(key, x.shape), total)
    return jax.tree.map(jnp.add, total, noise)


def sparing(key, total):
    noise = CLIP * SIGMA * jax.random.normal(key, (D,)).at[5].set(0.0)
    return jax.tree.map(jnp.add, total, unflatten(noise, total))


class Quieter:
    """A tenth of the noise that it tells the ledger of."""

    noise, reason, clip_norm = "gaussian", "", CLIP

    def in_round(self, t):
        return GAUSSIAN.at(CLIP, SIGMA / 10)

    def multipliers(self, rounds):
        return ((rounds, SIGMA),)


def drawn_by_hand(declared, rate=0.4):
    """A sampler whose draw and accounting are not of one piece."""
    honest = fp.poisson(CLIENTS, rate, 5)
    return fp.Sampler(
        honest.draw, honest.slots, honest.expected_size, Poisson(CLIENTS, declared, 5)
    )


FAULTS = {
    # by hand, as in other libraries: what is declared is measured
    "no noise": (
        by_hand(scale=0.0),
        "releases: it declares a multiplier of 1.4, but its noise was measured as at m",
    ),
    "half of the declared noise": (
        by_hand(scale=SIGMA / 2, releases=declaring(mechanism=GAUSSIAN)),
        "declares a multiplier of 1.4, but",
    ),
    "twice the declared noise": (
        by_hand(scale=2 * SIGMA, releases=declaring(mechanism=GAUSSIAN)),
        "declares a multiplier of 1.4, but",
    ),
    "no clip": (
        by_hand(clip=None, times=100.0),
        "releases: it declares a multiplier of 1.4, but its noise was measured as at most",
    ),
    "noise of a constant key": (
        by_hand(noise_key=lambda key: jax.random.key(0)),
        "releases: it declares a multiplier of 1.4, but its noise was measured as at most .*e-",
    ),
    "another rate is declared": (
        by_hand(releases=declaring(sampling=Poisson(CLIENTS, 0.1, 5))),
        "they declare the unit client in Poisson.*0.1.*, but the round protects the unit client in Poisson.*0.4",
    ),
    "more is declared than there is": (
        fed_avg(releases=declaring(2.8)),
        "they declare a multiplier of 2.8, but the round's own is 1.4; leave out `releases`",
    ),
    "draws that the accounting does not know": (
        fed_avg(sampler=drawn_by_hand(0.1)),
        "sampler: .* is in 0.* of the draws, but the accounting says 0",
    ),
    "a mechanism that does not clip": (
        fed_avg(GAUSSIAN._replace(clip=lambda u: (u, jnp.float32(0)))),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most .* the largest contr",
    ),
    "a mechanism of half the noise": (
        fed_avg(fp.gaussian(CLIP, SIGMA / 2)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0.69",
    ),
    "a mechanism of twice the noise": (
        fed_avg(fp.gaussian(CLIP, 2 * SIGMA)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as 2.7",
    ),
    "a mechanism that ignores its key": (
        fed_avg(GAUSSIAN._replace(perturb=lambda key, s: GAUSSIAN.perturb(jax.random.key(0), s))),
        "mechanism .*: it declares a multiplier of 1.4, but",
    ),
    "a mechanism that spares a coordinate": (
        fed_avg(GAUSSIAN._replace(perturb=sparing)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0 times",
    ),
    "a mechanism with one key for all leaves": (
        fed_avg(GAUSSIAN._replace(perturb=alike)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most .* the largest contr",
    ),
    "a schedule of one's own that is quieter": (
        fed_avg(Quieter()),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0.1",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name):
    algorithm, said = FAULTS[name]
    with refused(said):
        measured(algorithm)


@pytest.mark.parametrize(
    "name",
    ["no noise", "draws that the accounting does not know", "a mechanism of half the noise"],
)
def test_an_algorithm_is_measured(name):
    algorithm, said = FAULTS[name]
    with refused(said):
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)
