"""The directive `names`: a list of public names, a line each, and then what their docstrings say."""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from readable import plain_line
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective


def resolved(module: str, name: str) -> Any:
    """What the name stands for; the module may be a name in another, as `fedpriv.papers.haar` is."""
    try:
        holder: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        package, _, last = module.rpartition(".")
        holder = resolved(package, last)
    return getattr(holder, name)


def source(module: str, names: list[str]) -> list[str]:
    """The directive's meaning, in reStructuredText."""
    values = {name: resolved(module, name) for name in names}
    lines = [
        f"* :py:obj:`~{module}.{name}`: {first_line(name, value)}" for name, value in values.items()
    ]
    for name, value in values.items():
        lines += ["", *entry(f"{module}.{name}", value)]
    return lines


def entry(path: str, value: Any) -> list[str]:
    """The directive that documents one name."""
    assert not isinstance(value, ModuleType), f"{path} is a module"
    if inspect.isfunction(value):
        return [f".. autofunction:: {path}"]
    if not isinstance(value, type):
        return [f".. py:data:: {path}", "", f"   {first_line(path.rpartition('.')[2], value)}"]
    if issubclass(value, BaseException):
        return [f".. autoexception:: {path}"]
    return [f".. autoclass:: {path}", "   :members:"]


def first_line(name: str, value: Any) -> str:
    """Of its docstring, or of that below a constant."""
    documented = inspect.isfunction(value) or isinstance(value, type)
    text = inspect.getdoc(value) if documented else below(name, value)
    assert text, f"{name} has no docstring"
    return plain_line(text.partition("\n")[0])


def below(name: str, constant: Any) -> str:
    """The docstring below the constant's definition, in whichever module that is."""
    for module in [*sys.modules.values()]:
        ours = module.__name__.partition(".")[0] in ("fedpriv", "experiments")
        if ours and vars(module).get(name) is constant:
            found = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
            if ("", name) in found:
                return " ".join(found["", name]).strip()
    return ""


class Names(SphinxDirective):
    """`{names} fedpriv.models`, and below it the names."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        names = " ".join(self.content).split()
        lines = ["```{eval-rst}", *source(self.arguments[0], names), "```"]
        node = nodes.container()
        self.state.nested_parse(StringList(lines, source=""), self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("names", Names)
    return {"parallel_read_safe": True}
