"""White-box audit of what a view sees: draws of the release on two neighbours, and what tells them apart.

A distinguisher that beats an (epsilon, delta)-private mechanism refutes its privacy: the lower bounds on epsilon are
those of Clopper-Pearson intervals (M. Jagielski, J. Ullman, A. Oprea, NeurIPS 2020, arXiv:2006.07709) and of Gaussian
differential privacy (M. Nasr et al., USENIX Security 2023, arXiv:2302.07956), as `jax_privacy.auditing` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.privacy import Release
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.sampling import WithReplacement
from fedpriv.types import Key

_CHUNK = 2000  # draws side by side


class Scores(NamedTuple):
    """Log-likelihood ratios of a view's observations.

    Attributes:
      present: f64[draws], where the unit was there.
      absent: f64[draws], where it was not, or another in its place.
      relation: of the two neighbours, as the certificate's.
      gaussian: whether all noise is Gaussian.
    """

    present: np.ndarray
    absent: np.ndarray
    relation: str
    gaussian: bool


class LowerBounds(NamedTuple):
    """On epsilon, each wrong with probability `significance` at most.

    Attributes:
      clopper_pearson: for any mechanism.
      gaussian: for one that is no worse than some Gaussian mechanism, as composed and subsampled Gaussian ones nearly
        are; 0 where other noise is in it, or delta is 0.
      significance: 1 - confidence.
    """

    clopper_pearson: float
    gaussian: float
    significance: float


def draw_scores(
    releases: Sequence[Release], view: str, *, draws: int, seed: int = 0, dimension: int = 4
) -> Scores:
    """Runs the mechanisms of `releases` on a unit in their worst direction, and without it.

    What is drawn is the mechanism's own code, clipping included, once per step of every draw; the rest of the cohort is
    known to the adversary and cancels. Scores are exact log-likelihood ratios of what the view sees (with noise on Haar
    coefficients of a d that is no power of two nearly so), which is the best there is.

    Args:
      view: one of `fedpriv.privacy.VIEWS`.
      draws: of each neighbour.
      dimension: coordinates, where the mechanism does not fix them.

    Raises:
      ValueError: a release of the view that brings no mechanism, or one without noise.
    """
    seen = [release for release in releases if release.view == view]
    relation = relation_of(seen, view)
    parts = [_part(release, view, relation, dimension) for release in seen]

    def one(key: Key, present: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(parts))
        return sum((part(k, present) for part, k in zip(parts, keys, strict=True)), jnp.zeros(()))

    @jax.jit
    def chunk(key: Key, present: jax.Array) -> jax.Array:
        return jax.vmap(one, (0, None))(jax.random.split(key, min(_CHUNK, draws)), present)

    def many(key: Key, present: bool) -> np.ndarray:
        chunks = -(-draws // _CHUNK)
        found = [chunk(jax.random.fold_in(key, i), jnp.bool_(present)) for i in range(chunks)]
        # Rounding to a grid keeps float32's low bits from telling neighbours apart: they are no part of the mechanism.
        return np.round(np.concatenate([np.asarray(x, np.float64) for x in found])[:draws], 3)

    with_key, without_key = jax.random.split(jax.random.key(seed))
    gaussian = all(release.noise == "gaussian" for release in seen)
    return Scores(many(with_key, True), many(without_key, False), relation, gaussian)


def lower_bounds(scores: Scores, delta: float, significance: float = 0.05) -> LowerBounds:
    """Lower bounds on epsilon at `delta` from scores."""
    from jax_privacy.auditing import CanaryScoreAuditor, Split

    auditor = CanaryScoreAuditor(scores.present, scores.absent)
    options = {"one_sided": False, "threshold_strategy": Split(seed=0)}
    return LowerBounds(
        float(auditor.epsilon_clopper_pearson(significance, delta, **options)),
        float(auditor.epsilon_from_gdp(significance, delta))
        if delta > 0 and scores.gaussian
        else 0.0,
        significance,
    )


def _part(
    release: Release, view: str, relation: str, dimension: int
) -> Callable[[Key, jax.Array], jax.Array]:
    """(key, present) -> log-likelihood ratio of all steps of one release."""
    used = release.mechanism
    if used is None or used.worst is None or used.whiten is None or not release.multiplier > 0:
        why = release.reason or "the release brings no mechanism"
        raise ValueError(f"release: there is nothing to draw for {release.view} ({why})")
    hidden = view == "third_party" or release.unit == "record"
    own = release.sampling.rate if hidden else 1.0
    known = release.participation if hidden else release.sampling
    copies = release.sampling if isinstance(release.sampling, WithReplacement) else None
    # What the view sees may have more or less noise than the mechanism; the contribution is scaled instead.
    strength = float(used.multiplier) / release.multiplier / (copies.size if copies else 1)
    d = used.dimension or dimension
    bound = used.clip(jax.tree.map(lambda u: 10 * u, used.worst(d)))[0]
    nothing = jax.tree.map(jnp.zeros_like, bound)
    v = strength * used.whiten(bound)
    ratio = _gaussian_ratio if release.noise == "gaussian" else _laplace_ratio

    def step(key: Key, present: jax.Array, times: jax.Array) -> jax.Array:
        noise_key, own_key = jax.random.split(key)
        joins = jax.random.bernoulli(own_key, own) if own < 1 else jnp.bool_(True)
        sign = jnp.where(present, 1.0, -1.0 if relation == "replace_one" else 0.0)
        moved = times * jnp.where(joins, sign, 0.0) * v
        z = used.whiten(used.perturb(noise_key, nothing)) + moved
        there = _mixed(ratio(z, times * v), own)
        if relation == "replace_one":
            return there - _mixed(ratio(z, -times * v), own)
        return there

    def round(key: Key, present: jax.Array) -> jax.Array:
        part_key, steps_key = jax.random.split(key)
        if copies is not None:
            times = jax.random.binomial(part_key, copies.size, copies.largest)
        elif known is not None and known.rate < 1:
            times = jax.random.bernoulli(part_key, known.rate).astype(jnp.float32)
        else:
            times = jnp.float32(1)
        keys = jax.random.split(steps_key, release.repeats)
        total, _ = lax.scan(lambda s, k: (s + step(k, present, times), None), jnp.zeros(()), keys)
        return total

    def all_rounds(key: Key, present: jax.Array) -> jax.Array:
        def add(total: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            return total + round(jax.random.fold_in(key, t), present), None

        return lax.scan(add, jnp.zeros(()), jnp.arange(release.steps))[0]

    return all_rounds


def _gaussian_ratio(z: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.vdot(z, v) - jnp.vdot(v, v) / 2


def _laplace_ratio(z: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.sum(jnp.abs(z) - jnp.abs(z - v))


def _mixed(ratio: jax.Array, rate: float) -> jax.Array:
    """log(1 - q + q e^L)."""
    if rate >= 1:
        return ratio
    return jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + ratio)
