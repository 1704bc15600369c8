"""What fedpriv offers: its public functions, classes and methods, and the kinds of their arguments."""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

import fedpriv as fp
from fedpriv.core.arguments import kind_of

UNIONS = (types.UnionType, Union)


class Public(NamedTuple):
    """A public function, class or method.

    Attributes:
      function: itself; of a method, unbound.
      hints: parameter -> type hint.
      kinds: parameter -> the kind that its hint names.
      owner: of a method, its class.
    """

    function: Callable[..., Any]
    hints: dict[str, Any]
    kinds: dict[str, Any]
    owner: type | None


@functools.cache
def everything() -> Mapping[str, Public]:
    """Name -> what fedpriv offers under that name."""
    found = {name: _public(function, owner) for name, function, owner in _walk(fp, "")}
    return {name: each for name, each in found.items() if each}


def _walk(module: Any, path: str) -> Iterator[tuple[str, Any, type | None]]:
    for name in getattr(module, "__all__", None) or _own_names(module):
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield from _walk(value, f"{path}{name}.")
        elif inspect.isclass(value):
            yield path + name, value, None
            for method in (n for n in vars(value) if n[0] != "_"):
                raw = inspect.getattr_static(value, method)
                if inspect.isfunction(raw):
                    yield f"{path}{name}.{method}", raw, value
                elif isinstance(raw, classmethod | staticmethod):
                    yield f"{path}{name}.{method}", getattr(value, method), None
        elif inspect.isfunction(value):
            yield path + name, value, None


def _own_names(module: Any) -> list[str]:
    def own(value: Any) -> bool:
        made = inspect.isfunction(value) or inspect.isclass(value)
        return made and value.__module__ == module.__name__

    return [name for name, value in vars(module).items() if name[0] != "_" and own(value)]


def _public(function: Any, owner: type | None) -> Public | None:
    """None for what takes no arguments of its own: exceptions, and texts."""
    if inspect.isclass(function) and issubclass(function, BaseException | str):
        return None
    fields = hasattr(function, "_fields") or dataclasses.is_dataclass(function)
    described = function if fields or not inspect.isclass(function) else function.__init__
    hints = get_type_hints(described, include_extras=True)
    taken = [name for name in inspect.signature(function).parameters if name[0] != "_"]
    hints = {name: hints[name] for name in taken if name in hints}
    return Public(function, hints, {n: h for n, h in hints.items() if kind_of(h)}, owner)


def bare(hint: Any) -> bool:
    """Whether it says of a number no more than its type; of arrays, any may do."""
    if hint in (int, float, complex):
        return True
    if get_origin(hint) in UNIONS:
        parts = get_args(hint)
        array_like = any("SupportsArray" in str(one) or one is np.ndarray for one in parts)
        return not array_like and any(map(bare, parts))
    return get_origin(hint) in (Sequence, tuple, list) and any(map(bare, get_args(hint)))
