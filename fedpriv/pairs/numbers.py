"""Are the numbers of a certificate shown by its pairs and witnesses? By the bound alone, without a search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from fedpriv.core.complaints import require, shown
from fedpriv.pairs.divergences import Orders
from fedpriv.pairs.separations import Rounded, exact_or_rounded
from fedpriv.pairs.told_counts import Counted
from fedpriv.pairs.written import read_pair, read_witness
from fedpriv.proof.pairs import SEEN
from fedpriv.proof.verify import Exact, Grid, delta

Status: TypeAlias = Literal["confirmed", "contradicted", "not verifiable"]
VERSION = 1
"""Of a certificate as it is written."""

_SPECIAL = (
    "scipy's log_ndtr, and NumPy's exp, log, expm1 and log1p, are as accurate as doubles; the rounding of the curves "
    "that are made of them is not bounded"
)
_OF_LAW = "scipy's binomial law", _SPECIAL
TRUSTS: dict[type, tuple[str, ...]] = {
    Grid: (
        "NumPy's Fourier transform is a Cooley-Tukey one, by factors of 2, 3 and 5, with twiddle factors correct to a "
        "unit in the last place: then its error, and that of all sums, is counted in delta",
        _SPECIAL,
    ),
    Exact: _OF_LAW,
    Rounded: _OF_LAW,
    Orders: ("dp-accounting's Rényi divergences of a draw; of integers, fedpriv's own",),
    Counted: ("fedpriv's Rényi divergences of integer noise", "scipy's binomial law"),
}
"""Witness -> what is trusted beside this program's code, of which no bound is proved."""


class Verified(NamedTuple):
    """What a check of the numbers found.

    Attributes:
        status: "confirmed", "contradicted", or "not verifiable", where the file has no pairs.
        lines: what was found of each kind of unit, in words.
        trusts: what of the arithmetic is trusted, and not checked.
        of: whose numbers these are: unit, view, adjacency, basis, as the file says.
    """

    status: Status
    lines: tuple[str, ...]
    trusts: tuple[str, ...] = ()
    of: str = ""

    @property
    def holds(self) -> bool:
        """Whether all numbers are shown."""
        return self.status == "confirmed"

    def __str__(self) -> str:
        trusted = (f"trusted: {each}" for each in self.trusts)
        return "\n".join(
            [f"numbers: {self.status}; {self.of}", *(f"  {x}" for x in (*self.lines, *trusted))]
        )


def verify(text: str) -> Verified:
    """Is delta(epsilon) at most delta, for every pair of a certificate?

    It says nothing of whether the pairs are those of a run, which `fedpriv privacy --verify RUN` asks.

    Args:
        text: what `certificate.to_json()` wrote.

    Raises:
        ValueError: it is no certificate; says what of it.
    """
    said = _read(text)
    return _checked(said)._replace(of=_of_what(said))


def _of_what(said: Mapping[str, Any]) -> str:
    """As the file says, which the check of numbers does not look at."""
    unit, view, relation, basis = (
        str(said.get(name, f"no {name}")) for name in ("unit", "view", "relation", "basis")
    )
    return f"{unit}-level, {view}, {relation.replace('_', '-')} adjacency, {basis}"


def _checked(said: Mapping[str, Any]) -> Verified:
    epsilon, at = (_number(said, name) for name in ("epsilon", "delta"))
    require(epsilon >= 0, "epsilon", epsilon, "give one from 0 on")
    require(0 < at < 1, "delta", at, "give a probability strictly between 0 and 1")
    lines: list[str] = []
    wrong: list[str] = []
    units = said.get("compositions", [])
    require(isinstance(units, list), "compositions", units, "give a list")
    shown_of_all = max(
        (_number(_mapping(unit, "compositions"), "epsilon") for unit in units), default=epsilon
    )
    for name, value in _mapping(said.get("epsilons", {}), "epsilons").items():
        if not _number({name: value}, name) >= shown_of_all:
            wrong.append(f"epsilons.{name}: {value} is below what is shown, {shown_of_all:.6g}")
    if math.isinf(epsilon) and not units:
        return _end(wrong, ["epsilon is infinite: nothing is claimed"])
    if not units:
        why = "a file of an older version has no pairs; certify again, or train again"
        return Verified("contradicted" if wrong else "not verifiable", (*wrong, why))
    trusts: list[str] = []
    for number, unit in enumerate(units, 1):
        which = f"unit {number} of {len(units)}: "
        found, why, trusted = _of_unit(_mapping(unit, "compositions"), epsilon, at)
        (lines if found else wrong).append(which + why)
        trusts += trusted
    return _end(wrong, lines, tuple(dict.fromkeys(trusts)))


def _end(wrong: list[str], lines: list[str], trusts: tuple[str, ...] = ()) -> Verified:
    if wrong:
        return Verified("contradicted", tuple(wrong))
    return Verified("confirmed", tuple(lines), trusts)


def _of_unit(
    unit: Mapping[str, Any], epsilon: float, at: float
) -> tuple[bool, str, tuple[str, ...]]:
    """(whether it holds, why, what is trusted)."""
    own = _number(unit, "epsilon")
    if not 0 <= own <= epsilon:
        return False, f"its epsilon, {own}, is above that of all, {epsilon:.6g}", ()
    if math.isinf(own):
        return True, "its epsilon is infinite: nothing is claimed", ()
    pair = read_pair(unit.get("pair"))
    if pair == SEEN:
        return False, "all is seen, and epsilon is finite", ()
    witness = read_witness(unit.get("witness"))
    if witness == Exact():  # of which older files do not say whether it was rounded
        witness = exact_or_rounded(pair)
    try:
        bound = delta(pair, own, witness)
    except (ValueError, ArithmeticError) as error:
        return False, f"the witness shows nothing: {error}", ()
    holds = bound <= at
    relation = "at most" if holds else "above"
    why = f"delta({own:.6g}) is bounded by {bound:.6g}, {relation} {at:.6g}"
    return holds, why, TRUSTS[type(witness)]


def _read(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"certificate: {shown(text)}; give its JSON ({error})") from None
    said = _mapping(value, "certificate")
    version = said.get("version", VERSION)
    require(version == VERSION, "version", version, f"this version of fedpriv reads {VERSION}")
    return said


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    known = isinstance(value, Mapping)
    require(known, name, value, "give an object, as certificate.to_json() writes it")
    return value


def _number(said: Mapping[str, Any], name: str) -> float:
    value = said.get(name)
    if value == "inf":
        return math.inf
    known = isinstance(value, int | float) and not isinstance(value, bool)
    require(known and abs(value) < 1e300, name, value, "give a number")  # type: ignore[arg-type]
    return float(value)  # type: ignore[arg-type]
