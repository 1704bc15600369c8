"""Named tuples that check their fields, as dataclasses do by `arguments.check_fields`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import jax

from fedpriv.core.arguments import checked, kinds_of_fields
from fedpriv.core.complaints import require

T = TypeVar("T", bound=Any)
_SUCH_AS = {"optimizer": " of the round, such as lambda t: optax.sgd(0.1)"}


@functools.cache
def _functions(cls: Any) -> frozenset[str]:
    """The fields that are functions."""
    hints = get_type_hints(cls)
    parts = {name: (hints[name], *get_args(hints[name])) for name in cls._fields}
    return frozenset(
        n for n, kind in parts.items() if any(get_origin(one) is Callable for one in kind)
    )


def _in_a_line(self: Any) -> str:
    defaults = self._field_defaults
    pairs = zip(self._fields, self, strict=True)
    given = {n: v for n, v in pairs if n not in defaults or not _same(v, defaults[n])}
    given.pop("seal", None)  # which repeats the other fields
    shown = {n: _name(v) for n, v in given.items()}
    first = {text: n for n, text in reversed(shown.items())}
    once = [(n, t) for n, t in shown.items() if not callable(given[n]) or first[t] == n]
    return f"{type(self).__name__}({', '.join(f'{n}={t}' for n, t in once)})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | float | str) and value == default)


def _name(value: Any) -> str:
    """Of a function its name, as `gaussian` for what that made; of arrays no more than type and shape."""
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__)).partition(".<locals>")[0]
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)


def checking_fields(cls: T) -> T:
    """The same named-tuple class, which checks its fields, as `check_fields` does, whenever one is made.

    It prints in a line, with who made its functions and without what is as by default. It checks also what is made
    by `_replace`; not what is made where JAX takes a tree apart and puts it together again.
    """
    unchecked, names = cls.__new__, cls._fields

    @functools.wraps(unchecked)
    def new(kind: Any, *args: Any, **fields: Any) -> Any:
        kinds = kinds_of_fields(cls)
        pairs = list(zip(names, unchecked(kind, *args, **fields), strict=True))
        for name, value in pairs:
            fits = callable(value) or (value is None and name in cls._field_defaults)
            require(
                fits or name not in _functions(cls),
                name,
                value,
                f"give a function{_SUCH_AS.get(name, '')}",
            )
        return tuple.__new__(kind, [checked(n, v, kinds[n]) if n in kinds else v for n, v in pairs])

    cls.__new__ = new
    if cls.__repr__.__module__ != cls.__module__:  # none of its own
        cls.__repr__ = _in_a_line
    cls._make = classmethod(lambda kind, fields: kind(*fields))
    keys = [jax.tree_util.GetAttrKey(name) for name in names]
    jax.tree_util.register_pytree_with_keys(
        cls,
        lambda made: (list(zip(keys, made, strict=True)), None),
        lambda _, leaves: tuple.__new__(cls, leaves),
    )
    return cls


def refusing(gone: Mapping[str, str]) -> Callable[[T], T]:
    """For a named-tuple class that had these fields: whoever gives one is told in a line what to write instead."""

    def check(given: Mapping[str, Any]) -> None:
        for name in gone.keys() & given.keys():
            require(False, name, given[name], gone[name])

    def refuse(cls: T) -> T:
        make, change = cls.__new__, cls._replace

        @functools.wraps(make)
        def new(kind: Any, *args: Any, **fields: Any) -> Any:
            check(fields)
            return make(kind, *args, **fields)

        @functools.wraps(change)
        def replaced(self: Any, /, **fields: Any) -> Any:
            check(fields)
            return change(self, **fields)

        cls.__new__, cls._replace = new, replaced
        return cls

    return refuse
