"""Pairs and witnesses as JSON knows them, and back: numbers to the bit, infinity as "inf"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fedpriv.core.complaints import require
from fedpriv.pairs.blocks import Block
from fedpriv.pairs.divergences import Orders
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.large_losses import DirectionApart
from fedpriv.pairs.parts import check_parts
from fedpriv.pairs.separations import Rounded
from fedpriv.pairs.several import MovedBySeveral, of_law
from fedpriv.pairs.told_counts import Counted
from fedpriv.proof.pairs import All, AnyPair, Moved, Pair, Times, Told, fold
from fedpriv.proof.verify import Direction, Exact, Grid, Witness


class _Kind(NamedTuple):
    """What a name of JSON stands for.

    Attributes:
        of: the class that has all of its fields.
        made: from these; None: by the class.
        plain: the class where the last of the fields are not needed.
    """

    of: Any
    made: Callable[..., Any] | None = None
    plain: Any = None


def _direction(tilts: tuple[tuple[float, ...], ...], jumps: float = 0.0) -> Direction:
    return DirectionApart(tilts, jumps) if jumps else Direction(tilts)


_PAIRS = {
    "moved": _Kind(MovedBySeveral, of_law, Moved),
    "told": _Kind(Told),
    "block": _Kind(Block),
    "times": _Kind(Times),
    "all": _Kind(All),
    "best": _Kind(Best),
    "slack": _Kind(Slack),
    "integers": _Kind(IntegerNoise),
}
_WITNESSES = {
    "exact": _Kind(Exact),
    "rounded": _Kind(Rounded),
    "grid": _Kind(Grid),
    "direction": _Kind(DirectionApart, _direction, Direction),
    "orders": _Kind(Orders),
    "counted": _Kind(Counted),
}
_NAMES = {
    each: name
    for name, kind in (_PAIRS | _WITNESSES).items()
    for each in (kind.of, kind.plain)
    if each is not None
}
_DEEPEST = 50
_FLAGS = "replaced", "in_place"
_NO_FLAG = "give a number, or parts", "give true or false"
_MOST = 10**300


def in_short(pair: Pair) -> str:
    """A pair as a short text, by which equal ones are told from others: numbers to nine digits."""
    return fold(
        pair,
        lambda draw: f"{_name_of(draw)} {_digits(draw)}",
        lambda cases: "told " + " | ".join(f"{p:.9g} {case}" for p, case in cases),
        lambda of, n: f"{n} x ({of})",
        lambda each: " + ".join(each) or "nothing",
    )


def _name_of(value: Any) -> str:
    """Of somebody else's, that of the class, which is not read again."""
    own = type(value)
    return _NAMES.get(own, f"{own.__module__}.{own.__qualname__}")


def _digits(value: Any) -> str:
    if dataclasses.is_dataclass(value):  # what is usual is left out
        each = [(getattr(value, f.name), f.default) for f in dataclasses.fields(value)]
        return " ".join(_digits(own) for own, usual in each if own != usual)
    if isinstance(value, tuple):
        return f"({', '.join(map(_digits, value))})"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def written(value: Any) -> Any:
    """A pair or a witness as JSON knows it: an object with one key, its kind, of its fields that are not the usual."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: written(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {_name_of(value): fields}
    if isinstance(value, tuple):
        return [written(each) for each in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def read_pair(value: Any) -> AnyPair:
    """What `written` made of it.

    Raises:
        ValueError: it is no pair; says what of it.
    """
    pair: AnyPair = _made(value, _PAIRS)
    with _as_value_errors(value):
        check_parts(pair)
    return pair


def read_pairs(value: Any) -> tuple[AnyPair, ...]:
    """As `read_pair`, of several."""
    require(isinstance(value, list | tuple), "pairs", value, "give a list")
    return tuple(map(read_pair, value))


def read_witness(value: Any) -> Witness:
    """As `read_pair`."""
    witness: Witness = _made(value, _WITNESSES)
    known = f"give one of {', '.join(_WITNESSES)}"
    require(isinstance(witness, Witness), "witness", value, known)
    return witness


def _made(value: Any, kinds: dict[str, _Kind]) -> Any:
    with _as_value_errors(value):
        return _read(value, kinds, 0)


@contextmanager
def _as_value_errors(value: Any) -> Iterator[None]:
    try:
        yield
    except (TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"pair: {str(value)[:80]}; its parts have other types ({error})") from None


def _read(value: Any, kinds: dict[str, _Kind], depth: int) -> Any:
    require(depth < _DEEPEST, "pair", "...", f"give one of {_DEEPEST} levels at most")
    if isinstance(value, list):
        require(not any(isinstance(each, bool) for each in value), "pair", value, "give numbers")
        return tuple(_read(each, kinds, depth + 1) for each in value)
    if isinstance(value, dict):
        (name, fields) = next(iter(value.items())) if len(value) == 1 else ("", {})
        known = name in kinds and isinstance(fields, dict)
        require(known, "pair", sorted(map(str, value)), f"give one key of {', '.join(kinds)}")
        kind = kinds[name]
        hints = {field.name: field for field in dataclasses.fields(kind.of)}
        strange = sorted(set(fields) - set(hints))
        require(not strange, name, strange, f"give {', '.join(hints) or 'nothing'}")
        needed = {n for n, f in hints.items() if f.default is dataclasses.MISSING}
        missing = sorted(needed - set(fields))
        require(not missing, name, missing, "give these fields, too")
        read = {n: _read(each, kinds, depth + 1) for n, each in fields.items()}
        for n, each in read.items():
            flag = n in _FLAGS
            require(isinstance(each, bool) == flag, n, each, _NO_FLAG[flag])
        return (kind.made or kind.of)(**read)
    if isinstance(value, int | float):  # JSON's may be larger than floats, or none
        require(abs(value) <= _MOST, "pair", value, "give a number")
    return math.inf if value == "inf" else value
