"""python -m experiments [COMMAND ...]: what the commands are; runs one of them."""

from __future__ import annotations

import difflib
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.terminal import say

HEAD = re.compile(r'"""python -m experiments\.(\w+)[^:]*: (.+?)\.?(?:""")?$')
ORDER = ("run", "sweep", "compare", "report", "privacy", "audit", "inversion", "reproduce")


def commands() -> dict[str, str]:
    """Name -> what it does, from the first line of its file; nothing is imported."""
    here = Path(__file__).parent
    found = {}
    for file in sorted([*here.glob("*.py"), *here.glob("*/__main__.py")]):
        with file.open(encoding="utf-8") as text:
            if head := HEAD.match(next(text, "").rstrip()):
                found[head[1]] = head[2]
    first = [name for name in ORDER if name in found]
    return {name: found[name] for name in dict.fromkeys([*first, *found])}


def main(argv: Sequence[str] | None = None) -> int:
    name, *rest = [*(sys.argv[1:] if argv is None else argv), ""]
    found = commands()
    if name in ("", "-h", "--help", "--list"):
        say("python -m experiments COMMAND [--help], or python -m experiments.COMMAND\n")
        say("\n".join(f"  {command:<17} {does}" for command, does in found.items()))
        return 0
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        meant = f"did you mean {near[0]}? Choose" if near else "choose"
        say(f"error: COMMAND: there is no {name!r}; {meant} {', '.join(found)}", file=sys.stderr)
        return 2
    sys.argv[1:] = rest[:-1]
    runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
