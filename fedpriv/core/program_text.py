"""Programs as text: what tells one from others, the same whatever was traced before."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count, takewhile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fedpriv.core.code_places import is_users_file
from fedpriv.core.jaxprs import programs, programs_in

LARGE = 10**6
"""Bytes of an array that is not looked at, such as of a network's public base."""


def digest(program: ClosedJaxpr, most: float = LARGE) -> str:
    """What tells a program from others; of arrays that it closes over above `most` bytes their shapes and types."""
    with in_full():
        return hashlib.sha256("\n".join(_told(program, most)).encode()).hexdigest()


def _told(program: ClosedJaxpr, most: float) -> Iterator[str]:
    jaxpr = program.jaxpr
    yield from (_array(value, most) for value in program.consts)
    yield str([v.aval for v in jaxpr.invars])
    numbers = numbered(jaxpr)
    for eqn in jaxpr.eqns:
        params = [name + text(rest(value)) for name, value in sorted(eqn.params.items())]
        kinds = [v.aval for v in eqn.outvars]
        where = eqn.ctx.compute_type, eqn.ctx.threefry_partitionable
        line = f"{eqn.primitive.name} {atoms(eqn, numbers)} {kinds} {params} {where}"
        # JAX remembers what it traced for 1 and gives it for np.int64(1), or the other way round.
        yield re.sub(r"np\.\w+\(([^()]*)\)", r"\1", line)
        yield from (_array(v.val, most) for v in eqn.invars if is_array(v))
        for inner in programs(eqn):
            yield from _told(inner, most)
    yield str(numbers_of(jaxpr.outvars, numbers))


def _array(array: Any, most: float) -> str:
    if isinstance(array, jax.core.Tracer):
        return str(array.aval)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if array.size * array.dtype.itemsize > most:
        return f"{array.dtype}{np.shape(array)}"
    value = hashlib.sha256(np.asarray(array).tobytes()).hexdigest()
    return f"{array.dtype}{np.shape(array)} {value}"


def numbered(jaxpr: Jaxpr) -> dict[Any, int]:
    """The variables of a program by the order in which they are bound."""
    outputs = (v for eqn in jaxpr.eqns for v in eqn.outvars)
    return dict(zip([*jaxpr.constvars, *jaxpr.invars, *outputs], count(), strict=False))


def rest(value: Any) -> Any:
    """A parameter of an equation, without the programs in it."""
    if not programs_in(value):
        return value
    return [x for x in jax.tree.leaves(value) if not isinstance(x, ClosedJaxpr | Jaxpr)]


def atoms(eqn: JaxprEqn, numbers: dict[Any, int]) -> list[Any]:
    """What an equation is given; checkify numbers errors anew in every trace."""
    has_literals = any(isinstance(v, Literal) for v in eqn.invars)
    return numbers_of(eqn.invars, numbers, literals=not (has_literals and made_by_checkify(eqn)))


def numbers_of(atoms: Any, numbers: dict[Any, int], literals: bool = True) -> list[Any]:
    """Of inputs or outputs; a number that is written into the program is its text."""

    def plain(v: Any) -> Any:
        if not isinstance(v, Literal):
            return numbers.get(v)
        return text(v.val) if literals and not is_array(v) else ""  # arrays are compared before

    return [plain(v) for v in atoms]


def in_full() -> AbstractContextManager[Any]:
    """Inside, the text of an array is all of it."""
    return np.printoptions(threshold=sys.maxsize, floatmode="unique", legacy=False)


def text(of: Any) -> str:
    """All of it but addresses, as functions are made anew in every trace; sets in one order, as Python has none."""
    return _SET.sub(_in_order, re.sub(r"0x[0-9a-f]+", "", str(of)))


_SET = re.compile(r"(?:frozenset\()?\{([^{}:]*)\}\)?")


def _in_order(found: re.Match[str]) -> str:
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


def is_array(atom: Any) -> bool:
    """Whether an input or output is an array that is written into the program, and no number."""
    return isinstance(atom, Literal) and (isinstance(atom.val, jax.Array) or np.ndim(atom.val) > 0)


def made_by_checkify(eqn: JaxprEqn) -> bool:
    """Whether checkify made an equation, which numbers its errors by a count of its own."""
    ours = [f.file_name for f in getattr(eqn.source_info.traceback, "frames", ())]
    return any("checkify" in name for name in takewhile(lambda f: not is_users_file(f), ours))
