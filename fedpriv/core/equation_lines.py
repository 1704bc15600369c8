"""Which line of code made an equation of a traced program, for errors."""

from __future__ import annotations

from itertools import takewhile

from jax.extend.core import JaxprEqn

from fedpriv.core.code_places import is_jax_file, is_users_file, place
from fedpriv.core.jaxprs import trace_program

NOWHERE = ":?"
"""The line of an equation of which JAX does not know it."""


def where(eqn: JaxprEqn) -> str:
    """Of an equation, file and line of the user's code, where JAX has them; else of what made the equation."""
    return users_line(eqn) or next((place(*frame) for frame in _frames(eqn)), NOWHERE)


def users_line(eqn: JaxprEqn) -> str | None:
    """File and line of the user's code that made an equation, where there is some."""
    return next((place(*frame) for frame in _frames(eqn) if is_users_file(frame[0])), None)


def _frames(eqn: JaxprEqn) -> list[tuple[str, int]]:
    """(file, line), from what made an equation up to what is traced, where JAX has them; JAX's own are left out."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return []
    codes, _ = traceback.raw_frames()
    inside = takewhile(lambda code: code is not trace_program.__code__, codes)
    frames = [frame for frame, _ in zip(traceback.frames, inside, strict=False)]
    return [(f.file_name, f.line_num) for f in frames if not is_jax_file(f.file_name)]
