"""A round is traced once more: one that counts or draws on the host is another program then."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedpriv.certification.closed_over import closed_over
from fedpriv.certification.information_flow import made_by_checkify, where
from fedpriv.core.jaxprs import programs, programs_in


def check_same(one: ClosedJaxpr, other: ClosedJaxpr, made: str | None = None) -> None:
    """Raises ValueError: the programs differ, and where; `made` as `closed_over`."""
    before, after = closed_over(one, made), closed_over(other, made)
    arrays = zip(before, after, strict=False)
    line = next((line for (a, line), (b, _) in arrays if not same_array(a, b)), None)
    if line is None and _text(one.jaxpr) != _text(other.jaxpr):
        line = _first_changed_equation(one.jaxpr, other.jaxpr)
    if line is None and len(before) == len(after):
        return
    raise ValueError(
        f"round: traced again it is another program{f' ({line})' if line else ''}; it counts or draws on the host "
        "(np.random, a global): take numbers from its key and its state"
    )


def _first_changed_equation(one: Jaxpr, other: Jaxpr) -> str | None:
    """The line of the first equation that is another, in the innermost program."""
    of_one, of_other = (_numbered(jaxpr) for jaxpr in (one, other))
    for a, b in zip(one.eqns, other.eqns, strict=False):
        inner = zip(programs(a), programs(b), strict=False)
        if line := next(
            filter(None, (_first_changed_equation(x.jaxpr, y.jaxpr) for x, y in inner)), None
        ):
            return line
        if _alone(a, of_one) != _alone(b, of_other):
            return where(a)
    surplus = max(one.eqns, other.eqns, key=len)[min(len(one.eqns), len(other.eqns)) :]
    if surplus:
        return where(surplus[0])
    same = _atoms(one.outvars, of_one) == _atoms(other.outvars, of_other)
    return None if same else "what it gives back"


def _numbered(jaxpr: Jaxpr) -> dict[Any, int]:
    """The variables of a program by the order in which they are bound."""
    outputs = (v for eqn in jaxpr.eqns for v in eqn.outvars)
    return dict(zip([*jaxpr.constvars, *jaxpr.invars, *outputs], count(), strict=False))


def _alone(eqn: Any, numbers: dict[Any, int]) -> tuple:
    """An equation without the programs that it calls; checkify numbers errors anew in every trace."""
    name = eqn.primitive.name
    inputs = _atoms(eqn.invars, numbers, literals=not made_by_checkify(eqn))
    settings = [
        (setting, _text(value))
        for setting, value in sorted(eqn.params.items())
        if name != "check" and not programs_in(value)
    ]
    return name, inputs, [str(v.aval) for v in eqn.outvars], settings, len(programs(eqn))


def _atoms(atoms: Any, numbers: dict[Any, int], literals: bool = True) -> list[Any]:
    return [
        (_text(v.val) if literals else "") if isinstance(v, Literal) else numbers.get(v)
        for v in atoms
    ]


def _text(of: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(of))


def same_array(one: Any, other: Any) -> bool:
    """To the bit, NaN included."""
    if one is other:
        return True
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (one, other)):
        return one.dtype == other.dtype and same_array(*map(jax.random.key_data, (one, other)))
    a, b = np.asarray(one), np.asarray(other)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
