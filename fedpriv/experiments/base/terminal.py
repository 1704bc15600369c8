"""Text that goes to the terminal: what a terminal would act on, such as the escape codes of a name, is shown."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from fedpriv.core.terminal_text import printable


def say(text: Any = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints, by default on standard output; whatever is printed by a command goes through here."""
    lines = map(printable, str(text).split("\n"))
    print("\n".join(lines), file=sys.stdout if file is None else file, flush=flush)
