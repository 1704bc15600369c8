"""The directive `types`: the short names of types that signatures use, and what each stands for."""

import ast
import importlib
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from readable import plain_line
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def meanings(module: str) -> dict[str, str]:
    """Name -> the docstring below its definition, else what its range says in words, else its definition."""
    loaded = importlib.import_module(module)
    body = ast.parse(Path(str(loaded.__file__)).read_text()).body
    found = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if (
            isinstance(statement, ast.AnnAssign)
            and ast.unparse(statement.annotation) == "TypeAlias"
        ):
            name = ast.unparse(statement.target)
            if not name.startswith("_"):
                found[name] = (
                    _words(after) or _range(getattr(loaded, name)) or _definition(statement)
                )
    return found


def _words(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _range(alias: object) -> str:
    return getattr(getattr(alias, "__metadata__", (None,))[0], "wanted", "")


def _definition(statement: ast.AnnAssign) -> str:
    return ast.unparse(statement.value) if statement.value else ""


class Types(SphinxDirective):
    """`{types} fedpriv.core.types fedpriv.core.arguments`"""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        found = {name: text for module in self.arguments for name, text in meanings(module).items()}
        lines = ["```{eval-rst}", ".. py:currentmodule:: fedpriv", ""]
        for name, text in sorted(found.items()):
            lines += [f".. py:type:: {name}", "", f"   {plain_line(text)}", ""]
        node = nodes.container()
        self.state.nested_parse(StringList([*lines, "```"], source=""), self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("types", Types)
    return {"parallel_read_safe": True}
