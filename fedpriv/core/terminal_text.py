"""Text for people on a terminal: lines of its width, and nothing that it would act on."""

from __future__ import annotations

import shutil
import textwrap
from typing import TextIO

NO_TERMINAL = 10_000
PROSE = 100  # characters of a line that is read, however wide the terminal


def terminal_width(stream: TextIO) -> int:
    """Columns of text on the terminal that `stream` writes to; more than anything needs where it is none."""
    return shutil.get_terminal_size((PROSE, 24)).columns if stream.isatty() else NO_TERMINAL


def wrapped(text: str, most: int) -> str:
    """Text on lines of at most so many columns."""
    return textwrap.fill(text, min(most, PROSE), subsequent_indent="    ", break_on_hyphens=False)


def printable(text: str) -> str:
    """What a terminal would act on is shown as Python writes it."""
    return text if text.isprintable() else "".join(map(_shown, text))


def span(seconds: float) -> str:
    """For people: "about 12 min"."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.2g} h"


def counted(number: int, thing: str) -> str:
    """Such as "1 client", or "2 clients"."""
    return f"{number} {thing}" + "s" * (number != 1)


def _shown(c: str) -> str:
    return c if c.isprintable() else ascii(c)[1:-1]
