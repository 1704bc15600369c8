"""Traced programs: walked through, and evaluated by other rules than JAX's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

Rule: TypeAlias = Callable[[JaxprEqn, list[Any]], Any]
"""(equation, its inputs) -> its outputs, or NotImplemented where JAX's own primitive is to be used."""


@contextmanager
def as_compiled() -> Iterator[None]:
    """Inside, programs are traced as a run compiles them, whatever JAX's flags for debugging say.

    Without jit no loop would be there to follow. A key would count as used up where it is folded twice, and what a mark
    keeps of a mechanism as a leak.
    """
    with jax.disable_jit(False), jax.debug_key_reuse(False), jax.check_tracer_leaks(False):
        yield


def trace_program(fn: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, Any]:
    """(`fn`, traced as a run compiles it; what it gives back, in shapes)."""
    with as_compiled():
        return jax.make_jaxpr(fn, return_shape=True)(*args)


def programs(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    """The programs that an equation calls."""
    return programs_in(list(eqn.params.values()))


def programs_in(value: Any) -> list[ClosedJaxpr]:
    """The programs in a parameter of an equation, or in a container of parameters."""
    leaves = (leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, ClosedJaxpr | Jaxpr))
    return [leaf if isinstance(leaf, ClosedJaxpr) else closed(leaf) for leaf in leaves]


def closed(jaxpr: Jaxpr) -> ClosedJaxpr:
    """With its constants, whose values are not there, as further inputs."""
    invars = [*jaxpr.constvars, *jaxpr.invars]
    return ClosedJaxpr(jaxpr.replace(constvars=[], invars=invars), ())


def equations(
    jaxpr: Jaxpr, callers: tuple[JaxprEqn, ...] = ()
) -> Iterator[tuple[JaxprEqn, tuple[JaxprEqn, ...]]]:
    """Each equation of a program and of all that it calls, in order, with those that call it, the innermost first."""
    for eqn in jaxpr.eqns:
        yield eqn, callers
        for inner in programs(eqn):
            yield from equations(inner.jaxpr, (eqn, *callers))


def is_call(eqn: JaxprEqn) -> bool:
    """Whether an equation runs the one program that it calls once, on its own inputs: not once for each device, say."""
    return eqn.primitive.name in _CALLS


CUSTOM_VMAP = "custom_vmap_call"
"""Computed in another way where several are computed side by side, of which it sees them all."""
_CALLS = frozenset(
    (
        *("jit", "pjit", "call", "closed_call", "eval_jaxpr", "core_call"),
        *("checkpoint", "remat", "remat2", "linear_call"),
        *(CUSTOM_VMAP, "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    )
)


def evaluate(program: ClosedJaxpr, args: Sequence[Any], rule: Rule) -> list[Any]:
    """The outputs of a traced `program` for `args`, arrays or whatever else `rule` takes care of."""
    jaxpr = program.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*program.consts, *args], strict=True))

    def value_of(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        values = [value_of(v) for v in eqn.invars]
        out = rule(eqn, values)
        if out is NotImplemented:
            out = bind(eqn, values)
        known.update(zip(eqn.outvars, out, strict=True))
    return [value_of(v) for v in jaxpr.outvars]


def scan_operands(eqn: JaxprEqn, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """`values`, one for each input of a scan: of its constants, of what it carries, of what it runs through."""
    params = eqn.params
    if "num_consts" in params:
        consts, carry = params["num_consts"], params["num_carry"]
    else:  # since JAX 0.11
        consts, carry, _ = map(len, params["ft_in"].unpack())
    every = list(values)
    return every[:consts], every[consts : consts + carry], every[consts + carry :]


def bind(eqn: JaxprEqn, values: Sequence[Any]) -> Sequence[Any]:
    """The outputs of an equation as JAX computes it."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    # Older versions of JAX give functions beside the parameters.
    functions, params = bound if isinstance(bound, tuple | list) else ((), bound)
    # What is computed again keeps the line of the user's code that it came from.
    with source_info_util.user_context(eqn.source_info.traceback), eqn.ctx.manager:
        out = eqn.primitive.bind(*functions, *values, **params)
    return out if eqn.primitive.multiple_results else [out]
