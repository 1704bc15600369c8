"""A round is traced once more: one that counts or draws on the host is another program then."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fedpriv.certification.closed_over import ClosedOver, closed_over, is_array
from fedpriv.certification.information_flow import made_by_checkify, where
from fedpriv.core.jaxprs import programs, programs_in


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
    with _in_full():
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
    of_one, of_other = (_numbered(jaxpr) for jaxpr in (one, other))
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
    if _numbers(one.outvars, of_one) != _numbers(other.outvars, of_other):
        yield "what it gives back"


def _numbered(jaxpr: Jaxpr) -> dict[Any, int]:
    """The variables of a program by the order in which they are bound."""
    outputs = (v for eqn in jaxpr.eqns for v in eqn.outvars)
    return dict(zip([*jaxpr.constvars, *jaxpr.invars, *outputs], count(), strict=False))


def _same_inputs(a: JaxprEqn, b: JaxprEqn, of_a: dict[Any, int], of_b: dict[Any, int]) -> bool:
    """Whether two equations are given the same; checkify numbers errors anew in every trace."""
    if _numbers(a.invars, of_a) == _numbers(b.invars, of_b):
        return True
    return made_by_checkify(a) and _atoms(a, of_a) == _atoms(b, of_b)


def _same_equation(a: JaxprEqn, b: JaxprEqn) -> bool:
    """Without the programs that it calls, and what it is given."""
    if a.primitive.name != b.primitive.name or len(a.outvars) != len(b.outvars):
        return False
    if a.params.keys() != b.params.keys():
        return False
    kinds = zip((v.aval for v in a.outvars), (v.aval for v in b.outvars), strict=True)
    if not all(x == y or _text(x) == _text(y) for x, y in kinds):
        return False
    pairs = ((x, b.params[name]) for name, x in a.params.items())
    return a.primitive.name == "check" or all(_same_parameter(x, y) for x, y in pairs)  # checkify's


def _same_parameter(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is type(y) and isinstance(x, int | str):
        return bool(x == y)
    return _text(_rest(x)) == _text(_rest(y))


def digest(program: ClosedJaxpr) -> str:
    """What tells a program, and the arrays that it closes over, from others; the same whatever was traced before."""
    with _in_full():
        found = hashlib.sha256("\n".join(_told(program.jaxpr)).encode())
    for each in closed_over(program):
        is_key = jnp.issubdtype(each.array.dtype, jax.dtypes.prng_key)
        found.update(
            np.asarray(jax.random.key_data(each.array) if is_key else each.array).tobytes()
        )
    return found.hexdigest()


def _told(jaxpr: Jaxpr) -> Iterator[str]:
    numbers = _numbered(jaxpr)
    for eqn in jaxpr.eqns:
        rest = [name + _text(_rest(value)) for name, value in sorted(eqn.params.items())]
        kinds = [v.aval for v in eqn.outvars]
        line = f"{eqn.primitive.name} {_atoms(eqn, numbers)} {kinds} {rest}"
        # JAX remembers what it traced for 1 and gives it for np.int64(1), or the other way round.
        yield re.sub(r"np\.\w+\(([^()]*)\)", r"\1", line)
        for inner in programs(eqn):
            yield from _told(inner.jaxpr)
    yield str(_numbers(jaxpr.outvars, numbers))


def _rest(value: Any) -> Any:
    """A parameter of an equation without the programs in it."""
    if not programs_in(value):
        return value
    return [x for x in jax.tree.leaves(value) if not isinstance(x, ClosedJaxpr | Jaxpr)]


def _atoms(eqn: JaxprEqn, numbers: dict[Any, int]) -> list[Any]:
    """What an equation is given; checkify numbers errors anew in every trace."""
    has_literals = any(isinstance(v, Literal) for v in eqn.invars)
    return _numbers(eqn.invars, numbers, literals=not (has_literals and made_by_checkify(eqn)))


def _numbers(atoms: Any, numbers: dict[Any, int], literals: bool = True) -> list[Any]:
    def plain(v: Any) -> Any:
        if not isinstance(v, Literal):
            return numbers.get(v)
        return _text(v.val) if literals and not is_array(v) else ""  # arrays are compared before

    return [plain(v) for v in atoms]


def _in_full() -> AbstractContextManager[Any]:
    """Inside, the text of an array is all of it."""
    return np.printoptions(threshold=sys.maxsize, floatmode="unique")


def _text(of: Any) -> str:
    """All of it but addresses: functions are made anew in every trace."""
    return re.sub(r"0x[0-9a-f]+", "", str(of))


def same_array(one: Any, other: Any) -> bool:
    """Whether arrays of the two traces are the same to the bit, NaN included."""
    if one is other:
        return True
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (one, other)):
        return one.dtype == other.dtype and same_array(*map(jax.random.key_data, (one, other)))
    if (one.dtype, np.shape(one)) != (other.dtype, np.shape(other)):
        return False  # before any is fetched from a device
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
