"""White-box audit of what a view sees: draws of the release on two neighbours, and what tells them apart.

A distinguisher that beats an (epsilon, delta)-private mechanism refutes its privacy: the lower bounds on epsilon are
those of Clopper-Pearson intervals (M. Jagielski, J. Ullman, A. Oprea, NeurIPS 2020, arXiv:2006.07709), as
`jax_privacy.auditing` computes them, and of Gaussian differential privacy (M. Nasr et al., USENIX Security 2023,
arXiv:2302.07956).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedpriv.privacy import Release
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.sampling import WithReplacement
from fedpriv.types import Key, PyTree

_CHUNK = 2**18  # coordinates side by side


class Scores(NamedTuple):
    """Log-likelihood ratios of a view's observations.

    Attributes:
      present: f64[draws], where the unit was there.
      absent: f64[draws], where it was not, or another in its place.
      relation: of the two neighbours, as the certificate's.
      noise: kinds of noise in them.
      certain: whether nothing but noise is random.
    """

    present: np.ndarray
    absent: np.ndarray
    relation: str
    noise: frozenset[str]
    certain: bool


class LowerBounds(NamedTuple):
    """On epsilon, each wrong with probability `significance` at most.

    Attributes:
      clopper_pearson: for any mechanism; of n draws never above about log n.
      gaussian: for a Gaussian mechanism of any multiplier; 0 where it is none, because of other noise or of random
        participation, or delta is 0.
      significance: 1 - confidence.
    """

    clopper_pearson: float
    gaussian: float
    significance: float

    @property
    def least(self) -> float:
        """What epsilon is at least."""
        return max(self.clopper_pearson, self.gaussian)


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

    widest = max((r.mechanism.dimension or dimension for r in seen if r.mechanism), default=1)
    side_by_side = max(1, _CHUNK // widest)

    @jax.jit
    def many(key: Key, present: jax.Array) -> jax.Array:
        keys = jax.random.split(key, draws)
        return lax.map(lambda k: one(k, present), keys, batch_size=side_by_side)

    def drawn(key: Key, present: bool) -> np.ndarray:
        # Rounding to a grid keeps float32's low bits from telling neighbours apart: they are no part of the mechanism.
        return np.round(np.asarray(many(key, jnp.bool_(present)), np.float64), 3)

    with_key, without_key = jax.random.split(jax.random.key(seed))
    noise = frozenset(release.noise for release in seen)
    certain = all(_certain(release) for release in seen)
    return Scores(drawn(with_key, True), drawn(without_key, False), relation, noise, certain)


def lower_bounds(scores: Scores, delta: float, significance: float = 0.05) -> LowerBounds:
    """Lower bounds on epsilon at `delta` from scores."""
    from jax_privacy.auditing import CanaryScoreAuditor, Split

    auditor = CanaryScoreAuditor(scores.present, scores.absent)
    options = {"one_sided": False, "threshold_strategy": Split(seed=0)}
    by_counts = float(auditor.epsilon_clopper_pearson(significance, delta, **options))
    gaussian = scores.noise == {"gaussian"} and scores.certain and delta > 0
    as_gaussian = _as_gaussian(scores, delta, significance) if gaussian else 0.0
    return LowerBounds(by_counts, as_gaussian, significance)


def _as_gaussian(scores: Scores, delta: float, significance: float) -> float:
    """Epsilon of the Gaussian mechanism whose mu is a lower bound on that of the scores.

    The threshold is chosen on one half of the scores, the error rates there are bounded on the other. This is not
    `epsilon_from_gdp` of jax_privacy 2.0, which takes |mu| of upper bounds on both rates: where one of these is near 1
    that is large, whatever the mechanism.
    """
    import dp_accounting

    half_present, half_absent = len(scores.present) // 2, len(scores.absent) // 2
    candidates = np.unique(scores.present[:half_present])
    first = _mu(
        scores.present[:half_present], scores.absent[:half_absent], candidates, significance
    )
    best = candidates[np.argmax(first)]
    mu = _mu(scores.present[half_present:], scores.absent[half_absent:], best, significance)
    return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def _mu(
    present: np.ndarray, absent: np.ndarray, thresholds: np.ndarray, significance: float
) -> np.ndarray:
    """Lower bounds on mu, each by itself, from guessing "present" at or above a threshold."""
    from scipy.stats import beta, norm

    missed = np.searchsorted(np.sort(present), thresholds, side="left")
    false = len(absent) - np.searchsorted(np.sort(absent), thresholds, side="left")

    def most(count: np.ndarray, n: int) -> np.ndarray:
        return np.where(
            count < n, beta.isf(significance / 2, count + 1, np.maximum(n - count, 0.5)), 1
        )

    return norm.isf(most(false, len(absent))) - norm.ppf(most(missed, len(present)))


def _certain(release: Release) -> bool:
    drawn = [release.sampling, release.participation]
    return all(sampling is None or sampling.rate >= 1 for sampling in drawn)


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
    ratios = (_gaussian_ratios if release.noise == "gaussian" else _laplace_ratios)(
        used.perturb, used.whiten, jax.tree.map(lambda u: strength * u, bound)
    )

    def step(key: Key, present: jax.Array, times: jax.Array) -> jax.Array:
        noise_key, own_key = jax.random.split(key)
        joins = jax.random.bernoulli(own_key, own) if own < 1 else jnp.bool_(True)
        sign = jnp.where(present, 1.0, -1.0 if relation == "replace_one" else 0.0)
        there, replaced = ratios(noise_key, times * jnp.where(joins, sign, 0.0), times)
        if relation == "replace_one":
            return _mixed(there, own) - _mixed(replaced, own)
        return _mixed(there, own)

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


_Perturb: TypeAlias = Callable[[Key, PyTree], PyTree]
_Whiten: TypeAlias = Callable[[PyTree], jax.Array]
_Ratios: TypeAlias = Callable[[Key, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(key, c, times) -> log-likelihood ratios of contributions `times` u and -`times` u against none, of noise + c u."""


def _gaussian_ratios(perturb: _Perturb, whiten: _Whiten, u: PyTree) -> _Ratios:
    """Of all that is seen they need the projection on u alone, in units of the noise."""
    nothing = jax.tree.map(jnp.zeros_like, u)
    v, back = jax.vjp(whiten, u)
    square = jnp.vdot(v, v)
    along_u = back(v)[0]  # whitening is linear: <whiten(z), v> = <z, along_u>

    def ratios(key: Key, c: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
        along = optax.tree.vdot(perturb(key, nothing), along_u) + c * square
        return times * along - times**2 * square / 2, -times * along - times**2 * square / 2

    return ratios


def _laplace_ratios(perturb: _Perturb, whiten: _Whiten, u: PyTree) -> _Ratios:
    nothing = jax.tree.map(jnp.zeros_like, u)
    v = whiten(u)

    def ratios(key: Key, c: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = whiten(perturb(key, nothing)) + c * v
        least = jnp.abs(z)
        return jnp.sum(least - jnp.abs(z - times * v)), jnp.sum(least - jnp.abs(z + times * v))

    return ratios


def _mixed(ratio: jax.Array, rate: float) -> jax.Array:
    """log(1 - q + q e^L)."""
    if rate >= 1:
        return ratio
    return jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + ratio)
