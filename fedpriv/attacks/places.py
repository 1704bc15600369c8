"""A rule that finds places with a name in a traced program, and does something there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from fedpriv.core.interpreted import evaluated_inside
from fedpriv.core.jaxprs import equations, programs
from fedpriv.core.places import TAP, region_of
from fedpriv.core.types import PyTree


@dataclass(frozen=True)
class Places:
    """A rule: what is done in places of a program, also within its loops and calls.

    Attributes:
      taps: by name, the tree in that place -> one like it.
      regions: by name, (the region, its operands) -> its outputs, or NotImplemented.
    """

    taps: Mapping[str, Callable[[PyTree], PyTree]] = field(default_factory=dict)
    regions: Mapping[str, Callable[[JaxprEqn, list[Any]], Any]] = field(default_factory=dict)

    def __call__(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        """The outputs of an equation; NotImplemented where nothing is to be done."""
        if eqn.primitive is TAP:
            own = self.taps.get(eqn.params["name"])
            tree = jax.tree.unflatten(eqn.params["tree"], values)
            return values if own is None else jax.tree.leaves(own(tree))
        if (name := region_of(eqn)) in self.regions:
            return self.regions[name or ""](eqn, values)
        return evaluated_inside(eqn, values, self) if _has_places(eqn) else NotImplemented


def _has_places(eqn: JaxprEqn) -> bool:
    """Whether there are any in what an equation calls."""
    inner = (each for program in programs(eqn) for each, _ in equations(program.jaxpr))
    return any(each.primitive is TAP or region_of(each) is not None for each in inner)
