"""Whether noise depends on the sum that it is added to: it is drawn around several, each time with the same key.

The same key has to give the same noise around 0 and around any sum, but for rounding: so no correct mechanism is
refused by chance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import PyTree

_STEP = 4.0  # from one norm of sums that are tried to the next
_PLACES = 8  # coordinates throughout, and ends of tensors, that are the only ones of a sum
_ROUNDING = 1e-3  # of the noise's deviation
_LAST_DIGITS = 64  # of a sum's largest coordinate, in units of its precision


class Moved(NamedTuple):
    """Noise around sums, of which each has the first coordinate that is not as around 0 with the same key.

    Attributes:
      norms: f32[sums], of the sums.
      noise: f32[sums], of that coordinate.
      around_zero: f32[sums], likewise.
      wrong: bool[sums], whether they differ.
    """

    norms: jax.Array
    noise: jax.Array
    around_zero: jax.Array
    wrong: jax.Array


def _sums(zeros: PyTree, most: int, seed: int) -> tuple[jax.Array, jax.Array]:
    """Directions f32[n, d], and norms in clip norms f32[m]: beyond those of `most` contributions, in both signs.

    Where a sum lies in all coordinates, each of them is also as large as that of a sum in it alone.
    """
    d = dimension(zeros)
    units = [u / jnp.linalg.norm(u) for u in directions_of(zeros, seed)]
    ends = np.cumsum([0, *(leaf.size for leaf in jax.tree.leaves(zeros))])
    places = np.unique([*np.linspace(0, d - 1, _PLACES).astype(int), *ends[1:_PLACES] - 1])
    alone = [jnp.zeros(d).at[at].set(1.0) for at in places]
    signs = jnp.sign(units[2])
    steps = math.ceil(math.log(10 * most, _STEP))
    norms = np.array([*np.geomspace(0.1, most, steps + 1), 10.0 * most])
    return jnp.stack([*units, jnp.ones(d), signs, *alone]), jnp.asarray([*norms, *-norms])


def noise_around(
    used: Any,
    zeros: PyTree,
    bound: tuple[jax.Array, int],
    keys: jax.Array,
    noise: jax.Array,
    seed: int,
) -> Moved:
    """Noise around sums, beside that around 0, f32[draws, d], of the same keys; of a quarter as many sums at most.

    Args:
      bound: the clip norm, and the most contributions of a sum.
    """
    directions, norms = _sums(zeros, bound[1], seed)
    norms *= bound[0]
    total = len(directions) * len(norms)
    some = np.unique(np.linspace(0, total - 1, min(total, max(len(keys) // 4, 1))).astype(int))
    deviation, eps = noise.std(0), jnp.finfo(jnp.float32).eps

    def around(given: tuple[jax.Array, jax.Array, jax.Array]) -> Moved:
        which, key, before = given
        u = directions[which // len(norms)] * norms[which % len(norms)]
        tree = unflatten(u, zeros)
        u = flatten(tree)
        now = flatten(used.perturb(key, tree)) - u
        rounding = _ROUNDING * deviation + _LAST_DIGITS * eps * jnp.abs(u).max()
        wrong = ~(jnp.abs(now - before) <= rounding)  # NaN, too
        at = jnp.argmax(wrong)
        return Moved(jnp.linalg.norm(u), now[at], before[at], wrong[at])

    return lax.map(around, (jnp.asarray(some), keys[: len(some)], noise[: len(some)]))


def check_moved(what: str, moved: Moved) -> None:
    """Raises ValueError: noise depends on the sum."""
    if np.any(moved.wrong):
        at = int(np.argmin(np.where(moved.wrong, moved.norms, np.inf)))
        norm, noise, before = (float(x[at]) for x in moved[:3])
        raise ValueError(
            f"{what}: its noise depends on the sum: with the same key it is {noise:.3g} in a coordinate of one of norm "
            f"{norm:.3g}, and {before:.3g} around 0; draw it from the key and shapes alone, as fp.mechanism does, and "
            "change noisy sums in the round"
        )


def directions_of(like: PyTree, seed: int) -> list[jax.Array]:
    """Of worst contributions: one coordinate, all, at random, and where noise of one key for all leaves cancels."""
    leaves = jax.tree.leaves(like)
    d, least = dimension(like), min(leaf.size for leaf in leaves)
    against = [jnp.zeros(leaf.size).at[:least].set((-1.0) ** i) for i, leaf in enumerate(leaves)]
    one, z = jnp.zeros(d).at[0].set(1.0), jax.random.normal(jax.random.key(seed + 1), (d,))
    return [one, jnp.ones(d), z, jnp.concatenate(against)]
