"""What gradients and audits ask of a mechanism, which is no part of its privacy: it is looked up by its functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import flatten
from fedpriv.core.types import PyTree
from fedpriv.proof.bound import AddNoise, Bound, Clip, is_silent

Used = TypeVar("Used", bound=Any)
"""An `fp.Mechanism`."""


@checking_fields
class Scaling(NamedTuple):
    """Clipping that does no more than scale, so that no record needs a gradient of its own; see `fp.clipping.Clipping`.

    Attributes:
      scales: norms of the tensors -> the factor of each.
      norms: contribution -> those norms; None if they are the tensors' l2 norms.
    """

    scales: Callable[[PyTree], PyTree]
    norms: Callable[[PyTree], PyTree] | None = None


@checking_fields
class WorstCase(NamedTuple):
    """The contribution that is hardest to hide, and how it shows, for audits.

    Attributes:
      worst: d -> a contribution of d coordinates: no other moves the noisy sum more; see `fp.clipping.Clipping`.
      whiten: a perturbed tree -> f32[...] with independent entries, in units of the noise.
      dimension: the number of coordinates, if the mechanism requires a fixed one; for a `joint` mechanism, that of its
        first part.
      tensors: the least number of tensors: one for each that is clipped separately.
    """

    worst: Callable[[int], PyTree]
    whiten: Callable[[PyTree], jax.Array]
    dimension: Count | None = None
    tensors: Count = 1


@dataclass(frozen=True)
class _FlatFactors:
    """What flat clipping in l2 multiplies each tensor by."""

    bound: Bound

    def __call__(self, norms: PyTree) -> PyTree:
        return Clip(2, self.bound).factors(norms)


@dataclass(frozen=True)
class _Border:
    """A contribution of norm C that is hardest to hide: constant in l2, along an axis in l1."""

    order: int
    bound: Bound

    def __call__(self, d: int) -> PyTree:
        if self.order == 1:
            return self.bound * jnp.zeros(d).at[0].set(1.0)
        return jnp.full(d, 1 / math.sqrt(d)) * self.bound


@dataclass(frozen=True)
class _InUnitsOfNoise:
    """The coordinates of a sum that equal, independent noise perturbs."""

    order: int
    bound: Bound
    multiplier: float | jax.Array

    def __call__(self, total: PyTree) -> jax.Array:
        if self.order == 1:
            return flatten(total) / (self.bound * self.multiplier)
        return flatten(jax.tree.map(lambda u: u / self.bound, total)) / self.multiplier


_SCALINGS: WeakKeyDictionary[Any, Scaling] = WeakKeyDictionary()
"""By `clip`."""
_WORST_CASES: WeakKeyDictionary[Any, tuple[ref[Any], WorstCase]] = WeakKeyDictionary()
"""By `perturb`, each beside the `clip` that it is of."""


def scaling_of(mechanism: Any) -> Scaling | None:
    """`clip` by the norms of a contribution's tensors alone; None if it does more than scale, or this is not known.

    It belongs to the function: a mechanism with another `clip` has that one's.
    """
    clip = getattr(mechanism, "clip", None)
    if type(clip) is Clip:  # one that inherits from it may do otherwise
        return Scaling(_FlatFactors(clip.bound)) if clip.order == 2 else None
    return _found(_SCALINGS, clip)


def worst_case_of(mechanism: Any) -> WorstCase | None:
    """The contribution that is hardest to hide, for audits; None if nothing is hidden, or it is not known.

    It belongs to the pair of `clip` and `perturb`: a mechanism with another of either has none.
    """
    perturb = getattr(mechanism, "perturb", None)
    if type(perturb) is AddNoise and type(perturb.clip) is Clip:
        fits = perturb.clip is mechanism.clip and not is_silent(perturb.multiplier)
        return _hardest(perturb.clip, perturb.multiplier) if fits else None
    known = _found(_WORST_CASES, perturb)
    of_clip, worst_case = known or (None, None)
    return worst_case if of_clip and of_clip() is mechanism.clip else None


def _hardest(clip: Clip, multiplier: float | jax.Array) -> WorstCase:
    border = _Border(clip.order, clip.bound)
    return WorstCase(border, _InUnitsOfNoise(clip.order, clip.bound, multiplier))


def described(
    mechanism: Used, *, scaling: Scaling | None = None, worst_case: WorstCase | None = None
) -> Used:
    """The same mechanism as functions of its own, of which this is known; what is not given is known as before.

    Certificates take it as one made by hand: they measure how far contributions move the sum by `clip`, and by
    `scaling`, which bounds records in its place.

    Args:
      mechanism: such as `fp.Mechanism(clip, perturb, multiplier)`, or a changed one of ours.

    Raises:
      ValueError: no mechanism, no `Scaling`, or no `WorstCase`.
    """
    fits = hasattr(mechanism, "_replace") and hasattr(mechanism, "perturb")
    require(
        fits, "mechanism", mechanism, "give one such as fp.Mechanism(clip, perturb, multiplier)"
    )
    fits = scaling is None or isinstance(scaling, Scaling)
    require(fits, "scaling", scaling, "give Scaling(scales)")
    fits = worst_case is None or isinstance(worst_case, WorstCase)
    require(fits, "worst_case", worst_case, "give WorstCase(worst, whiten)")
    own = mechanism._replace(clip=_own(mechanism.clip), perturb=_own(mechanism.perturb))
    return know(own, scaling or scaling_of(mechanism), worst_case or worst_case_of(mechanism))


def know(mechanism: Used, scaling: Scaling | None, worst_case: WorstCase | None) -> Used:
    """The mechanism itself, of whose functions this is known from now on: they are new, so that nothing changes."""
    known = mechanism.clip in _SCALINGS or mechanism.perturb in _WORST_CASES
    fresh = not known and not constructed(mechanism)
    require(fresh, "mechanism", mechanism, "give one that is just made")
    if scaling is not None:
        _SCALINGS[mechanism.clip] = scaling
    if worst_case is not None:
        _WORST_CASES[mechanism.perturb] = ref(mechanism.clip), worst_case
    return mechanism


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Another function that does the same."""

    @functools.wraps(function)
    def own(*args: Any) -> Any:
        return function(*args)

    own.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
    return own


def _found(known: WeakKeyDictionary[Any, Any], function: Any) -> Any:
    try:
        return known.get(function)
    except TypeError:  # a callable of somebody's own that has no hash, or no weak reference
        return None
