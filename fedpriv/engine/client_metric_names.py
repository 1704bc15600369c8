"""What the numbers of `per_client` and `per_group` are called, and what such a name says."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from fedpriv.models.score import OVER_CLIENTS, OVER_GROUPS, WORST_GROUP

PER_CLIENT, HELD_OUT, PERSONAL = "per_client", "held_out", "personal"
PERSONAL_PER_CLIENT = f"{PERSONAL}_{PER_CLIENT}"
KINDS = (PER_CLIENT, HELD_OUT, PERSONAL_PER_CLIENT, PERSONAL)
TEST = "test"
"""Kind of the groups of public examples, which are no client's."""
UNDEFINED = "undefined"
"""Ending of the number of clients that are left out."""
TRAINED = "trained"
"""Ending of the number of clients that have trained their own models, of those behind a mean over clients."""
MEAN_OF_TRAINED = "mean_of_trained"
"""Ending of the mean over these."""
_OF_TRAINED = (MEAN_OF_TRAINED, TRAINED)
_ORDER = ("mean", *_OF_TRAINED, *OVER_CLIENTS)
_BOUND = r"(?:below|above)_-?[0-9][0-9.e+-]*"
_STATISTICS = "|".join((*OVER_CLIENTS, *OVER_GROUPS, UNDEFINED, TRAINED, _BOUND))
_OF_TEST = rf"{TEST}(?:\[.+\]|(?=_.+_(?:{'|'.join(OVER_GROUPS)})$))"
_KIND = rf"(?:{'|'.join(KINDS)})(?:\[.+\])?|{_OF_TEST}"
_NAME = re.compile(rf"({_KIND})_(.+?)_({_STATISTICS})")


class ClientMetric(NamedTuple):
    """What the name of a number of `per_client` or `per_group` says.

    Attributes:
      kind: of records and models, one of KINDS or TEST; of a group with its name, such as "held_out[rural]".
      metric: of the score.
      statistic: over the clients: one of OVER_CLIENTS, UNDEFINED, TRAINED, or a bound such as "below_0.5"; else
        one of OVER_GROUPS.
    """

    kind: str
    metric: str
    statistic: str

    @property
    def records(self) -> str:
        """The kind without a group."""
        return split(self.kind)[0]

    @property
    def group(self) -> str | None:
        """None: of all clients, or over the groups."""
        return split(self.kind)[1]

    @property
    def by_group(self) -> bool:
        """Whether it is of a group, or over the groups."""
        return self.group is not None or self.statistic in OVER_GROUPS


def of_group(kind: str, group: str) -> str:
    """The kind of values that a group's clients have."""
    return f"{kind}[{group}]"


def split(kind: str) -> tuple[str, str | None]:
    """A kind as that of its records, and the group, if it is one's."""
    records, bracket, rest = kind.partition("[")
    return records, rest[:-1] if bracket else None


def names_of(metric: str, groups: Collection[str] = ()) -> list[str]:
    """What its numbers over clients and groups are called, those aside that a bound is in, and gaps."""
    found = [f"{kind}_{metric}_{statistic}" for kind in KINDS for statistic in OVER_CLIENTS]
    if groups:
        kinds = (*KINDS, TEST)
        each = [of_group(kind, group) for kind in kinds for group in groups]
        found += [f"{kind}_{metric}_{mean}" for kind in each for mean in ("mean", MEAN_OF_TRAINED)]
        found += [f"{kind}_{metric}_{WORST_GROUP}" for kind in kinds]
    return found


def parsed(name: str) -> ClientMetric | None:
    """What the name of a number of `per_client` or `per_group` says; None of others."""
    match = _NAME.fullmatch(name)
    return ClientMetric(*match.groups()) if match else None


def by_kind(names: Collection[str]) -> dict[tuple[str, str], dict[str, str]]:
    """(kind, metric) -> by statistic, in words, the names of these numbers of `per_client`, the mean first."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    order = {statistic: place for place, statistic in reversed([*enumerate(_ORDER)])}
    parts = {name: of for name in names if (of := parsed(name)) and not of.by_group}
    for name in sorted(parts, key=lambda name: order.get(parts[name].statistic, len(order))):
        kind, metric, statistic = parts[name]
        found.setdefault((kind, metric), {})[statistic.replace("_", " ")] = name
    return found


def by_group(names: Collection[str]) -> dict[tuple[str, str], dict[str, str]]:
    """(kind of records, metric) -> by group, then by statistic over groups, the names of these numbers of `per_group`.

    The groups are in the order of `names`. What `per_group` says of those who have trained is left out.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    order = {statistic: place for place, statistic in enumerate(OVER_GROUPS)}
    every = {name: of for name in names if (of := parsed(name)) and of.by_group}
    parts = {name: of for name, of in every.items() if of.statistic not in _OF_TRAINED}
    for name in sorted(parts, key=lambda name: order.get(parts[name].statistic, -1)):
        of = parts[name]
        said = of.statistic.replace("_", " ") if of.group is None else of.group
        found.setdefault((of.records, of.metric), {})[said] = name
    return found
