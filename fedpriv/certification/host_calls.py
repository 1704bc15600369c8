"""What a traced round asks of the host: nothing but to print."""

from __future__ import annotations

from jax.extend.core import Jaxpr

from fedpriv.certification.information_flow import programs, where

_CALLS = frozenset(("pure_callback", "io_callback"))
_PRINTS = frozenset(("debug_callback", "debug_print"))
_REFS = frozenset(("new_ref", "empty_ref", "swap", "addupdate", "run_state"))


def printed(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines that print something of a round (`jax.debug`), which changes nothing of it.

    Raises:
      ValueError: it asks the host for values, writes to a mutable array, or has a check that cannot be compiled.
    """
    found: dict[str, None] = {}
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in _CALLS:
            raise ValueError(
                f"round: it calls the host ({where(eqn)}), where nothing can be followed; compute it in JAX"
            )
        if name in _REFS:
            raise ValueError(
                f"round: it writes to a mutable array ({where(eqn)}), which cannot be followed; return new arrays"
            )
        if name == "check" and not eqn.params.get("debug", False):
            raise ValueError(
                f"round: checkify.check ({where(eqn)}) does not compile alone; use checkify.debug_check, or wrap the "
                "function that it is in in checkify.checkify"
            )
        if name in _PRINTS:
            found[where(eqn)] = None
        found |= dict.fromkeys(line for inner in programs(eqn) for line in printed(inner))
    return tuple(found)
