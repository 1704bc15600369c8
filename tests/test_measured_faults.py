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
    ["draws that the accounting does not know", "a mechanism of half the noise"],
)
def test_an_algorithm_is_measured(name):
    algorithm, said = FAULTS[name]
    with refused(said):
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)
