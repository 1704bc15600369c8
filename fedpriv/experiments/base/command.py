"""What every command does: errors in one line, exit codes."""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax

from fedpriv.core.code_places import place
from fedpriv.core.terminal_text import printable
from fedpriv.core.user_code import is_fedprivs, last_of_user, notes_of, user_line
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.shipped import ships
from fedpriv.experiments.base.terminal import say

WHOLE = "--traceback"  # of every command


_whole: ContextVar[bool] = ContextVar(
    "whole", default=False
)  # also of a command that another one calls


def command(main: Callable[..., int]) -> Callable[..., int]:
    """A command's `main`: what is wrong with what it is given is one line and exit code 2; Ctrl-C is 130.

    An error in the user's own code is its line and exit code 1. Any other bug keeps its traceback; with --traceback,
    every error does. Its file, when it is run itself, would do nothing: it says what to type.
    """
    file = Path(main.__code__.co_filename).resolve()
    if main.__module__ == "__main__" and file.parent == Path(__file__).parents[1] / "commands":
        say(
            f"error: {file.name}: no program of its own; type: fedpriv {file.stem}", file=sys.stderr
        )
        sys.exit(2)

    @functools.wraps(main)
    def ended(argv: Sequence[str] | None = None, *args: Any, **kwargs: Any) -> int:
        given = list(sys.argv[1:] if argv is None else argv)
        asked = _whole.set(_whole.get() or WHOLE in given)
        filtering = jax.config.jax_traceback_filtering  # type: ignore[attr-defined]
        jax.config.update("jax_traceback_filtering", "off" if _whole.get() else filtering)
        try:
            return main([word for word in given if word != WHOLE], *args, **kwargs)
        except Exception as error:
            said, code = explained(error)
            say(f"error: {said}", file=sys.stderr)
            return code
        except KeyboardInterrupt:
            say("interrupted", file=sys.stderr)
            return signals.INTERRUPTED
        finally:
            _whole.reset(asked)
            jax.config.update("jax_traceback_filtering", filtering)

    return ended


def explained(error: Exception) -> tuple[str, int]:
    """What a command says of an error that it handles, and its exit code; any other is raised again.

    A ValueError of fedpriv's, or one that the user's code raises by itself, is a complaint about what was given.
    """
    if _whole.get() or isinstance(error, BrokenPipeError):  # whoever read has what he wanted
        raise error
    if isinstance(error, OSError):
        return one_line(error), 2
    if outside(error):
        raise error
    if isinstance(error, SyntaxError) and error.filename:
        at = place(error.filename, error.lineno or 1)
        return f"SyntaxError: {printable(error.msg)}\n  {at}  ({WHOLE} shows all)", 1
    line = user_line(error)
    if isinstance(error, ValueError) and _is_complaint(error):
        return "; ".join([one_line(error) + _caller(error), *notes_of(error)]), 2
    if line is None:
        raise error
    text = next((text for text in str(error).splitlines() if text.strip()), "")
    notes = "".join(f"\n  {printable(note)}" for note in notes_of(error))
    return f"{type(error).__name__}: {printable(text)}\n  {line}  ({WHOLE} shows all){notes}", 1


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Inside, nothing is wrong any more with what was given: a ValueError is a bug."""
    try:
        yield
    except ValueError as error:
        error.is_bug = True  # type: ignore[attr-defined]
        raise


def _is_complaint(error: ValueError) -> bool:
    if getattr(error, "is_bug", False):
        return False
    last = last_of_user(error)
    if last is None or is_fedprivs(error):
        return True
    source = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
    return source.lstrip().startswith("raise ")


def _caller(error: ValueError) -> str:
    """The line of the user's own file that was complained about, if the message does not name it."""
    last = last_of_user(error)
    if last is None or not is_fedprivs(error):
        return ""
    path = last.tb_frame.f_code.co_filename
    line = place(path, last.tb_lineno)
    return "" if ships(path) or line in str(error) else f" ({line})"


def one_line(error: Exception) -> str:
    """An error's message in one line."""
    return printable(re.sub(r"\s+", " ", outside(error) or str(error)).strip())
