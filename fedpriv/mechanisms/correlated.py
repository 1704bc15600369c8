"""Mechanisms whose noise is correlated over the rounds of a run: a round takes back part of the noise of earlier ones.

P. Kairouz, B. McMahan, S. Song, O. Thakkar, A. Thakurta, Z. Xu, "Practical and Private (Deep) Learning without Sampling
or Shuffling", ICML 2021 (DP-FTRL); S. Denisov, B. McMahan, K. Rush, A. Smith, A. Thakurta, "Improved Differential
Privacy for SGD via Optimal Private Linear Operators on Adaptive Streams", NeurIPS 2022.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import checked, require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.trees import real
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import Bound, spread
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.noise_matrices import PROVED, Factorization, identity

OF_RUNS = "its noise is correlated over rounds, which hides a unit in whole runs alone"


class Correlation(NamedTuple):
    """What the noise of a `correlated` mechanism is made of.

    Attributes:
      mechanism: the mechanism that draws z_t.
      factorization: of the strategy matrix C; round t adds row t of C^-1 z.
      enclave: whether an enclave that the server cannot look into adds the noise.
    """

    mechanism: Mechanism
    factorization: Factorization
    enclave: bool


def correlated(
    mechanism: Mechanism, factorization: Factorization, *, enclave: bool = False
) -> Mechanism:
    """`mechanism`, whose noise in round t is row t of C^-1 z (in clip norms) instead of z_t.

    The engine remembers earlier noise, for each call of `cohort.sum`, and never shows it to the round.

    Formal guarantees: with C x the noisy sums are a function of C g + z, where g holds the bounded sums of all rounds.
    A unit that takes part in the rounds of a pattern moves C g by at most the sensitivity of C over all patterns that
    the sampler allows. So a run is one Gaussian mechanism, of the multiplier of `mechanism` over that sensitivity, also
    where later rounds depend on the noisy sums of earlier ones (Denisov et al. 2022, Theorem 2.1). It holds for those
    who see the noisy sums alone: whoever sums adds the noise, as clients cannot take back noise of earlier rounds.

    Args:
      mechanism: clips, and draws Gaussian noise for a sum.
      factorization: such as `fp.noise_matrices.blt(rounds=1000, separation=100)`.
      enclave: whether messages are summed, and the noise is added, where the server cannot look, which a certificate
        towards a server with secure aggregation then assumes.

    Raises:
      ValueError: a mechanism without Gaussian noise, or whose noise changes over the rounds or is correlated already.
    """
    plain = type(mechanism) is Mechanism and mechanism.correlation is None
    draws = plain and mechanism.at is not None and mechanism.noise == "gaussian"
    remedy = "give one with Gaussian noise, such as fp.gaussian(1.0, 1.0); correlate the parts of a joint one"
    require(draws and not mechanism.reason, "mechanism", mechanism, remedy)
    known = isinstance(factorization, Factorization)
    require(
        known, "factorization", factorization, "give such as fp.noise_matrices.tree(rounds=1000)"
    )
    enclave = checked("enclave", enclave, bool)

    def at(bound: Bound, sigma: float | jax.Array) -> Mechanism:
        other = mechanism.at(bound, sigma)  # type: ignore[misc]
        return other if other.reason else correlated(other, factorization, enclave=enclave)

    unsealed = mechanism._replace(
        certified_multiplier=0.0,
        reason=OF_RUNS,
        at=at,
        worst=None,
        whiten=None,
        correlation=Correlation(mechanism, factorization, enclave),
    )
    proved = constructed(mechanism) and type(factorization) in PROVED
    return sealed(unsealed) if proved else unsealed


def is_correlated(used: Mechanism) -> bool:
    """Whether its noise, or that of one of its parts, is correlated over rounds."""
    return used.correlation is not None or any(map(is_correlated, used.parts))


def first_memory(used: Mechanism, like: PyTree) -> PyTree:
    """What it remembers before the first round, for a sum of the shapes of `like`."""
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
