"""Signatures that a person can read: types and defaults as the source writes them, not as Python prints objects."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, ForwardRef

HIDDEN = {"seal"}
"""Fields that the library sets itself, beside those that begin with an underscore."""


def readable(value: Callable[..., Any]) -> tuple[str, str] | None:
    """(arguments, what is returned) as text; None where there is no signature."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    defaults = _written_defaults(value)
    shown = [
        _shown(parameter, defaults)
        for name, parameter in signature.parameters.items()
        if not name.startswith("_") and name not in HIDDEN | {"self"}
    ]
    returned = "" if isinstance(value, type) else _type(signature.return_annotation)
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)), (
        "" if returned == "None" else returned
    )


class _Written:
    """Prints as the text that it holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(parameter: inspect.Parameter, defaults: dict[str, str]) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty:
        default = _Written(defaults.get(parameter.name, "..."))
    return parameter.replace(annotation=_annotation(parameter.annotation), default=default)


def _annotation(annotation: Any) -> Any:
    return annotation if annotation is inspect.Parameter.empty else _Written(_type(annotation))


def _type(annotation: Any) -> str:
    """As the source writes it."""
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


@functools.cache
def _tree(value: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


def _written_defaults(value: Callable[..., Any]) -> dict[str, str]:
    """Name -> the text of its default, of a function's arguments or of a class's fields, inherited ones too."""
    if isinstance(value, type):
        found: dict[str, str] = {}
        for base in reversed(value.__mro__):
            found |= _of_fields(_tree(base))
        return found
    return _of_arguments(_tree(inspect.unwrap(value)))


def _of_arguments(tree: ast.AST | None) -> dict[str, str]:
    if not isinstance(tree, ast.FunctionDef):
        return {}
    given = tree.args
    places = [*given.posonlyargs, *given.args]
    pairs = [*zip(reversed(places), reversed(given.defaults), strict=False)]
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return {argument.arg: ast.unparse(default) for argument, default in pairs if default}


def _of_fields(tree: ast.AST | None) -> dict[str, str]:
    if not isinstance(tree, ast.ClassDef):
        return {}
    fields = [x for x in tree.body if isinstance(x, ast.AnnAssign) and x.value]
    return {x.target.id: _of_field(x.value) for x in fields if isinstance(x.target, ast.Name)}


def _of_field(default: ast.expr) -> str:
    """Of `field(default=1)` the 1; of `field(default_factory=dict)` `dict()`."""
    if not (isinstance(default, ast.Call) and ast.unparse(default.func).endswith("field")):
        return ast.unparse(default)
    given = {keyword.arg: keyword.value for keyword in default.keywords}
    if "default" in given:
        return ast.unparse(given["default"])
    factory = given.get("default_factory")
    return f"{ast.unparse(factory)}()" if isinstance(factory, ast.Name) else "..."
