"""White-box audit of what a view sees: draws of the release on two neighbours, and what tells them apart.

A distinguisher that beats an (epsilon, delta)-private mechanism refutes its privacy; `fedpriv.attacks.bounds` turns the
scores into lower bounds on epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedpriv.attacks.integer_scores import Ratios, integer_ratios, worst_shifts
from fedpriv.core.arguments import Count, Seed, checked, require
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.privacy import Release
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.release import View
from fedpriv.privacy.sampling import Sampling

_CHUNK = 2**18  # coordinates side by side


class Scores(NamedTuple):
    """Of a mechanism's draws: log-likelihood ratios of a view's observations.

    Attributes:
      present: f64[draws], where the unit was there.
      absent: f64[draws], where it was not, or another in its place.
      noise: kinds of noise in them.
      certain: whether nothing but noise is random.
    """

    present: np.ndarray
    absent: np.ndarray
    noise: frozenset[str]
    certain: bool


@names_user_code
def draw_scores(
    releases: Sequence[Release],
    view: View,
    *,
    draws: Count,
    seed: Seed = 0,
    dimension: Count = 4,
) -> Scores:
    """Runs the mechanisms of `releases` on a unit in their worst direction, and without it.

    What is drawn is the mechanism's own code, clipping included, once per step of every draw; the rest of the cohort
    cancels. Scores are log-likelihood ratios of what the certificate takes the view to see. So the mechanism and its
    accounting are audited, not how an algorithm uses it, which `with_canaries` looks at. Of integer noise, the integers
    are drawn, and the direction is the worst of those that messages may have as integers.

    Args:
      view: one of `fedpriv.privacy.VIEWS`.
      draws: of each neighbour.
      dimension: coordinates, where the mechanism does not fix them; at least one for each tensor that is clipped.

    Raises:
      ValueError: a release of the view that brings no mechanism, or one without noise.
    """
    fits = isinstance(releases, Sequence) and all(isinstance(r, Release) for r in releases)
    require(fits, "releases", releases, "give those of fp.trace_round(...).releases(rounds)")
    view = checked("view", view, View)
    draws = checked("draws", draws, Count)
    seed = checked("seed", seed, Seed)
    dimension = checked("dimension", dimension, Count)
    seen = [release for release in releases if release.view == view]
    relation = relation_of(seen, view)
    parts = [_part(release, view, relation, dimension) for release in seen]

    def one(key: Key, present: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(parts))
        return sum((part(k, present) for part, k in zip(parts, keys, strict=True)), jnp.zeros(()))

    widest = max((coordinates(r, dimension) for r in seen), default=1)
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
    return Scores(drawn(with_key, True), drawn(without_key, False), noise, certain)


def coordinates(release: Release, dimension: int = 4) -> int:
    """Of how many a draw of one step consists, see `draw_scores`."""
    if release.integers is not None:
        return sum(worst_shifts(release.integers).values())
    return release.mechanism.worst_case.dimension or dimension


def _certain(release: Release) -> bool:
    drawn = [sampling for sampling in (release.sampling, release.participation) if sampling]
    if _secret_rounds(release) > 1:
        return False
    return all(s.takes_all or (s.joining >= 1 and s.most_often == 1) for s in drawn)


def _secret_rounds(release: Release) -> int:
    """Of how many rounds of a block the view does not know the unit's; 0 where each round has its own draw."""
    return release.sampling.block_rounds or 0 if release.view == "third_party" else 0


def _taking_part(key: Key, known: Sampling | None) -> jax.Array:
    """f32[], how far the unit moves the sums of a round that it takes part in, else 0."""
    if known is None:
        return jnp.float32(1)
    if not known.loses_noise:
        return jax.random.bernoulli(key, known.joining).astype(jnp.float32)
    joins, far = known.one_draw(jax.random.fold_in(key, 1))
    return jax.random.bernoulli(key, joins) * far


def _part(
    release: Release, view: str, relation: str, dimension: int
) -> Callable[[Key, jax.Array], jax.Array]:
    """(key, present) -> log-likelihood ratio of all steps of one release."""
    hidden = view == "third_party" or release.of_records
    ratios = _ratios_of(release, dimension)

    def several(
        noise_key: Key, own_key: Key, present: jax.Array, own: jax.Array, far: jax.Array
    ) -> jax.Array:
        """Of a person: of each number of units the chance (f32[k]), and how far so many move the sum."""
        chances = jnp.append(own, jnp.maximum(0.0, 1 - own.sum()))
        which = jax.random.choice(own_key, len(chances), p=chances)
        drawn = jnp.append(far, 0.0)[which]
        sign = jnp.where(present, 1.0, -1.0 if relation == "replace_one" else 0.0)
        both = jax.vmap(lambda times: ratios(noise_key, drawn * sign, times))
        if hidden:
            logs, (ratio, replaced) = jnp.log(chances), both(jnp.append(far, 0.0))
        else:  # the view knows how many there are
            logs, (ratio, replaced) = jnp.zeros(1), both(drawn[None])
        total = jax.nn.logsumexp(logs + ratio)
        return total - jax.nn.logsumexp(logs + replaced) if relation == "replace_one" else total

    def step(key: Key, present: jax.Array, there: jax.Array) -> jax.Array:
        noise_key, own_key, copies_key = jax.random.split(key, 3)
        own, far = release.sampling.one_draw(copies_key)
        if jnp.ndim(own):
            return several(noise_key, own_key, present, own, there * far)
        joins, times = jax.random.bernoulli(own_key, own), there * far
        secret = own if hidden else 1.0
        if not hidden:  # the view knows who joins
            times = jnp.where(joins, times, 0.0)
        sign = jnp.where(present, 1.0, -1.0 if relation == "replace_one" else 0.0)
        ratio, replaced = ratios(noise_key, times * jnp.where(joins, sign, 0.0), times)
        if relation == "replace_one":
            return mixed(ratio, secret) - mixed(replaced, secret)
        return mixed(ratio, secret)

    def block(key: Key, present: jax.Array, there: jax.Array) -> jax.Array:
        noise_key, own_key = jax.random.split(key)
        rounds = jnp.arange(_secret_rounds(release))
        own = jax.random.randint(own_key, (), 0, len(rounds))

        def of_round(t: jax.Array) -> jax.Array:
            moved = there * present * (t == own)
            return ratios(jax.random.fold_in(noise_key, t), moved, there)[0]

        return jax.nn.logsumexp(lax.map(of_round, rounds)) - jnp.log(len(rounds))

    def round(key: Key, present: jax.Array) -> jax.Array:
        part_key, steps_key = jax.random.split(key)
        there = _taking_part(part_key, release.participation)
        keys = jax.random.split(steps_key, release.local_steps)
        once = block if _secret_rounds(release) else step
        total, _ = lax.scan(lambda s, k: (s + once(k, present, there), None), jnp.zeros(()), keys)
        return total

    def all_rounds(key: Key, present: jax.Array) -> jax.Array:
        def add(total: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            return total + round(jax.random.fold_in(key, t), present), None

        return lax.scan(add, jnp.zeros(()), jnp.arange(release.rounds))[0]

    return all_rounds


def _ratios_of(release: Release, dimension: int) -> Ratios:
    """Of the release's mechanism, in its worst direction."""
    used: Mechanism | None = release.mechanism
    if release.integers is not None:
        return integer_ratios(release.integers, release.lossy is not None, _most_often(release))
    if used is None or used.worst_case is None or not release.multiplier > 0:
        why = release.reason or "the release brings no mechanism"
        raise ValueError(f"release: there is nothing to draw for {release.view} ({why})")
    # What the view sees may have more or less noise than the mechanism; the contribution is scaled instead.
    strength = float(used.certified_multiplier) / release.multiplier
    hardest = used.worst_case
    d = hardest.dimension or max(dimension, hardest.tensors)
    bound = used.clip(jax.tree.map(lambda u: 10 * u, hardest.worst(d)))[0]
    return (_gaussian_ratios if release.noise == "gaussian" else _laplace_ratios)(
        used.perturb, hardest.whiten, jax.tree.map(lambda u: strength * u, bound)
    )


def _most_often(release: Release) -> int:
    """How many times a round's draws may hold the unit."""
    known = release.participation
    return release.sampling.most_often * (1 if known is None else known.most_often)


_Perturb: TypeAlias = Callable[[Key, PyTree], PyTree]
_Whiten: TypeAlias = Callable[[PyTree], jax.Array]


def _gaussian_ratios(perturb: _Perturb, whiten: _Whiten, u: PyTree) -> Ratios:
    """Of all that is seen they need the projection on u alone, in units of the noise."""
    nothing = jax.tree.map(jnp.zeros_like, u)
    v, back = jax.vjp(whiten, u)
    square = jnp.vdot(v, v)
    along_u = back(v)[0]  # whitening is linear: <whiten(z), v> = <z, along_u>

    def ratios(key: Key, c: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
        along = optax.tree.vdot(perturb(key, nothing), along_u) + c * square
        return times * along - times**2 * square / 2, -times * along - times**2 * square / 2

    return ratios


def _laplace_ratios(perturb: _Perturb, whiten: _Whiten, u: PyTree) -> Ratios:
    nothing = jax.tree.map(jnp.zeros_like, u)
    v = whiten(u)

    def ratios(key: Key, c: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = whiten(perturb(key, nothing)) + c * v
        least = jnp.abs(z)
        return jnp.sum(least - jnp.abs(z - times * v)), jnp.sum(least - jnp.abs(z + times * v))

    return ratios


def mixed(ratio: jax.Array, rate: jax.Array | float) -> jax.Array:
    """Of a mechanism's log ratios L, those of draws at the rate q: log(1 - q + q e^L)."""
    if isinstance(rate, float) and rate >= 1:
        return ratio
    return jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + ratio)
