"""Mechanisms whose noise is correlated over the rounds of a run: a round takes back part of the noise of earlier ones.

P. Kairouz, B. McMahan, S. Song, O. Thakkar, A. Thakurta, Z. Xu, "Practical and Private (Deep) Learning without Sampling
or Shuffling", ICML 2021 (DP-FTRL); S. Denisov, B. McMahan, K. Rush, A. Smith, A. Thakurta, "Improved Differential
Privacy for SGD via Optimal Private Linear Operators on Adaptive Streams", NeurIPS 2022.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.trees import real
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import Bound, spread
from fedpriv.mechanisms.described import know, worst_case_of
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.noise_matrices import PROVED, Factorization, identity
from fedpriv.privacy.strategy_sensitivity import block_sensitivity, most_participations
from fedpriv.proof.noise import Floats

OF_RUNS = "its noise is correlated over rounds, which hides a unit in whole runs alone"


WhoSums: TypeAlias = Literal["server", "enclave"]


class Correlation(NamedTuple):
    """What the noise of a `correlated` mechanism is made of.

    Attributes:
      mechanism: the mechanism that draws z_t.
      factorization: of the strategy matrix C; round t adds row t of C^-1 z.
      adder: "server", or "enclave" where the server cannot look into what adds the noise.
    """

    mechanism: Mechanism
    factorization: Factorization
    adder: WhoSums


def correlated(
    mechanism: Mechanism,
    factorization: Factorization,
    *,
    adder: WhoSums = "server",
    enclave: None = None,
) -> Mechanism:
    """`mechanism` with correlated noise: row t of C^-1 z (in clip norms) in round t, instead of z_t.

    The engine remembers earlier noise for each call of `cohort.sum`. The round never sees it.

    Formal guarantees: with C x the noisy sums are a function of C g + z, where g holds the bounded sums of all rounds.
    A unit that takes part in the rounds of a pattern moves C g by at most the sensitivity of C over all patterns that
    the sampler allows. So a run is one Gaussian mechanism, of the multiplier of `mechanism` over that sensitivity, also
    where later rounds depend on the noisy sums of earlier ones (Denisov et al. 2022, Theorem 2.1). It holds for those
    who see the noisy sums alone: whoever sums adds the noise, as clients cannot take back noise of earlier rounds.

    Args:
      mechanism: one with Gaussian noise on a sum.
      factorization: such as `fp.noise_matrices.blt(rounds=1000, separation=100)`.
      adder: who sums the messages and adds the noise: the server, or an enclave that it cannot look into, as
        certificates towards a server with secure aggregation then assume.
      enclave: now `adder="enclave"`; it goes with 1.0.

    Raises:
      ValueError: a mechanism without Gaussian noise, or with noise that changes over the rounds or is already
        correlated.
    """
    plain = type(mechanism) is Mechanism and mechanism.correlation is None
    draws = plain and mechanism.at is not None and mechanism.noise == "gaussian"
    remedy = "give one with Gaussian noise, such as fp.gaussian(1.0, 1.0); correlate the parts of a joint one"
    require(draws and not mechanism.reason, "mechanism", mechanism, remedy)
    known = isinstance(factorization, Factorization)
    require(
        known,
        "factorization",
        factorization,
        "give one such as fp.noise_matrices.tree(rounds=1000)",
    )
    remedy = 'give adder="enclave" where it was True, else leave it out'
    require(enclave is None, "enclave", enclave, remedy)
    adder = checked("adder", adder, WhoSums)

    def at(bound: Bound, sigma: float | jax.Array) -> Mechanism:
        other = mechanism.at(bound, sigma)  # type: ignore[misc]
        return other if other.reason else correlated(other, factorization, adder=adder)

    def perturb(key: Key, total: PyTree) -> PyTree:
        return mechanism.perturb(key, total)

    unsealed = mechanism._replace(
        perturb=perturb,
        certified_multiplier=0.0,
        reason=OF_RUNS,
        at=at,
        correlation=Correlation(mechanism, factorization, adder),
    )
    proved = constructed(mechanism) and type(factorization) in PROVED
    return sealed(unsealed) if proved else unsealed


def is_correlated(used: Mechanism) -> bool:
    """Whether a mechanism's noise, or that of one of its parts, is correlated over rounds."""
    return used.correlation is not None or any(map(is_correlated, used.parts))


def adder_of(used: Mechanism) -> WhoSums:
    """Who adds the noise of one that is correlated over rounds: an enclave where every part that is says so."""
    if used.correlation is not None:
        return "enclave" if used.correlation.adder == "enclave" else "server"
    by_server = any(is_correlated(part) and adder_of(part) == "server" for part in used.parts)
    return "server" if by_server else "enclave"


def first_memory(used: Mechanism, like: PyTree) -> PyTree:
    """What correlated noise remembers before the first round, for a sum of the shapes of `like`."""
    if used.parts:
        return tuple(map(first_memory, used.parts, like))
    return () if used.correlation is None else used.correlation.factorization.init(like)


def perturbed_in_run(
    used: Mechanism, key: Key, total: PyTree, memory: PyTree, t: jax.Array
) -> tuple[PyTree, PyTree]:
    """(The noisy sum of round t, what is remembered after it)."""
    if used.parts:
        keys = jax.random.split(key, len(used.parts))
        each = zip(used.parts, keys, total, memory, strict=True)
        noisy, after = zip(*(perturbed_in_run(*part, t) for part in each), strict=True)
        return noisy, after
    if used.correlation is None:
        return used.perturb(key, total), ()
    mechanism, factorization, _ = used.correlation
    if factorization == identity():
        return mechanism.perturb(key, total), memory
    total = real(total)
    nothing = jax.tree.map(jnp.zeros_like, total)
    z = mechanism.at(1.0, mechanism.noise_multiplier).perturb(key, nothing)
    noise, after = factorization.next(memory, z, t)
    bounds = spread(mechanism.clip_norm, total)
    return jax.tree.map(lambda s, n, c: s + (c * n).astype(s.dtype), total, noise, bounds), after


class Participation(NamedTuple):
    """Which rounds of a run a unit may be in, for correlated noise.

    Attributes:
      separation: fewest rounds from one to the next.
      most: most of them; None is as many as fit.
      block: rounds of the blocks of which it is in one round at most; None where there are none.
    """

    separation: int
    most: int | None
    block: int | None = None


def run_sensitivity(
    factorization: Factorization, rounds: int, participation: Participation
) -> float:
    """As `Factorization.sensitivity`, once for every run of a matrix of ours: every view and evaluation asks for it.

    A matrix of somebody's own has its own word, that for rounds that are as far apart.
    """
    if type(factorization) not in PROVED:
        return factorization.sensitivity(rounds, participation.separation, participation.most)
    return _remembered_sensitivity(factorization, rounds, participation)


@lru_cache(maxsize=1024)
def _remembered_sensitivity(
    factorization: Factorization, rounds: int, participation: Participation
) -> float:
    separation, most, block = participation
    if block is None or factorization == identity():
        return factorization.sensitivity(rounds, separation, most)
    return block_sensitivity(factorization.strategy(rounds), block)


def whole_run(used: Mechanism, rounds: int, participation: Participation) -> Mechanism:
    """The mechanism of a whole run, for audits: contributions and sums are trees of [rounds, ...].

    Its noise is that of the engine, round by round. Its worst contribution is that of the worst rounds found among
    those that are equally far apart, or block by block.

    Args:
      used: correlated; not joint.
      participation: of the unit.
    """
    assert used.correlation is not None
    mechanism, factorization, _ = used.correlation

    def perturb(key: Key, total: PyTree) -> PyTree:
        def step(memory: PyTree, t: jax.Array) -> tuple[PyTree, PyTree]:
            row = jax.tree.map(lambda leaf: leaf[t], total)
            noisy, memory = perturbed_in_run(used, jax.random.fold_in(key, t), row, memory, t)
            return memory, noisy

        like = jax.tree.map(lambda leaf: leaf[0], total)
        return lax.scan(step, first_memory(used, like), jnp.arange(rounds))[1]

    hardest: Any = worst_case_of(mechanism)

    def whiten(total: PyTree) -> jax.Array:
        seen = jnp.asarray(factorization.strategy(rounds), jnp.float32)
        return (seen @ jax.vmap(hardest.whiten)(total)).reshape(-1)

    def worst(d: int) -> PyTree:
        there = _worst_rounds(factorization.strategy(rounds), participation)
        u = hardest.worst(d)
        return jax.tree.map(lambda leaf: jnp.tensordot(there, leaf, 0), u)

    def clip(total: PyTree) -> tuple[PyTree, jax.Array]:
        bounded, norms = jax.vmap(mechanism.clip)(total)
        return bounded, jnp.max(norms)

    sensitivity = run_sensitivity(factorization, rounds, participation)
    of_a_run = mechanism._replace(
        clip=clip,
        perturb=perturb,
        certified_multiplier=mechanism.certified_multiplier / sensitivity,
        at=None,
        correlation=used.correlation,
    )
    return know(of_a_run, None, hardest._replace(worst=worst, whiten=whiten))


def _worst_rounds(c: Floats, participation: Participation) -> Floats:
    """f64[rounds], 1 in the rounds of a unit that show the most, of those with equal distances or found by blocks."""
    rounds, (separation, most, block) = c.shape[1], participation
    if block is not None:
        patterns = [_by_blocks(c, block, first) for first in range(min(block, rounds))]
        return max(patterns, key=lambda there: float(np.linalg.norm(c @ there)))
    k = most_participations(rounds, separation, most)
    patterns = []
    for step in range(separation, rounds // k + separation + 1):
        for begin in range(min(step, rounds)):
            there = np.zeros(rounds)
            there[begin::step][:k] = 1
            patterns.append(there)
    return max(patterns, key=lambda there: float(np.linalg.norm(c @ there)))


def _by_blocks(c: Floats, block: int, first: int) -> Floats:
    """f64[rounds], 1 in a round of each block: `first`, then the one that adds the most to those before."""
    gram = c.T @ c
    there = np.zeros(len(gram))
    there[first] = 1
    for begin in range(block, len(gram), block):
        adds = np.diag(gram) + 2 * gram @ there
        there[begin + np.argmax(adds[begin : begin + block])] = 1
    return there
