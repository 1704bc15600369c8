"""Validation shared by the ledger: one line that names the field, its value and the remedy."""

from __future__ import annotations

import math
from numbers import Integral


def require(ok: bool, field: str, value: object, remedy: str) -> None:
    """Raises ValueError unless `ok`, naming the field, the value found and what is allowed."""
    if not ok:
        raise ValueError(f"{field} = {value!r}: {remedy}")


def require_count(field: str, value: object, least: int) -> None:
    """Raises ValueError unless `value` is an integer (Python or numpy) of at least `least`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(
        whole and int(value) >= least,  # type: ignore[call-overload]
        field,
        value,
        f"give an integer of at least {least}",
    )


def require_multiplier(value: float) -> None:
    """Raises ValueError for a negative or undefined multiplier; 0 and infinity are allowed."""
    ok = not math.isnan(value) and value >= 0
    require(ok, "multiplier", value, "give noise over sensitivity, 0 or more (0: nothing hides it)")


def require_delta(value: float) -> None:
    """Raises ValueError unless delta is a probability strictly between 0 and 1."""
    require(0 < value < 1, "delta", value, "give a probability strictly between 0 and 1")
