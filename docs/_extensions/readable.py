"""What autodoc shows of a name: its readable signature, its docstring with links, no fields without words."""

import re

from signatures import readable
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

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


def exact(app, doctree) -> None:
    """A type in a signature is no name that merely ends like it."""
    for node in doctree.findall(pending_xref):
        node.attributes.pop("refspecific", None)


def reference(app, env, node, shown):
    """A name without its module is one of fedpriv's, wherever it is written."""
    name = f"fedpriv.{node.get('reftarget')}"
    found = env.domains.python_domain.objects.get(name)
    if node.get("refdomain") != "py" or found is None:
        return None
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, shown, name)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", exact)
    app.connect("missing-reference", reference)
    return {"parallel_read_safe": True}
