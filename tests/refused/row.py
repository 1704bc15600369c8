"""A row: what is called, the field that the error names, and what else its line shows."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """What must be refused; the modules write it as a tuple.

    Attributes:
      name: what is refused, in words, for people who read which one failed.
      call: does what is refused; all that it needs is made within it.
      field: with which the line begins, or which it names.
      shown: what the line shows of the value that was given, or a word of the cause; a tuple where it shows several, or
        where people act on the words that say what to do.
      error: the type that is raised.
    """

    name: str
    call: Callable[[], Any]
    field: str
    shown: str | tuple[str, ...]
    error: type[Exception] = ValueError
