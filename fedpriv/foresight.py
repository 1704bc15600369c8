"""Whose records a round asks for, read off what it traces to, so that they can be fetched before it runs.

`asks_for` marks the clients of a cohort in the program. A round's program cut down to what these marks depend on says
who is next without running the round, provided that nothing is left in it which only the round before knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core

from fedpriv.interpret import Rule, evaluate, inlined
from fedpriv.types import PyTree

_MARK = "fedpriv: clients whose records are asked for"


def asks_for(ids: jax.Array) -> jax.Array:
    """The same ids i32[n], marked in the program that is being traced; costs nothing when it runs."""
    return checkpoint_name(ids, _MARK)


def asking(
    fn: Callable[..., PyTree], *, in_line: bool = False
) -> Callable[..., tuple[PyTree, jax.Array]]:
    """`fn` that also gives back, as i32[n], all ids that were marked while it ran.

    Args:
      in_line: take all jitted functions apart, not only those that mark ids: what each result depends on is then seen,
        but XLA may round differently.

    Raises:
      ValueError: when it is called, ids that are marked inside a condition or a loop.
    """

    def both(*args: PyTree) -> tuple[PyTree, jax.Array]:
        program, out = jax.make_jaxpr(fn, return_shape=True)(*args)
        marked: list[jax.Array] = [jnp.zeros(0, jnp.int32)]
        values = evaluate(program, jax.tree.leaves(args), _marking(marked, in_line))
        return jax.tree.unflatten(jax.tree.structure(out), values), jnp.concatenate(marked)

    return both


def foresee(
    fn: Callable[..., PyTree], known: Sequence[PyTree], unknown: PyTree
) -> Callable[..., jax.Array]:
    """What finds the ids that `fn(*known, unknown)` marks, from `known` alone: jitted, (*known) -> i32[n].

    Args:
      fn: a function that can be traced.
      known: trees of what will be known in time, arrays or their shapes.
      unknown: a tree of what will not.

    Raises:
      ValueError: the ids depend on `unknown`, or are marked where `asking` does not find them.
    """
    given, rest = jax.tree.leaves(known), jax.tree_util.tree_leaves_with_path(unknown)
    program = jax.make_jaxpr(lambda *args: asking(fn, in_line=True)(*args)[1])(*known, unknown)
    jaxpr = program.jaxpr
    eqns, needed = _needed(jaxpr)
    late = [
        jax.tree_util.keystr(path).lstrip(".")
        for (path, _), var in zip(rest, jaxpr.invars[len(given) :], strict=True)
        if var in needed
    ]
    if late:
        raise ValueError(
            f"round: who takes part depends on {late[0]}, but whose records to fetch must be known a round "
            "ahead; draw the cohort from the key and state.round alone, or use a Federation in memory"
        )
    jaxpr = jaxpr.replace(eqns=eqns, invars=jaxpr.invars[: len(given)], effects=set())
    ids = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, program.consts))
    return jax.jit(lambda *args: ids(*jax.tree.leaves(args))[0])


def _needed(jaxpr: core.Jaxpr) -> tuple[list, set]:
    """The equations that the results depend on, whatever their side effects, and all their variables."""
    needed, kept = {v for v in jaxpr.outvars if isinstance(v, core.Var)}, []
    for eqn in reversed(jaxpr.eqns):
        if needed.intersection(eqn.outvars):
            kept.append(eqn)
            needed.update(v for v in eqn.invars if isinstance(v, core.Var))
    return kept[::-1], needed


def _marking(marked: list, in_line: bool) -> Rule:
    """Appends what a program marks to `marked`, in jitted functions that it calls too."""

    def rule(eqn: Any, values: list) -> Any:
        if eqn.primitive.name in ("jit", "pjit") and (in_line or _has_mark(eqn)):
            return inlined(eqn, values, rule)
        if _is_mark(eqn):
            marked.append(values[0].reshape(-1))
        elif _has_mark(eqn):
            raise ValueError(
                f"round: it calls for_each_client inside a lax.{eqn.primitive.name}, where it cannot be seen whose "
                "records to fetch; call it outside, or use a Federation in memory"
            )
        return NotImplemented

    return rule


def _is_mark(eqn: Any) -> bool:
    return eqn.primitive.name == "name" and eqn.params["name"] == _MARK


def _has_mark(eqn: Any) -> bool:
    """In the programs that an equation calls."""
    values = jax.tree.leaves(list(eqn.params.values()))
    inner = [getattr(v, "jaxpr", v) for v in values]
    return any(
        _is_mark(e) or _has_mark(e) for j in inner if isinstance(j, core.Jaxpr) for e in j.eqns
    )
