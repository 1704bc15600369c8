"""How a complaint about an argument is worded: one line, with its name, what was given and the remedy."""

from __future__ import annotations

import math

import jax


def require(ok: bool, name: str, value: object, remedy: str) -> None:
    """Raises ValueError unless `ok`, in one line with the argument's name, what was given and the remedy."""
    if not ok:
        raise ValueError(f"{name}: {shown(value)}; {remedy}")


def shown(value: object) -> str:
    """How a complaint shows an argument, in a few words."""
    if isinstance(value, jax.core.Tracer):
        return "a traced value, which is not known before the program is compiled"
    function = getattr(value, "__name__", None) if callable(value) else None
    if function:
        return f"the function {function}, not what it returns"
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    if getattr(value, "ndim", 0) and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"  # type: ignore[attr-defined]
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a bundle of functions
        return f"an object of type {type(value).__name__}"
    try:
        text = repr(value)
    except Exception:  # of a class of the user's own
        text = "\n"
    if isinstance(value, str) and len(text) > 60:
        return text[:57] + "...'"
    if len(text) > 60 or "\n" in text:
        return f"an object of type {type(value).__name__}"
    return text
