"""Level 8: the commands, a file for each: `fedpriv NAME`, or in a checkout `python -m experiments.NAME`.

Nothing heavy is imported here.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fedpriv.core import large_pages
from fedpriv.experiments.base import signals

HEAD = re.compile(r'"""fedpriv (\w+)[^:]*: (.+?)\.?(?:""")?$')
ALSO = {"table": "compare"}  # what else a command is called
ORDER = ("run", "sweep", "compare", "report", "privacy", "audit", "inversion", "reproduce")


def listed() -> dict[str, str]:
    """Name -> what it does, from the first line of its file; nothing is imported."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        with file.open(encoding="utf-8") as text:
            if head := HEAD.match(next(text, "").rstrip()):
                found[head[1]] = head[2]
    return {name: found[name] for name in dict.fromkeys([*ORDER, *found])}


def begin() -> None:
    """What a process that is a command does first, before anything heavy is imported."""
    if is_a_command(sys.orig_argv) and large_pages.missing():
        large_pages.restart_once()
    # What imports and tracing make is not garbage: to look for that after every 700 objects, as Python does, takes a
    # tenth of the time to the first evaluation.
    gc.set_threshold(50_000)
    signals.install()


def is_a_command(words: Sequence[str]) -> bool:
    """Whether these started Python as one: by the script `fedpriv`, by `-m fedpriv` or by `-m experiments.NAME`."""
    left = iter(words[1:])
    for word in left:
        if word == "-m":
            return next(left, "").partition(".")[0] in ("fedpriv", "experiments")
        if not word.startswith("-"):
            return Path(word).name == "fedpriv"
        if re.match(r"-\w*[cm]", word):  # -c, or a module that is joined to other options
            return False
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(left, None)
    return False


def call(name: str, argv: Sequence[str]) -> int:
    """A command of this process, by one of its names: its exit code."""
    return importlib.import_module(f"{__name__}.{ALSO.get(name, name)}").main(argv)
