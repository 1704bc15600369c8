"""Which cases of a law the default tests run: the first entry of each kind. Those of `-m slow` are the others.

A kind is what an entry says of itself: its `kind`, else its class. A new entry of a known kind runs in the full tier
alone, and the first of a new one by default, too. So plain numbers, words and tuples are cases of one kind, and the one
that notices most comes first.

Laws that train or compile for long take `one_of_each`, or what `algorithm_exceptions.varied` makes of it: there the
others of a kind run in no tier, so that a new entry runs only if it is the first of its kind.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import pytest


def kind_of(entry: Any) -> Hashable:
    """What the entry says, or its class."""
    return getattr(entry, "kind", type(entry))


def cases(
    registry: Mapping[str, Any] | Iterable[Any], kind: Callable[[Any], Hashable] = kind_of
) -> list[Any]:
    """For `parametrize`: the names of a mapping's entries, or what else is in the registry.

    Args:
      kind: what tells entries apart that differ in what the law is about, where that is not all that `kind_of` tells.
    """
    known, found = set[Hashable](), []
    named = registry.items() if isinstance(registry, Mapping) else ((one, one) for one in registry)
    for name, entry in named:
        of = kind(entry)
        found.append(pytest.param(name, marks=[pytest.mark.slow] if of in known else []))
        known.add(of)
    return found


def one_of_each(registry: Mapping[str, Any], kind: Callable[[Any], Hashable]) -> dict[str, Any]:
    """The registry's first entry of each kind alone: where others take the same path, in the full tier too."""
    first = dict[Hashable, str]()
    for name, entry in registry.items():
        first.setdefault(kind(entry), name)
    return {name: registry[name] for name in first.values()}


def every(argument: str, registry: Any, kind: Callable[[Any], Hashable] = kind_of) -> Any:
    """The decorator of a law that holds for every entry; ids are the names."""
    given = cases(registry, kind)
    return pytest.mark.parametrize(argument, given, ids=[str(one.values[0]) for one in given])
