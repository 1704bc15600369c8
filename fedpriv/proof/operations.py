"""The operations that a program which is checked may consist of; all others are refused with their line.

They are functions of their inputs alone, as JAX lists them in `jax.extend.core.primitives`, less those that read or
write something else, and a few of its own that are missing there. So nothing asks the host, holds a program or
constants of its own, or computes several clients otherwise than one. Where this is so, an equation's inputs are all
that its outputs can depend on, which is what `fedpriv.proof.flow` counts on. Operations that are not JAX's say
themselves how labels pass them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr, JaxprEqn, primitives

from fedpriv.core.equation_lines import NOWHERE, where
from fedpriv.core.jaxprs import equations
from fedpriv.core.places import TAP
from fedpriv.proof.flow import Operation

_LISTED = frozenset(getattr(primitives, name) for name in dir(primitives) if name.endswith("_p"))
_STATEFUL = frozenset(("get", "swap", "custom_lin", "rng_uniform", "create_token", "after_all"))
_MORE = frozenset(
    (
        *("CheckpointName", "Einsum", "Frexp", "Ldexp", "Nonzero", "SearchSorted"),
        *("cholesky_update", "geqrf", "linear_call", "lu_pivots_to_permutation", "shard_map"),
        *("optimization_barrier", "platform_index", "ragged_dot_general", "split", "stack"),
        *("pbroadcast", "pvary", "random_clone", "random_unwrap", "random_wrap", "reshard"),
        *("tile", "unstack"),
    )
)
KNOWN = (frozenset(each.name for each in _LISTED) - _STATEFUL) | _MORE
"""By JAX's names; what JAX lists is known by itself, so that another operation of that name is not."""
PRINTS = frozenset(("debug_callback", "debug_print"))
"""What changes nothing of the program, and shows something while it runs: a certificate says in which lines."""

_UNKNOWN = (
    "is not among the operations that depend on their inputs alone; compute it with other functions of jax.numpy or "
    "jax.lax"
)
_WHY = {
    "pure_callback": "calls the host; compute this in JAX",
    "io_callback": "calls the host; compute this in JAX",
    "check": "does not compile alone; use checkify.debug_check, or wrap its function in checkify.checkify",
    "custom_vmap_call": (
        "may mix clients that run side by side (jax.custom_batching.custom_vmap); leave it out, or use jax.lax.map"
    ),
}


class Used(NamedTuple):
    """What a program uses beside JAX's functions of their inputs.

    Attributes:
      prints: the lines that print something (`jax.debug`).
      operations: those that are not JAX's.
    """

    prints: tuple[str, ...]
    operations: tuple[Operation, ...]


def check_operations(program: ClosedJaxpr, what: str) -> Used:
    """What a program uses, once it has no operation that is not known.

    Args:
      what: it is, for errors: "round", "init".

    Raises:
      ValueError: an operation that is not known.
    """
    prints: dict[str, None] = {}
    others: dict[Operation, None] = {}
    for eqn, callers in equations(program.jaxpr):
        name, line = _name(eqn), partial(_line, (eqn, *callers))
        if isinstance(eqn.primitive, Operation):
            others[eqn.primitive] = None
        elif name in PRINTS:
            prints[line()] = None
        elif not _is_known(eqn, name):
            raise ValueError(f"{what}: {name} ({line()}) {_WHY.get(name, _UNKNOWN)}")
    return Used(tuple(prints), tuple(others))


def _name(eqn: JaxprEqn) -> str:
    """JAX's name of an operation; since 0.12 some are classes of its own."""
    of_class = type(eqn.params.get("_prim"))
    if eqn.primitive.name == "call_hi_primitive" and of_class.__module__.startswith("jax."):
        return of_class.__name__
    return eqn.primitive.name


def _is_known(eqn: JaxprEqn, name: str) -> bool:
    checks = eqn.primitive.name == "check" and eqn.params.get("debug", False)  # by checkify
    listed = eqn.primitive in _LISTED or name in _MORE or name != eqn.primitive.name
    return (name in KNOWN and listed) or eqn.primitive is TAP or checks


def _line(chain: tuple[JaxprEqn, ...]) -> str:
    """Of the innermost equation of which JAX knows it."""
    return next((line for eqn in chain if (line := where(eqn)) != NOWHERE), NOWHERE)
