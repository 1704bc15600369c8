"""What a traced round does where no check can follow: nothing but print."""

from __future__ import annotations

from jax.extend.core import Jaxpr, JaxprEqn

from fedpriv.certification.information_flow import NOWHERE, where
from fedpriv.core.jaxprs import CUSTOM_VMAP, equations

_CALLS = frozenset(("pure_callback", "io_callback"))
PRINTS = frozenset(("debug_callback", "debug_print"))
_REFS = frozenset(("new_ref", "empty_ref", "swap", "addupdate", "run_state"))


def lines_that_print(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines that print something of a round (`jax.debug`), which changes nothing of it.

    Raises:
      ValueError: it asks the host for values, writes to a mutable array, computes several clients otherwise than one,
        or has a check that cannot be compiled.
    """
    lines: dict[str, None] = {}
    for eqn, callers in equations(jaxpr):
        name, chain = eqn.primitive.name, (eqn, *callers)
        if name in _CALLS:
            raise ValueError(
                f"round: it calls the host ({_line(chain)}), where the check cannot follow; compute this in JAX"
            )
        if name == CUSTOM_VMAP:
            raise ValueError(
                f"round: its jax.custom_batching.custom_vmap ({_line(chain)}) may mix clients that run side by side, "
                "where the check cannot follow; leave it out, or use jax.lax.map"
            )
        if name in _REFS:
            raise ValueError(
                f"round: it writes to a mutable array ({_line(chain)}), which the check cannot follow; return new "
                "arrays"
            )
        if name == "check" and not eqn.params.get("debug", False):
            raise ValueError(
                f"round: checkify.check ({_line(chain)}) does not compile alone; use checkify.debug_check, or wrap "
                "its function in checkify.checkify"
            )
        if name in PRINTS:
            lines[_line(chain)] = None
    return tuple(lines)


def _line(chain: tuple[JaxprEqn, ...]) -> str:
    """Of the innermost equation of which JAX knows it."""
    return next((line for eqn in chain if (line := where(eqn)) != NOWHERE), NOWHERE)
