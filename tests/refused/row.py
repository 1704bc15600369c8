"""A row: what is called, the field that the error names, and the value that it shows."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """What must be refused.

    Attributes:
      name: what is refused, in words, for people who read which one failed.
      call: does what is refused; all that it needs is made within it.
      field: with which the line begins, or which it names.
      value: what the line shows of the value that was given; "" where there is none to show.
      error: the type that is raised.
      remedy: of the few errors by which people act, words that say what to do; "" otherwise.
    """

    name: str
    call: Callable[[], Any]
    field: str
    value: str = ""
    error: type[Exception] = ValueError
    remedy: str = ""
