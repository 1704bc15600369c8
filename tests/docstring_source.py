"""A package's public definitions with their docstrings, and the errors that each can raise; read from the source."""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

from docstring_parser import google

Node: TypeAlias = ast.FunctionDef | ast.ClassDef


class Definition:
    """A function, method or class.

    Attributes:
      name: with those of its module and class.
      module: the module's name.
      owner: the class of a method, else None.
      entries: argument or attribute -> what the docstring says of it.
    """

    def __init__(self, name: str, node: Node, module: str, owner: "Definition | None" = None):
        self.name, self.node, self.module, self.owner = name, node, module, owner
        self.text = " ".join((ast.get_docstring(node) or "").split())
        parsed = google.parse(ast.get_docstring(node) or "")
        self.entries = {
            name.strip(" *"): " ".join((entry.description or "").split())
            for entry in parsed.params
            for name in entry.arg_name.split(",")
        }
        self.raises = {entry.type_name for entry in parsed.raises}

    @cached_property
    def arguments(self) -> dict[str, ast.expr | None]:
        """Name -> annotation; of a class its public fields and those of `__init__`."""
        if isinstance(self.node, ast.ClassDef):
            starts = [x for x in self.node.body if getattr(x, "name", "") == "__init__"]
            own = [_arguments(start) for start in starts if isinstance(start, ast.FunctionDef)]
            return self.fields | (own[0] if own else {})
        return _arguments(self.node)

    @cached_property
    def fields(self) -> dict[str, ast.expr | None]:
        """A class's annotated public attributes."""
        found = (x for x in self.node.body if isinstance(x, ast.AnnAssign))
        pairs = ((x.target.id, x.annotation) for x in found if isinstance(x.target, ast.Name))
        return {name: annotation for name, annotation in pairs if not name.startswith("_")}


def _arguments(node: ast.FunctionDef) -> dict[str, ast.expr | None]:
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return {x.arg: x.annotation for x in every if x and x.arg not in ("self", "cls")}


class Raised(NamedTuple):
    error: str
    where: str


class Package:
    """The modules in a folder; names without a leading underscore, in modules without one, are public."""

    def __init__(self, folder: Path):
        self.headers: dict[str, str] = {}
        self._defined: dict[str, Definition] = {}
        self._known: dict[str, dict[str, str]] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            self._read(".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text()))

    def _read(self, module: str, tree: ast.Module) -> None:
        self.headers[module] = " ".join((ast.get_docstring(tree) or "").split())
        known = self._known[module] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in tree.body:
            if isinstance(node, Node):
                known[node.name] = name = f"{module}.{node.name}"
                owner = self._defined[name] = Definition(name, node, module)
                for method in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(method, ast.FunctionDef):
                        inner = f"{name}.{method.name}"
                        self._defined[inner] = Definition(inner, method, module, owner)

    def public(self) -> list[Definition]:
        return [x for x in self._defined.values() if _public(x.name)]

    def errors(self, of: Definition, seen: frozenset[str] = frozenset()) -> Iterator[Raised]:
        """What comes out of its body, of private helpers, and of what it hands its own arguments to."""
        if of.name in seen:
            return
        seen |= {of.name}
        if isinstance(of.node, ast.ClassDef):
            for start in ("__init__", "__post_init__"):
                if inner := self._defined.get(f"{of.name}.{start}"):
                    yield from self.errors(inner, seen)
            return
        own = set(_arguments(of.node))
        for node, caught in _reached(of.node.body, frozenset()):
            if isinstance(node, ast.Raise):
                name = _dotted(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
                if name and name[0].isupper() and name not in caught:
                    yield Raised(name, of.name)
                continue
            callee = self._called(of, node)
            if callee and (not _public(callee.name) or own & _handed_on(node)):
                found = self.errors(callee, seen)
                yield from (x for x in found if x.error not in caught)

    def _called(self, of: Definition, call: ast.Call) -> Definition | None:
        first, *rest = (_dotted(call.func) or "?").split(".")
        if of.owner and first in ("self", "cls"):
            return self._defined.get(".".join([of.owner.name, *rest]))
        name = self._meant(self._known[of.module].get(first, "?"))
        for part in rest:
            name = self._meant(f"{name}.{part}")
        return self._defined.get(name)

    def _meant(self, name: str) -> str:
        """Where a name that modules import from one another was defined."""
        module, _, last = name.rpartition(".")
        further = self._known.get(module, {}).get(last, name)
        return name if further == name else self._meant(further)


def _public(name: str) -> bool:
    return not re.search(r"(^|\.)_", name)


def _reached(
    body: list[ast.stmt], caught: frozenset[str | None]
) -> Iterator[tuple[ast.Raise | ast.Call, frozenset[str | None]]]:
    """Every `raise` of a new error and every call, with the errors that are caught around it."""
    for node in body:
        if isinstance(node, ast.Try):
            kinds = [
                x.type.elts if isinstance(x.type, ast.Tuple) else [x.type] for x in node.handlers
            ]
            yield from _reached(node.body, caught | {_dotted(kind) for x in kinds for kind in x})
            node = ast.Module(
                [*node.orelse, *node.finalbody, *(s for h in node.handlers for s in h.body)], []
            )
        if isinstance(node, ast.Call) or (isinstance(node, ast.Raise) and node.exc):
            yield node, caught
        yield from _reached(list(ast.iter_child_nodes(node)), caught)


def _dotted(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def _handed_on(call: ast.Call) -> set[str]:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return {x.id for x in given if isinstance(x, ast.Name)}
