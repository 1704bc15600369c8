"""Noise, clipping and draws that are not what is declared are measured, and refused by name.

Of the statistical tests behind them each refuses a sound algorithm with probability 1e-6.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
import tiers
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    POISSON,
    SIGMA,
    D,
    fed_avg,
    measured,
    scaffold,
)
from planted_rounds import Planted
from small import refused

import fedpriv as fp
from fedpriv.core.trees import flatten, unflatten
from fedpriv.privacy import Poisson
from fedpriv.testing.noise_around_sums import noise_around

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def alike(key, total):
    """Noise of one key for every tensor, so that differences between tensors are in clear."""
    noise = jax.tree.map(lambda x: CLIP * SIGMA * jax.random.normal(key, x.shape), total)
    return jax.tree.map(jnp.add, total, noise)


def sparing(key, total):
    noise = CLIP * SIGMA * jax.random.normal(key, (D,)).at[5].set(0.0)
    return jax.tree.map(jnp.add, total, unflatten(noise, total))


def noise_of(scale, used=GAUSSIAN):
    """A mechanism whose noise is multiplied by `scale(sum)`, a number or a vector."""

    def perturb(key, total):
        s = flatten(total)
        noise = flatten(used.perturb(key, jax.tree.map(jnp.zeros_like, total)))
        return jax.tree.map(jnp.add, total, unflatten(scale(s) * noise, total))

    return used._replace(perturb=perturb, seal=())


def of_norm(s):
    return jnp.linalg.norm(s) / CLIP


MOST = POISSON.accounting.most


class Louder(NamedTuple):
    """What noise depends on, and how."""

    kind: str
    scale: Callable


SHRINKING = lambda s: 1 / (1 + of_norm(s))  # noqa: E731
BY_NORM = {
    "shrinks with its norm": SHRINKING,
    "grows with its norm": lambda s: 1 + of_norm(s),
    "shrinks beyond what one client adds": lambda s: jnp.where(of_norm(s) > 1.01, 0.26, 1.0),
    "shrinks where nearly all add the same": lambda s: jnp.where(
        of_norm(s) > 0.9 * MOST, 0.26, 1.0
    ),
    "shrinks a little": lambda s: 1 - 0.01 * jnp.tanh(of_norm(s)),
}
BY_COORDINATE = {
    "shrinks with one coordinate": lambda s: 1 / (1 + jnp.abs(s[7])),
    "shrinks where a coordinate is large": lambda s: 1 / (1 + jnp.abs(s)),
    "is along it": lambda s: jnp.abs(s) / jnp.maximum(jnp.abs(s).max(), 1e-9) + (s == 0).all(),
}
BY_COORDINATE |= {
    "has its sign": lambda s: jnp.where(s < 0, -1.0, 1.0),
    "shrinks where a coordinate is negative": lambda s: jnp.where(s < 0, 0.26, 1.0),
    "shrinks where they add up to more than nothing": lambda s: jnp.where(s.sum() > 0.1, 0.26, 1.0),
}
BY_THE_SUM = {
    name: Louder(by, scale)
    for by, group in {"norm": BY_NORM, "coordinate": BY_COORDINATE}.items()
    for name, scale in group.items()
}


def rounding(key, total):
    """Noise is not what depends on the sum, but what is left of both."""
    return jax.tree.map(jnp.round, GAUSSIAN.perturb(key, total))


DEPENDS = r"mechanism .*, round 0: its noise depends on the sum: .* draw it from the key and shapes"


@tiers.every("name", BY_THE_SUM)
def test_noise_by_the_sum(name):
    """Of clients' messages, also where hundreds add up; exact, so that nothing correct is refused by chance."""
    with refused(DEPENDS):
        measured(fed_avg(noise_of(BY_THE_SUM[name].scale)))


ELSEWHERE = {
    "of records' gradients": scaffold(mechanism=noise_of(SHRINKING)),
    "of another law": fed_avg(noise_of(SHRINKING, fp.laplace(CLIP, SIGMA))),
    "of a rounded sum": fed_avg(GAUSSIAN._replace(perturb=rounding)),
    "that may be correlated": fed_avg(
        fp.correlated(noise_of(SHRINKING), fp.noise_matrices.identity()), fp.fixed_order(CLIENTS, 3)
    ),
}


@tiers.every("name", ELSEWHERE, kind=lambda algorithm: algorithm.unit)
def test_noise_by_the_sum_elsewhere(name):
    with refused(DEPENDS):
        measured(ELSEWHERE[name])


BY_HAND = GAUSSIAN._replace(seal=())


def test_noise_that_is_the_same_around_every_sum_passes():
    measured(fed_avg(BY_HAND))


@pytest.mark.slow
def test_it_passes_around_a_sum_of_a_million():
    """Whose last digits are worth more than those of the noise."""
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    keys = jax.random.split(jax.random.key(0), 400)
    noise = jax.jit(jax.vmap(lambda key: flatten(BY_HAND.perturb(key, zeros))))(keys)
    around = noise_around(BY_HAND, zeros, (jnp.float32(CLIP), 10**6), keys, noise, 1)
    assert len(around.norms) == 100
    assert not around.wrong.any()


def drawing(scale):
    """fp.mechanism with noise made by hand."""

    def draw(key, like):
        keys = dict(zip(like, jax.random.split(key, len(like)), strict=True))
        normal = lambda k, x: scale(x) * jax.random.normal(k, x.shape, x.dtype)  # noqa: E731
        return jax.tree.map(normal, keys, like)

    noise = fp.noise.isotropic()._replace(draw=draw, seal=())
    return fp.mechanism(fp.clipping.flat(), noise, clip_norm=CLIP, noise_multiplier=SIGMA)


@pytest.mark.parametrize(
    "scale",
    [
        lambda x: 1 / (1 + jnp.abs(x)),
        lambda x: jnp.where(x.sum() > 1e9, 0.26, 1.0),
        jax.jit(jnp.sign),
    ],
    ids=["size", "seldom", "sign"],
)
def test_noise_for_fp_mechanism_that_reads_the_sum(scale):
    """It is seen in the program, at however large a sum it would differ, before anything is certified."""
    with refused("noise: `draw` computes with the values of the sum, .*; draw from the key and"):
        fp.certify(fed_avg(drawing(scale)), PARAMS, FEDERATION, 1, 1e-3)


@pytest.mark.slow
def test_noise_for_fp_mechanism_that_reads_shapes():
    measured(fed_avg(drawing(lambda x: jnp.ones_like(x))))
    certificate = fp.certify(fed_avg(drawing(lambda x: 1.0)), PARAMS, FEDERATION, 1, 1e-3)
    assert certificate.basis == "declared"


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
    "draws that the accounting does not know": Planted(
        fed_avg(sampler=drawn_by_hand(0.1)),
        "sampler: .* is in 0.* of the draws, but the accounting says 0",
        "draws",
    ),
    "a mechanism of half the noise": Planted(
        fed_avg(fp.gaussian(CLIP, SIGMA / 2)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0.69",
        "level",
    ),
    "a mechanism that does not clip": Planted(
        fed_avg(GAUSSIAN._replace(clip=lambda u: (u, jnp.float32(0)))),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most .* the largest contr",
        "clip",
    ),
    "a mechanism of twice the noise": Planted(
        fed_avg(fp.gaussian(CLIP, 2 * SIGMA)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as 2.7",
        "level",
    ),
    "a mechanism that ignores its key": Planted(
        fed_avg(GAUSSIAN._replace(perturb=lambda key, s: GAUSSIAN.perturb(jax.random.key(0), s))),
        "mechanism .*: it declares a multiplier of 1.4, but",
        "law",
    ),
    "a mechanism that spares a coordinate": Planted(
        fed_avg(GAUSSIAN._replace(perturb=sparing)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0 times",
        "law",
    ),
    "a mechanism with one key for all leaves": Planted(
        fed_avg(GAUSSIAN._replace(perturb=alike)),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most .* the largest contr",
        "law",
    ),
    "a schedule of one's own that is quieter": Planted(
        fed_avg(Quieter()),
        "mechanism .*: it declares a multiplier of 1.4, but its noise was measured as at most 0.1",
        "later rounds",
    ),
}


@tiers.every("name", FAULTS, kind=lambda planted: planted.rule)
def test_a_fault_is_refused(name):
    algorithm, said, _ = FAULTS[name]
    with refused(said):
        measured(algorithm)


@tiers.every("name", ["draws that the accounting does not know", "a mechanism of half the noise"])
def test_an_algorithm_is_measured(name):
    algorithm, said, _ = FAULTS[name]
    with refused(said):
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)
