"""What autodoc shows of a name: its readable signature, its docstring with links, no fields without words."""

import re

from signatures import readable
from sphinx.application import Sphinx

OURS = re.compile(r"(?<![`:\w])`fp\.([\w.]+)`")
LITERAL = re.compile(r"(``.+?``|`[^`\n]+`)")


def signature(app, kind, name, value, options, args, returned) -> tuple[str, str] | None:
    return readable(value) if kind in ("function", "method", "class") else None


def docstring(app, kind, name, value, options, lines: list[str]) -> None:
    lines[:] = map(plain_line, lines)


def plain_line(line: str) -> str:
    """A docstring's line as reStructuredText: `fp.name` is a link, a bar is a bar."""
    parts = LITERAL.split(line)
    parts[::2] = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts[::2]]
    return OURS.sub(r":py:obj:`fp.\1 <fedpriv.\1>`", "".join(parts))


def skip(app, kind, name, value, skipped, options) -> bool | None:
    """Fields of a named tuple, whose words stand in its docstring."""
    return True if (getattr(value, "__doc__", None) or "").startswith("Alias for field") else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
