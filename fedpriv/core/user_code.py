"""Where an error comes from in the user's own code, which is what its traceback should show."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import jax

from fedpriv.core.callers import is_users_frame
from fedpriv.core.code_places import is_jax_file, is_our_file, place

P = ParamSpec("P")
R = TypeVar("R")

_OURS = "is_fedprivs"
"""Attribute of an error whose message is fedpriv's, once the frame that shows it is gone."""
_HIDDEN = "JAX_TRACEBACK_FILTERING"
_TELLING = re.compile(
    r"This concrete value was not .*|The leaked intermediate value was .*|See https:.*"
)
"""What of the later lines of JAX's own errors tells something."""
_REMEDIES = {
    jax.errors.TracerArrayConversionError: "use jax.numpy in the place of NumPy, as "
    "jnp.asarray(table)[label] or jnp.exp(x)",
    jax.errors.TracerIntegerConversionError: "use jnp.asarray(values)[i] in the place of a list, and jax.lax.fori_loop "
    "in the place of range(n)",
    jax.errors.TracerBoolConversionError: "use jnp.where(condition, a, b) or jax.lax.cond in the place of `if`, `and` "
    "and `while`",
    jax.errors.NonConcreteBooleanIndexError: "use jnp.where(mask, x, 0) in the place of x[mask]",
    jax.errors.ConcretizationTypeError: "leave it an array, without float(), int() or .item(), and shapes to numbers "
    "that are known",
    jax.errors.UnexpectedTracerError: "return it, in the place of keeping it in a list, an attribute or a global",
}
"""Of JAX's errors about values that are not known while a function is traced, special ones first."""


def names_user_code(fn: Callable[P, R]) -> Callable[P, R]:
    """An error in what the user gave `fn` (a round, a loss, a score) shows the user's frames and one line.

    The frames of fedpriv and libraries are left out, as JAX leaves out its own, and so are errors that they caught
    meanwhile; what JAX says comes in one line. An error in which no code of the user's has a part shows where in
    fedpriv it was. JAX_TRACEBACK_FILTERING=off leaves all of it as it is.
    """

    @functools.wraps(fn)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if jax.config.jax_traceback_filtering != "off":  # type: ignore[attr-defined]
                _show_users_code(error)
            raise

    return named


def user_line(error: BaseException) -> str | None:
    """The user's own line, as "my_config.py:34, in round: x = 1 / 0"; None where the error comes from none."""
    if not (entry := last_of_user(error)):
        return None
    code = entry.tb_frame.f_code
    source = linecache.getline(code.co_filename, entry.tb_lineno).strip()
    where = f"{place(code.co_filename, entry.tb_lineno)}, in {code.co_name}"
    return f"{where}: {source}" if source else where


def last_of_user(error: BaseException) -> TracebackType | None:
    """The user's own line, the last of them if there are several."""
    users = [entry for entry in _entries(error.__traceback__) if is_users_frame(entry.tb_frame)]
    return users[-1] if users else None


def is_fedprivs(error: BaseException) -> bool:
    """Whether the message is fedpriv's: the error was raised by a statement of its own, not by what that called."""
    last = next(reversed(list(_entries(error.__traceback__))), None)
    own = last is not None and is_our_file(last.tb_frame.f_code.co_filename) and _raises(last)
    return own or getattr(error, _OURS, False)


def notes_of(error: BaseException) -> list[str]:
    """What was added to an error, without JAX's word that it left frames out."""
    return [note for note in getattr(error, "__notes__", ()) if _HIDDEN not in note]


def _is_jaxs(error: BaseException, last: TracebackType, notes: Sequence[str]) -> bool:
    """Whether the message is JAX's, whose own frames it may have left out itself, and says so in a note."""
    its = type(error).__module__ == "jax.errors" or is_jax_file(last.tb_frame.f_code.co_filename)
    return its or (any(_HIDDEN in note for note in notes) and not _raises(last))


def _raises(entry: TracebackType) -> bool:
    """Whether it stands at a `raise` itself."""
    source = linecache.getline(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
    return source.lstrip().startswith("raise")


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace:
        yield trace
        trace = trace.tb_next


def _show_users_code(error: BaseException) -> None:
    entries = list(_entries(error.__traceback__))
    users = [entry for entry in entries if is_users_frame(entry.tb_frame)]
    if is_fedprivs(error):
        setattr(error, _OURS, True)
    notes = getattr(error, "__notes__", [])
    if users and _is_jaxs(error, entries[-1], notes):
        _in_one_line(error)
        _add_remedy(error, users[-1])
    notes[:] = notes_of(error)
    kept = users
    if not (users or is_fedprivs(error)):  # a bug, or a mistake that is not foreseen
        kept = [e for e in entries if is_our_file(e.tb_frame.f_code.co_filename)][-1:]
        error.add_note(f"{_HIDDEN}=off shows all frames")
    error.__traceback__ = _linked(kept)
    _show_users_causes(error)


def _show_users_causes(error: BaseException) -> None:
    """Of the errors before this one those that the user's own code caught."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is None:
        return
    entries = list(_entries(before.__traceback__))
    if entries and is_users_frame(entries[0].tb_frame):
        before.__traceback__ = _linked([e for e in entries if is_users_frame(e.tb_frame)])
        _show_users_causes(before)
    else:
        error.__cause__ = None  # hides the context, too


def _linked(entries: Sequence[TracebackType]) -> TracebackType | None:
    trace = None
    for entry in reversed(entries):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace


def _add_remedy(error: BaseException, entry: TracebackType) -> None:
    """To the message of an error about a traced value what to do, and where."""
    remedies = (said for kind, said in _REMEDIES.items() if isinstance(error, kind))
    remedy = next(remedies, None)
    if remedy and remedy not in str(error):
        where = place(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
        error.args = (f"{error}; {remedy} ({where})", *error.args[1:])


def _in_one_line(error: Any) -> None:
    """The message of an error of JAX's, without the lines of fedpriv that it may name."""
    if not error.args or str(error) != error.args[0]:
        return
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__module__ == "jax.errors":
        lines[1:] = [found[0] for line in lines[1:] if (found := _TELLING.search(line))]
    error.args = (" ".join(lines), *error.args[1:])
