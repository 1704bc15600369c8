"""A round is traced once more: one that counts or draws on the host is another program then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from fedpriv.certification.closed_over import ClosedOver, closed_over
from fedpriv.core.equation_lines import where
from fedpriv.core.jaxprs import programs
from fedpriv.core.program_text import (
    atoms,
    in_full,
    made_by_checkify,
    numbered,
    numbers_of,
    rest,
    text,
)


def check_same_again(
    one: ClosedJaxpr, trace_again: Callable[[], ClosedJaxpr], made: str | None = None
) -> None:
    """Raises ValueError: the program of the second trace is another one, and where; `made` as `closed_over`.

    The arrays of the first one are copied before: the second trace may write to them.
    """
    before = [each._replace(array=_copied(each.array)) for each in _arrays(one, made)]
    other = trace_again()
    after = _arrays(other, made)
    arrays = zip(before, after, strict=False)
    changed = [a.line for a, b in arrays if not same_array(a.array, b.array)]
    with in_full():
        line = next(iter(changed), None) or next(_changes(one.jaxpr, other.jaxpr), None)
    if line is None and len(before) == len(after):
        return
    raise ValueError(
        f"round: traced again it is another program{f' ({line})' if line else ''}, as it counts or draws on the host "
        "(np.random, a global); take numbers from its key and its state"
    )


def _arrays(program: ClosedJaxpr, made: str | None) -> list[ClosedOver]:
    """As `closed_over`; raises ValueError: it holds on to a value that another trace had."""
    found = closed_over(program, made)
    for each in found:
        if isinstance(each.array, jax.core.Tracer):
            raise ValueError(
                f"round: it reads a value of an earlier trace ({each.line}), which a list, an attribute or a global of "
                "yours has kept; return it instead"
            )
    return found


def _copied(array: Any) -> Any:
    """On a CPU also JAX's own may be in memory that the user writes to (DLPack); elsewhere they stay where they are."""
    if isinstance(array, jax.Array):
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        if is_key or any(device.platform != "cpu" for device in array.devices()):
            return array
    return np.array(array)


def _changes(one: Jaxpr, other: Jaxpr) -> Iterator[str]:
    """The lines of the equations that are others, those of the programs that an equation calls before its own."""
    if one is other:
        return
    of_one, of_other = (numbered(jaxpr) for jaxpr in (one, other))
    for a, b in zip(one.eqns, other.eqns, strict=False):
        of_a, of_b = programs(a), programs(b)
        for x, y in zip(of_a, of_b, strict=False):
            yield from _changes(x.jaxpr, y.jaxpr)
        same = len(of_a) == len(of_b) and _same_equation(a, b)
        if not (same and _same_inputs(a, b, of_one, of_other)):
            yield where(a)
    surplus = max(one.eqns, other.eqns, key=len)[min(len(one.eqns), len(other.eqns)) :]
    if surplus:
        yield where(surplus[0])
    if numbers_of(one.outvars, of_one) != numbers_of(other.outvars, of_other):
        yield "what it gives back"


def _same_inputs(a: JaxprEqn, b: JaxprEqn, of_a: dict[Any, int], of_b: dict[Any, int]) -> bool:
    """Whether two equations are given the same; checkify numbers errors anew in every trace."""
    if numbers_of(a.invars, of_a) == numbers_of(b.invars, of_b):
        return True
    return made_by_checkify(a) and atoms(a, of_a) == atoms(b, of_b)


def _same_equation(a: JaxprEqn, b: JaxprEqn) -> bool:
    """Without the programs that it calls, and what it is given."""
    if a.primitive.name != b.primitive.name or len(a.outvars) != len(b.outvars):
        return False
    if a.params.keys() != b.params.keys():
        return False
    kinds = zip((v.aval for v in a.outvars), (v.aval for v in b.outvars), strict=True)
    if not all(x == y or text(x) == text(y) for x, y in kinds):
        return False
    pairs = ((x, b.params[name]) for name, x in a.params.items())
    return a.primitive.name == "check" or all(_same_parameter(x, y) for x, y in pairs)  # checkify's


def _same_parameter(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is type(y) and isinstance(x, int | str):
        return bool(x == y)
    return text(rest(x)) == text(rest(y))


def same_array(one: Any, other: Any) -> bool:
    """Whether arrays of the two traces are the same to the bit, NaN included."""
    if one is other:
        return True
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (one, other)):
        return one.dtype == other.dtype and same_array(*map(jax.random.key_data, (one, other)))
    if (one.dtype, np.shape(one)) != (other.dtype, np.shape(other)):
        return False  # before any is fetched from a device
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
