"""Pairs and witnesses as JSON knows them, and back: numbers to the bit, infinity as "inf"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedpriv.core.arguments import require
from fedpriv.pairs.algebra import (
    All,
    AnyPair,
    Best,
    Block,
    Moved,
    Pair,
    Slack,
    Times,
    Told,
    check_parts,
    fold,
)
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.verify import Counted, Direction, Exact, Grid, Orders, Witness

_PAIRS: dict[str, Any] = {
    "moved": Moved,
    "told": Told,
    "block": Block,
    "times": Times,
    "all": All,
    "best": Best,
    "slack": Slack,
    "integers": IntegerNoise,
}
_WITNESSES: dict[str, Any] = {
    "exact": Exact,
    "grid": Grid,
    "direction": Direction,
    "orders": Orders,
    "counted": Counted,
}
_NAMES = {kind: name for name, kind in (_PAIRS | _WITNESSES).items()}
_DEEPEST = 50


def in_short(pair: Pair) -> str:
    """A pair as a short text, by which equal ones are told from others: numbers to nine digits."""
    return fold(
        pair,
        lambda draw: f"{type(draw).__name__.lower()} {_digits(draw)}",
        lambda cases: "told " + " | ".join(f"{p:.9g} {case}" for p, case in cases),
        lambda of, n: f"{n} x ({of})",
        lambda each: " + ".join(each) or "nothing",
    )


def _digits(value: Any) -> str:
    if dataclasses.is_dataclass(value):  # what is usual is left out
        each = [(getattr(value, f.name), f.default) for f in dataclasses.fields(value)]
        return " ".join(_digits(own) for own, usual in each if own != usual)
    if isinstance(value, tuple):
        return f"({', '.join(map(_digits, value))})"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def written(value: Any) -> Any:
    """A pair or a witness as JSON knows it: an object with one key, its kind, of its fields that are not the usual."""
    if type(value) in _NAMES:
        fields = {
            field.name: written(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {_NAMES[type(value)]: fields}
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


def _made(value: Any, kinds: dict[str, Any]) -> Any:
    with _as_value_errors(value):
        return _read(value, kinds, 0)


@contextmanager
def _as_value_errors(value: Any) -> Iterator[None]:
    try:
        yield
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"pair: {str(value)[:80]}; its parts have other types ({error})") from None


def _read(value: Any, kinds: dict[str, Any], depth: int) -> Any:
    require(depth < _DEEPEST, "pair", "...", f"give one of {_DEEPEST} levels at most")
    if isinstance(value, list):
        return tuple(_read(each, kinds, depth + 1) for each in value)
    if isinstance(value, dict):
        (name, fields) = next(iter(value.items())) if len(value) == 1 else ("", {})
        known = name in kinds and isinstance(fields, dict)
        require(known, "pair", sorted(map(str, value)), f"give one key of {', '.join(kinds)}")
        kind = kinds[name]
        hints = {field.name: field for field in dataclasses.fields(kind)}
        strange = sorted(set(fields) - set(hints))
        require(not strange, name, strange, f"give {', '.join(hints) or 'nothing'}")
        needed = {n for n, f in hints.items() if f.default is dataclasses.MISSING}
        missing = sorted(needed - set(fields))
        require(not missing, name, missing, "give these fields, too")
        return kind(**{n: _read(each, kinds, depth + 1) for n, each in fields.items()})
    return math.inf if value == "inf" else value
