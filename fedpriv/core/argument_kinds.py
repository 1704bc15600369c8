"""Arguments of another kind than is needed, refused where they are given."""

from __future__ import annotations

from typing import Any


def require_kind(name: str, given: Any, fits: bool, such_as: str) -> None:
    """Raises ValueError unless the argument fits; a function in the place of what it returns is named as that."""
    if fits:
        return
    function = getattr(given, "__name__", None) if callable(given) else None
    shown = repr(given)
    if function:
        shown = f"the function {function}, not what it returns"
    elif len(shown) > 60 or "\n" in shown:
        shown = f"a {type(given).__name__}"
    raise ValueError(f"{name}: got {shown}; give such as {such_as}")
