"""A round is traced once more: one that counts or draws on the host is another program then."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedpriv.certification.information_flow import programs, where
from fedpriv.certification.initial_state import closed_over


def check_same(one: ClosedJaxpr, other: ClosedJaxpr) -> None:
    """Raises ValueError: the programs differ, and where."""
    before, after = closed_over(one), closed_over(other)
    changed = _first_changed(before, after)
    if changed is None and len(before) == len(after) and _text(one.jaxpr) == _text(other.jaxpr):
        return
    line = _first_change(one.jaxpr, other.jaxpr) or changed
    raise ValueError(
        f"round: traced again it is another program{f' ({line})' if line else ''}; it counts or draws on the host "
        "(np.random, a global): take numbers from its key and its state"
    )


def _text(of: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(of))


def _first_change(one: Jaxpr, other: Jaxpr) -> str | None:
    """The line of the first equation that is another, in the innermost program."""
    for a, b in zip(one.eqns, other.eqns, strict=False):
        inner = zip(programs(a), programs(b), strict=False)
        if line := next(filter(None, (_first_change(x, y) for x, y in inner)), None):
            return line
        if _alone(a) != _alone(b):
            return where(a)
    surplus = max(one.eqns, other.eqns, key=len)[min(len(one.eqns), len(other.eqns)) :]
    return where(surplus[0]) if surplus else None


def _alone(eqn: Any) -> tuple:
    """An equation without the names of its variables, and without the programs that it calls."""
    numbers = [_text(v.val) for v in eqn.invars if isinstance(v, Literal)]
    settings = () if programs(eqn) else _text(sorted(eqn.params.items(), key=lambda item: item[0]))
    return eqn.primitive.name, numbers, [str(v.aval) for v in eqn.outvars], settings


def _first_changed(before: list[tuple[Any, str]], after: list[tuple[Any, str]]) -> str | None:
    """The line that uses the first array that is another."""
    pairs = zip(before, after, strict=False)
    return next((line for (a, line), (b, _) in pairs if not _equal(a, b)), None)


def _equal(one: Any, other: Any) -> bool:
    """To the bit, NaN included."""
    if one is other:
        return True
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (one, other)):
        return one.dtype == other.dtype and _equal(*map(jax.random.key_data, (one, other)))
    a, b = np.asarray(one), np.asarray(other)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
