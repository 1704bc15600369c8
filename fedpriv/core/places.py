"""Places with a name in a traced program, where rules may find what is there, or put something else.

A tap is the identity on a tree, a region a call of a jitted function. Nothing comes of their names where a program runs
as it is; attacks play a round by rules that know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

from fedpriv.core.jaxprs import equations, evaluated_inside, programs
from fedpriv.core.types import PyTree

TAP = Primitive("fedpriv_tap")
"""The identity on the leaves of a tree of the structure `tree`, in the place `name`."""
TAP.multiple_results = True


def _same(*leaves: Any, name: str, tree: Any) -> list[Any]:
    return list(leaves)


def _batched(leaves: Sequence[Any], axes: Sequence[Any], **place: Any) -> tuple[Any, Any]:
    return TAP.bind(*leaves, **place), axes


def _derived(leaves: Sequence[Any], tangents: Sequence[Any], **place: Any) -> tuple[Any, Any]:
    return TAP.bind(*leaves, **place), list(tangents)


TAP.def_impl(_same)
TAP.def_abstract_eval(_same)
mlir.register_lowering(TAP, mlir.lower_fun(_same, multiple_results=True))
batching.primitive_batchers[TAP] = _batched
ad.primitive_jvps[TAP] = _derived


def tap(name: str, tree: PyTree) -> PyTree:
    """The tree, in a place of this name."""
    leaves, structure = jax.tree.flatten(tree)
    if not leaves:
        return tree
    return jax.tree.unflatten(structure, TAP.bind(*leaves, name=name, tree=structure))


_REGION = "fedpriv_"


def region(name: str, fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """What `fn` gives back for trees of arrays, computed in a region of this name where the program is traced.

    What `fn` closes over are the first operands of the call, and the leaves of `args` the last.
    """
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
        return fn(*args)

    def named(*args: PyTree) -> PyTree:
        return fn(*args)

    named.__name__ = named.__qualname__ = _REGION + name
    return jax.jit(named)(*args)


def region_of(eqn: JaxprEqn) -> str | None:
    """The name of the region that an equation is; None: it is none."""
    name = str(eqn.params.get("name", "")) if eqn.primitive.name in ("jit", "pjit") else ""
    return name.removeprefix(_REGION) if name.startswith(_REGION) else None


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
