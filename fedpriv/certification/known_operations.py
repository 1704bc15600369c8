"""The operations that a program which is checked may consist of; all others are refused with their line.

They are functions of their inputs alone, as JAX lists them in `jax.extend.core.primitives`, less those that read or
write something else, and a few of its own that are missing there. So nothing asks the host, holds a program or
constants of its own, or computes several clients otherwise than one.
"""

from __future__ import annotations

from jax.extend.core import ClosedJaxpr, JaxprEqn, primitives

from fedpriv.certification.information_flow import NOWHERE, where
from fedpriv.core.jaxprs import equations
from fedpriv.models.custom_primitive import OWN
from fedpriv.rounds.primitives import OURS

_LISTED = frozenset(
    getattr(primitives, name).name for name in dir(primitives) if name.endswith("_p")
)
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
KNOWN = (_LISTED - _STATEFUL) | _MORE
"""By JAX's names."""
PRINTS = frozenset(("debug_callback", "debug_print"))

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


def lines_that_print(program: ClosedJaxpr, what: str) -> tuple[str, ...]:
    """The lines that print something (`jax.debug`), which changes nothing of the program.

    Args:
      what: it is, for errors: "round", "init".

    Raises:
      ValueError: an operation that is not known.
    """
    lines: dict[str, None] = {}
    for eqn, callers in equations(program.jaxpr):
        name = _name(eqn)
        if name in PRINTS:
            lines[_line((eqn, *callers))] = None
        elif not _is_known(eqn):
            raise ValueError(
                f"{what}: {name} ({_line((eqn, *callers))}) {_WHY.get(name, _UNKNOWN)}"
            )
    return tuple(lines)


def _name(eqn: JaxprEqn) -> str:
    """JAX's name of an operation; since 0.12 some are classes of its own."""
    of_class = type(eqn.params.get("_prim"))
    if eqn.primitive.name == "call_hi_primitive" and of_class.__module__.startswith("jax."):
        return of_class.__name__
    return eqn.primitive.name


def _is_known(eqn: JaxprEqn) -> bool:
    checks = eqn.primitive.name == "check" and eqn.params.get("debug", False)  # by checkify
    ours = eqn.primitive in OWN or eqn.primitive in OURS
    return _name(eqn) in KNOWN or ours or checks


def _line(chain: tuple[JaxprEqn, ...]) -> str:
    """Of the innermost equation of which JAX knows it."""
    return next((line for eqn in chain if (line := where(eqn)) != NOWHERE), NOWHERE)
