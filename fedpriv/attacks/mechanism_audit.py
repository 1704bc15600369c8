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
from fedpriv.attacks.play import is_certain, play
from fedpriv.core.arguments import Count, Seed, checked, require
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.privacy import Release
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.release import View
from fedpriv.privacy.release_pairs import played_pair

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
    ratios = [_ratios_of(release, dimension) for release in seen]
    pairs = [played_pair(release, relation) for release in seen]
    parts = [
        play(pair, own, 1 / release.multiplier)
        for pair, own, release in zip(pairs, ratios, seen, strict=True)
    ]

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
    certain = all(map(is_certain, pairs))
    return Scores(drawn(with_key, True), drawn(without_key, False), noise, certain)


def coordinates(release: Release, dimension: int = 4) -> int:
    """Of how many a draw of one step consists, see `draw_scores`."""
    if release.integers is not None:
        return sum(worst_shifts(release.integers).values())
    return release.mechanism.worst_case.dimension or dimension


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
