"""Measurements of what a program cannot prove of itself: how samplers draw, mechanisms clip, and how loud noise is.

For what is made by hand. Each statistical test of a correct one refuses it with probability 1e-6 at most.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.provenance import constructed
from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.described import scaling_of
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.privacy.sampling import Accounting
from fedpriv.proof.marks import Sum
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.record_marks import Mean
from fedpriv.rounds.samplers import Draw, Sampler
from fedpriv.rounds.scheduled_samplers import (
    AnySampler,
    ScheduledSampler,
    cohort_drawn,
    first_memories,
)
from fedpriv.testing.noise_around_sums import (
    Moved,
    check_moved,
    directions_of,
    noise_around,
)

FALSE_ALARM = 1e-6
_DRAWS = 2000  # of samplers and noise
_MOST_NUMBERS = 10**8  # of noise at a time
_NORMS = (1e-3, 0.5, 1.0, 1e3, 1e6)  # over the clip norm: of contributions before they are clipped
_MOST_ROUNDS = 1000  # of a schedule of cohorts
_LOOKED_AT = 8  # rounds throughout a run, of mechanisms
_TESTS = 64 * 19  # of a mechanism: so many directions, in so many rounds at most
_ROUNDING = 1e-3  # relative, of clip norms


def check_sampler(sampler: Sampler, seed: int) -> None:
    """Raises ValueError: a sampler made by hand draws somebody, or a pair, more often than its accounting says."""
    if constructed(sampler):
        return
    from scipy.stats import binom

    told, n = sampler.accounting, sampler.accounting.population
    _check_by_hand(sampler)
    if told.together is None:
        raise ValueError(
            f"sampler: made by hand, for {told}, which does not say how often two are drawn together; give it "
            "`together`, see fp.privacy.Sampling"
        )
    draws: Draw = jax.jit(jax.vmap(sampler.draw))(jax.random.split(jax.random.key(seed), _DRAWS))
    there = np.zeros((_DRAWS, n + 1))
    ids = np.asarray(jnp.where(draws.mask, draws.ids, n))
    np.add.at(there, (np.arange(_DRAWS)[:, None], ids), 1)
    there = there[:, :n]
    wrong_size = told.full and (there.sum(1) != told.most).any()
    if there.max() > told.repeats or wrong_size or there.sum(1).max() > told.most:
        raise ValueError(
            f"sampler: some draws are not {told}; make draw and accounting together, as `fp.poisson` does"
        )
    once = there > 0
    together = once.T.astype(float) @ once
    rates = np.where(np.eye(n), told.inclusion, told.together)
    excess = together - binom.isf(FALSE_ALARM / n**2, _DRAWS, rates)
    if excess.max() > 0:
        i, j = np.unravel_index(int(np.argmax(excess)), excess.shape)
        whom = f"client or record {i}" if i == j else f"{i} and {j} together"
        raise ValueError(
            f"sampler: {whom} is in {together[i, j] / _DRAWS:.3g} of the draws, but the accounting says "
            f"{rates[i, j]:.3g}; make draw and accounting together, as `fp.poisson` does"
        )


def check_schedule(sampler: ScheduledSampler, seed: int) -> None:
    """Raises ValueError: a schedule made by hand lets a client take part more often, or sooner, than it says."""
    if constructed(sampler):
        return
    from scipy.stats import binom

    told, n = sampler.accounting, sampler.accounting.population
    _check_by_hand(sampler)
    schedule: Any = told.turns
    apart, turns = schedule.apart, max(20, (schedule.most or 0) + 1)
    rounds = min(_MOST_ROUNDS, turns * max(apart, -(-n // told.most)))
    key, (begin,) = jax.random.key(seed), first_memories(sampler)

    def one(memory: PyTree, t: jax.Array) -> tuple[PyTree, Draw]:
        drawn, memory = cohort_drawn(sampler, key, key, t, memory)
        return memory, drawn

    draws: Draw = jax.jit(lambda: lax.scan(one, begin, jnp.arange(rounds))[1])()
    there = np.zeros((rounds, n + 1), int)
    ids = np.asarray(jnp.where(draws.mask, draws.ids, n))
    np.add.at(there, (np.arange(rounds)[:, None], ids), 1)
    there = there[:, :n]
    window = np.cumsum(np.vstack([np.zeros((apart, n), int), there]), 0)
    near = window[apart:] - window[:-apart]
    if there.max() > 1 or near.max() > 1 or there.sum(0).max() > schedule.of(rounds):
        raise ValueError(
            f"sampler: a client takes part sooner, or more often, than {told} allows; make draw and accounting "
            "together, as `fp.fixed_order` does"
        )
    turns, rate = schedule.of(rounds), told.of_a_round.inclusion
    often = int(there.sum(0).max())
    if often > binom.isf(FALSE_ALARM / n, turns, rate):
        raise ValueError(
            f"sampler: a client takes part in {often} of its {turns} turns, but the accounting says {rate:.3g} of "
            "them; make draw and accounting together, as `fp.cyclic_poisson` does"
        )


def _check_by_hand(sampler: AnySampler) -> None:
    told: Accounting = sampler.accounting
    if told.by_hand:
        raise ValueError(f"sampler: made by hand, for {told}; {told.by_hand}")
    if told.of_a_round.block is not None or told.of_a_round.lossy:
        raise ValueError(
            f"sampler: made by hand, for {told}; blocks of rounds, and noise that is lost, are not measured: use "
            "fp.random_allocation or fp.dropping"
        )
    for base in (Sampler, ScheduledSampler):
        if isinstance(sampler, base) and type(sampler).cohort is not base.cohort:
            raise ValueError(
                f"sampler: {type(sampler).__name__}.cohort draws, and not `draw`, which is measured; leave it out"
            )


def check_codec(release: Sum, seed: int) -> None:
    """Raises ValueError: a codec that says it is not lossy changes messages."""
    codec = features_of(release.step).codec
    if codec.lossy or constructed(codec):
        return
    keys = jax.random.split(jax.random.key(seed), 2)
    z = jax.random.normal(keys[0], (sum(s.size for s in jax.tree.leaves(release.like)),))
    for scale in (0.0, 1e-3, 1.0, 1e3):
        message = unflatten(scale * z, release.like)
        decoded = codec.code(keys[1], message).message
        if not all(map(np.array_equal, jax.tree.leaves(decoded), jax.tree.leaves(message))):
            raise ValueError(
                f"codec ({release.line}): the decoded message differs from the original, but it says lossy=False; "
                "give lossy=True"
            )


def check_mechanism(release: Sum | Mean, rounds: int, seed: int) -> None:
    """Raises ValueError: a mechanism made by hand clips less, or is quieter or louder, than it says in some round.

    Or its noise depends on the sum. So what is measured around 0 holds around every sum that was tried.
    """
    used: Any = release.step.mechanism
    known = type(used) in (Mechanism, Dynamic) and constructed(used)
    if known and (type(used) is Mechanism or constructed(used.start)):
        return
    if getattr(used, "integers", None) is not None:
        _check_integers(release, rounds)
        return
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), release.like)
    most = release.step.sampling.accounting.most
    measured = jax.jit(lambda t: _measured(used.in_round(t), zeros, most, seed))
    for t in _rounds(used, rounds):
        told, what = float(used.multipliers(t + 1)[-1][1]), f"mechanism ({release.line}), round {t}"
        if not told > 0:
            continue
        if isinstance(release, Mean) and hasattr(used.in_round(t), "for_batch"):
            raise ValueError(
                f"{what}: `for_batch` looks at the gradients that it bounds; leave it out and fix the bound "
                "beforehand"
            )
        noise, far, finite, moved = measured(t)
        check_moved(what, moved)
        _check_noise(what, told, used.noise, noise, far, finite)


def _check_integers(release: Sum | Mean, rounds: int) -> None:
    """Raises ValueError: a mechanism made by hand declares more, or less, than the noise that its integers get.

    Nothing else of it can be wrong: whatever it clips, the library rounds it within a bound, and draws the noise.
    """
    used: Any = release.step.mechanism
    integers = features_of(release.step).integer_sum(dimension(release.like))
    assert integers is not None
    there = integers.noise_multiplier
    for t in _rounds(used, rounds):
        told = float(used.multipliers(t + 1)[-1][1])
        if told > 0:
            _compare(f"mechanism ({release.line}), round {t}", there, there, told, 1.0, 1.0)


def _rounds(used: Any, rounds: int) -> list[int]:
    """The first ones, some throughout the run, its last one, and those in which a schedule's pieces begin."""
    starts = np.cumsum([0, *(steps for steps, _ in used.multipliers(rounds))])[:-1]
    throughout = np.linspace(0, rounds - 1, _LOOKED_AT).astype(int)
    some = {0, 1, 2, *throughout.tolist(), *starts[:8].tolist()}
    return sorted(t for t in some if t < rounds)


def _measured(
    used: Any, zeros: PyTree, most: int, seed: int
) -> tuple[jax.Array, jax.Array, jax.Array, Moved]:
    """(noise f32[draws, d], bounded contributions f32[n, d], whether those of NaN and infinity are finite, `Moved`)."""
    d = dimension(zeros)
    draws = int(np.clip(_MOST_NUMBERS // d, 100, _DRAWS))
    keys = jax.random.split(jax.random.key(seed), draws)
    noise = lax.map(lambda key: flatten(used.perturb(key, zeros)), keys)
    bounds = jax.tree.leaves(used.clip_norm)
    largest = jnp.max(jnp.stack([jnp.asarray(c, jnp.float32) for c in bounds]))
    largest, norm = jnp.where(jnp.isfinite(largest), largest, 1.0), jnp.linalg.norm
    moved = noise_around(used, zeros, (largest, most), keys, noise, seed)
    noise -= noise.mean(0)
    quietest = jnp.zeros(d).at[jnp.argmin(noise.std(0))].set(1.0)

    def bounded(u: jax.Array) -> jax.Array:
        """By both ways in which a contribution is bounded: a client's message, and a record's gradient by its norms."""
        tree = unflatten(u, zeros)
        ways = [used.clip(tree)[0]]
        if scaling := scaling_of(used):
            own = jax.tree.map(lambda x: norm(x.reshape(-1)), tree)
            norms_of = scaling.norms
            scales = scaling.scales(norms_of(tree) if norms_of else own)
            ways.append(jax.tree.map(lambda x, s: jnp.where(s == 0, 0.0, s * x), tree, scales))
        return jnp.stack(list(map(flatten, ways)))

    ways = [*directions_of(zeros, seed), quietest]
    tried = [c * largest * u / norm(u) for u in ways for c in _NORMS]
    far = lax.map(bounded, jnp.stack([*tried, *_without_a_norm(zeros)]))
    odd = far[len(tried) :]
    finite = jnp.all(jnp.isfinite(odd))
    far = far.at[len(tried) :].set(jnp.where(finite, odd, 0.0))
    return noise, far.reshape(-1, d), finite, moved


def _without_a_norm(zeros: PyTree) -> list[jax.Array]:
    """Contributions with NaN or infinity in all of them, in a tensor, or in one of its entries."""
    ends = np.cumsum([0, *(leaf.size for leaf in jax.tree.leaves(zeros))])
    tensors = list(pairwise(ends.tolist()))[:8]
    places = [slice(None), *(slice(*ends) for ends in tensors)]
    places += [slice(middle, middle + 1) for a, b in tensors for middle in (a, (a + b) // 2)]
    ones = jnp.ones(ends[-1])
    return [ones.at[at].set(x) for at in places for x in (math.nan, math.inf, -math.inf)]


def _check_noise(
    what: str, told: float, kind: str, noise: Any, far: Any, finite: jax.Array
) -> None:
    """Raises ValueError: noise f32[draws, d] hides less, or more, of the contributions f32[n, d] than is told."""
    noise, far = np.asarray(noise, np.float64), np.asarray(far, np.float64)
    draws, d = noise.shape
    quietest = np.argmin(noise.std(0))
    if kind == "laplace":
        reach = max(np.abs(far).sum(1).max(), np.finfo(np.float32).tiny)
        quiet, last = np.abs(noise).mean() / reach, np.abs(noise[:, quietest]).mean() / reach
        bounds, loud = _of_means, quiet
    else:
        each = [_loudness(noise, u) for u in far]
        along = far[:, quietest] ** 2 > 0.999 * (far**2).sum(1)  # the least of d
        quiet = min(
            (m for m, alone in zip(each, along, strict=True) if not alone), default=math.inf
        )
        last = min((m for m, alone in zip(each, along, strict=True) if alone), default=math.inf)
        bounds, loud = _of_deviations, min(quiet, last)
    low, high = bounds(draws, _TESTS)
    _compare(what, quiet, loud, told, low, high)
    _compare(what, last, 0.0, told, bounds(draws, _TESTS * d)[0], high)
    if not finite:
        raise ValueError(f"{what}: a contribution with NaN or infinity is not bounded; make it 0")


def _compare(
    what: str, quiet: float, loud: float, declared: float, low: float, high: float
) -> None:
    if quiet < low * declared * (1 - _ROUNDING):
        raise ValueError(
            f"{what}: it declares a multiplier of {declared:.4g}, but its noise was measured as at most {quiet:.3g} "
            "times the largest contribution; add the noise, clip, or declare less"
        )
    if math.isfinite(high) and loud > high * declared * (1 + _ROUNDING):
        raise ValueError(
            f"{what}: it declares a multiplier of {declared:.4g}, but its noise was measured as {loud:.3g} times the "
            "largest contribution; declare that"
        )


def _loudness(noise: np.ndarray, u: np.ndarray) -> float:
    """Deviation of noise (f64[draws, d]) along u over its length: at least the multiplier of hiding u.

    By Cauchy and Schwarz, (u'u)^2 <= (u' S u)(u' S^-1 u) for any covariance S.
    """
    square = float(u @ u)
    return float(np.sqrt(np.mean((noise @ u) ** 2))) / square if square else math.inf


def _of_deviations(draws: int, tests: int) -> tuple[float, float]:
    """Between which the deviation of so many normals over the true one lies."""
    from scipy.stats import chi2

    tail = FALSE_ALARM / tests
    low, high = chi2.ppf(tail, draws - 1), chi2.isf(tail, draws - 1)
    return math.sqrt(low / draws), math.sqrt(high / draws)


def _of_means(draws: int, tests: int) -> tuple[float, float]:
    """Between which the mean of so many exponentials over the true one lies."""
    from scipy.stats import gamma

    tail = FALSE_ALARM / tests
    low, high = gamma.ppf(tail, draws - 1), gamma.isf(tail, draws)
    return float(low / draws), float(high / draws)
