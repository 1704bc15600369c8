"""What the user's own functions are asked, and give back: one line where the one or the other does not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax

from fedpriv.core.code_places import is_users_file, place
from fedpriv.core.complaints import require, shown


def asked(name: str, fn: Callable[..., Any], wants: str, *args: Any) -> Any:
    """What a user's function gives back.

    Args:
      name: of the argument that the function was given as.
      wants: the arguments that it is given, in words: "(key, shard)".

    Raises:
      ValueError: it is none, or takes another number of arguments.
    """
    require(callable(fn), name, fn, f"give a function of {wants}")
    if not takes(fn, *args):
        text = f"{name}: it takes {inspect.signature(fn)}{line_of(fn)}; give a function of {wants}"
        raise ValueError(text)
    return fn(*args)


def both(
    name: str, fn: Callable[..., Any], wants: str, returns: str, *args: Any
) -> tuple[Any, Any]:
    """As `asked`, of a function that gives back two things, `returns` in words.

    Raises:
      ValueError: as `asked`, or it gives back something else.
    """
    returned = asked(name, fn, wants, *args)
    pair = isinstance(returned, tuple) and len(returned) == 2
    gives(pair, name, fn, returned, f"return {returns}")
    return returned


def takes(fn: Any, *args: Any) -> bool:
    """Whether a user's function takes so many arguments, as far as it tells."""
    try:
        inspect.signature(fn).bind(*args)
    except ValueError:  # written in C
        return True
    except TypeError:
        return False
    return True


def gives(ok: bool, name: str, fn: Callable[..., Any], given: Any, remedy: str) -> None:
    """Raises ValueError unless what a function gave back is `ok`, in one line with the line of the function."""
    if not ok:
        raise ValueError(f"{name}: {_in_words(given)} came back{line_of(fn)}; {remedy}")


def _in_words(value: Any) -> str:
    if type(value) in (tuple, list) and value:
        return f"{len(value)} values"
    return shown(jax.tree.map(lambda leaf: _Kind(leaf) if hasattr(leaf, "aval") else leaf, value))


class _Kind:
    """An array, as "float32[3]"."""

    def __init__(self, array: Any):
        self._text = f"{array.dtype}{list(array.shape)}"

    def __repr__(self) -> str:
        return self._text


def line_of(fn: Callable[..., Any]) -> str:
    """Where a function of the user's own is defined, " (my_config.py:34)"; nothing for others."""
    code = getattr(inspect.unwrap(getattr(fn, "func", fn)), "__code__", None)
    if code is None or not is_users_file(code.co_filename):
        return ""
    return f" ({place(code.co_filename, code.co_firstlineno)})"
