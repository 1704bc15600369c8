"""White-box audit of what a view sees: draws of it on two neighbours, and what tells them apart.

A distinguisher that beats an (epsilon, delta)-private mechanism refutes its privacy; `fedpriv.attacks.bounds` turns the
scores into lower bounds on epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedpriv.attacks.integer_scores import Ratios, integer_ratios, worst_shifts
from fedpriv.attacks.play import is_certain, play
from fedpriv.core.arguments import Count, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.played import Plays, plays_of
from fedpriv.proof.seen import Seen, View, common_neighbour

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
    seen: Sequence[Seen],
    view: View,
    *,
    draws: Count,
    seed: Seed = 0,
    dimension: Count = 4,
) -> Scores:
    """Runs the mechanisms of what is `seen` on a unit in their worst direction, and without it.

    What is drawn is the mechanism's own code, clipping included, once per step of every draw; the rest of the cohort
    cancels. Scores are log-likelihood ratios of what the certificate takes the view to see. So the mechanism and its
    accounting are audited, not how an algorithm uses it, which `with_canaries` looks at. Of integer noise, the integers
    are drawn, and the direction is the worst of those that messages may have as integers.

    Args:
      seen: such as `fp.trace_round(...).seen(rounds)`.
      view: one of `fedpriv.privacy.VIEWS`.
      draws: of each neighbour.
      dimension: coordinates, where the mechanism does not fix them; at least one for each tensor that is clipped.

    Raises:
      ValueError: what the view sees brings no mechanism, or is without noise.
    """
    fits = isinstance(seen, Sequence) and all(isinstance(each, Seen) for each in seen)
    require(fits, "seen", seen, "give that of fp.trace_round(...).seen(rounds)")
    view = checked("view", view, View)
    draws = checked("draws", draws, Count)
    seed = checked("seed", seed, Seed)
    dimension = checked("dimension", dimension, Count)
    of_view = [each for each in seen if each.view == view]
    ratios = [_ratios_of(each, dimension) for each in of_view]
    neighbour = common_neighbour(of_view)
    played = [plays for plays in map(plays_of, of_view) if plays is not None]
    pairs: list[Any] = [each.pairs.of(neighbour) for each in played]
    parts = [
        play(pair, own, 1 / each.multiplier)
        for pair, own, each in zip(pairs, ratios, played, strict=True)
    ]

    def one(key: Key, present: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(parts))
        return sum((part(k, present) for part, k in zip(parts, keys, strict=True)), jnp.zeros(()))

    widest = max((coordinates(each, dimension) for each in played), default=1)
    side_by_side = max(1, _CHUNK // widest)

    @jax.jit
    def many(key: Key, present: jax.Array) -> jax.Array:
        keys = jax.random.split(key, draws)
        return lax.map(lambda k: one(k, present), keys, batch_size=side_by_side)

    def drawn(key: Key, present: bool) -> np.ndarray:
        # Rounding to a grid keeps float32's low bits from telling neighbours apart: they are no part of the mechanism.
        return np.round(np.asarray(many(key, jnp.bool_(present)), np.float64), 3)

    with_key, without_key = jax.random.split(jax.random.key(seed))
    noise = frozenset(each.kind for each in played)
    certain = all(map(is_certain, pairs))
    return Scores(drawn(with_key, True), drawn(without_key, False), noise, certain)


def coordinates(plays: Plays, dimension: int = 4) -> int:
    """Of how many a draw of one step consists, see `draw_scores`."""
    if isinstance(plays.noise, IntegerNoise):
        return sum(worst_shifts(plays.noise).values())
    hardest: Any = worst_case_of(plays.used)
    return hardest.dimension or dimension


def _ratios_of(seen: Seen, dimension: int) -> Ratios:
    """Of its mechanism, in its worst direction."""
    plays = plays_of(seen) if seen.hidden else None
    if plays is not None and isinstance(plays.noise, IntegerNoise) and not plays.noise.beside:
        return integer_ratios(plays.noise, plays.lost, plays.farthest)
    real = plays is not None and plays.noise in _RATIOS
    if plays is None or not real or worst_case_of(plays.used) is None:
        why = seen.reason or "it brings no mechanism"
        raise ValueError(f"seen: there is nothing to draw for {seen.view} ({why})")
    used: Mechanism = plays.used
    # What the view sees may have more or less noise than the mechanism; the contribution is scaled instead.
    strength = float(used.certified_multiplier) / plays.multiplier
    hardest: Any = worst_case_of(used)
    d = hardest.dimension or max(dimension, hardest.tensors)
    bound = used.clip(jax.tree.map(lambda u: 10 * u, hardest.worst(d)))[0]
    return _RATIOS[plays.noise](
        used.perturb, hardest.whiten, jax.tree.map(lambda u: strength * u, bound)
    )


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


_RATIOS: dict[Any, Any] = {"gaussian": _gaussian_ratios, "laplace": _laplace_ratios}
"""By the noise."""
