"""Places with a name in a traced program, where rules may find what is there, or put something else.

A tap is the identity on a tree, a region a call of a jitted function. Nothing comes of their names where a program runs
as it is; attacks play a round by rules that know them.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.extend.core import JaxprEqn

from fedpriv.core.identities import Identity
from fedpriv.core.types import PyTree

TAP = Identity("fedpriv_tap")
"""The identity on the leaves of a tree of the structure `tree`, in the place `name`."""


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
