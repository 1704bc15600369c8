"""fedpriv [COMMAND ...], or python -m fedpriv: what the commands are; runs one of them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from fedpriv.experiments import commands
from fedpriv.experiments.base.terminal import say


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; without one prints versions, devices, and what the commands are: a line for each."""
    if argv is None:
        commands.begin()
        argv = sys.argv[1:]
    name, *rest = [*argv, ""]
    found = commands.listed()
    if name in ("", "-h", "--help", "--list", "--version"):
        say(about())
        say("\nfedpriv COMMAND [--help]\n")
        say("\n".join(f"  {command:<17} {does}" for command, does in found.items()))
        return 0
    if name not in {*found, *commands.ALSO}:
        near = difflib.get_close_matches(name, found, 1)
        meant = f"did you mean {near[0]}? Choose" if near else "choose"
        say(f"error: COMMAND: there is no {name!r}; {meant} {', '.join(found)}", file=sys.stderr)
        return 2
    return commands.call(name, rest[:-1])


def about() -> str:
    """Versions, devices, and in a checkout where the documentation is."""
    import jax

    from fedpriv import __version__
    from fedpriv.core import large_pages

    devices = jax.devices()
    lines = [
        f"fedpriv {__version__}, JAX {jax.__version__}",
        f"devices: {len(devices)} {devices[0].platform} ({devices[0].device_kind})",
        f"large pages of memory: {'asked for' if large_pages.asked_for() else 'not asked for'}",
    ]
    docs = Path(__file__).parents[1] / "docs"
    site = docs / "_build" / "docs" / "index.html"
    if (docs / "start.md").exists():
        lines.append(f"documentation: {site if site.exists() else docs / 'start.md'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
