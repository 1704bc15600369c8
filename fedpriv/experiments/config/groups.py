"""Public groups of clients in a config, each with an epsilon of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from fedpriv.core.arguments import Budget, Rate
from fedpriv.core.complaints import require
from fedpriv.experiments.config.fields import check_each, each_once
from fedpriv.rounds.grouped import grouped
from fedpriv.rounds.record_samplers import PublicGroups, PublicSizes, RecordSampler
from fedpriv.rounds.samplers import fixed_size, poisson
from fedpriv.rounds.scheduled_samplers import AnySampler

ORDER = 0  # seeds who is in which group, whatever the seed of a run


@dataclass(frozen=True)
class Groups:
    """Groups of clients, or of records where these are protected, each with an epsilon of its own.

    Who is in which is public, and drawn once, without regard to data.
    """

    names: tuple[str, ...] = ()
    """Of the groups, such as strict lenient; by default there are none."""
    shares: tuple[float, ...] = ()
    """Share of the clients (or of each client's records) in each group; by default equal."""
    labels: tuple[str, ...] = ()
    """The group of each client (or record), in place of shares."""
    epsilons: tuple[float, ...] = ()
    """Choose the noise, and what `by` names, so that all rounds cost each group this certified epsilon (`view`)."""
    by: Literal["rates", "clip_scales"] = "rates"
    """Reach the epsilons by how often each group is drawn, as many being drawn in all; or, drawn alike, by its clip
    norm."""
    rates: tuple[float, ...] = ()
    """How often each group is drawn: the probability of its members; by default as without groups."""
    clip_scales: tuple[float, ...] = ()
    """Clip norm of each group, times `clip_norm`; by default 1."""

    def __post_init__(self) -> None:
        if self.names:
            each_once(self.names, "groups.names")
        for name in ("shares", "epsilons", "rates", "clip_scales"):
            given = getattr(self, name)
            remedy = f"give a number for each of groups.names ({', '.join(self.names)})"
            remedy = remedy if self.names else "name the groups, too (groups.names)"
            require(len(given) in (0, len(self.names)), f"groups.{name}", given, remedy)
            kind = Budget if name == "epsilons" else Rate
            for one in given:
                check_each(kind, **{f"groups.{name}": one})
        whole = not self.shares or math.isclose(sum(self.shares), 1)
        require(whole, "groups.shares", self.shares, "give shares that sum to 1")
        same = set(self.labels) in (set(), set(self.names))
        require(same, "groups.labels", self.labels, "use each of groups.names, and no other")
        one = not (self.labels and self.shares)
        require(one, "groups.shares", self.shares, "leave them out, as there are labels")
        given = getattr(self, self.by)
        remedy = (
            "groups.epsilons solve for these; leave one of them out, or choose another groups.by"
        )
        require(not (self.epsilons and given), f"groups.{self.by}", given, remedy)

    def __bool__(self) -> bool:
        return bool(self.names)

    def of_units(self, units: int) -> list[str]:
        """The group of each client, or of each of a client's records, [units].

        Raises:
          ValueError: a group without a unit, or labels of other units.
        """
        if self.labels:
            remedy = f"give {units} labels, one for each, or shares"
            require(len(self.labels) == units, "groups.labels", len(self.labels), remedy)
            return list(self.labels)
        shares = self.shares or (1 / len(self.names),) * len(self.names)
        edges = np.round(np.cumsum(shares) * units).astype(int)
        sizes = np.diff(edges, prepend=0)
        remedy = f"some of these groups have nobody among {units}; give larger shares"
        require(min(sizes) > 0, "groups.shares", shares, remedy)
        order = np.random.default_rng(ORDER).permutation(units)
        labels = np.empty(units, dtype=object)
        labels[order] = np.repeat(np.array(self.names, dtype=object), sizes)
        return labels.tolist()

    def sampler(
        self, clients: int, rate: float, sampling: Literal["fixed_size", "poisson"] = "poisson"
    ) -> AnySampler:
        """Draws each group's clients, with probability `rate` where no other is given; without groups all alike.

        Raises:
          ValueError: as `of_units`.
        """

        def draws(members: int, rate: float) -> AnySampler:
            if sampling == "poisson":
                return poisson(members, rate)
            return fixed_size(members, max(1, round(members * rate)))

        if not self:
            return draws(clients, rate)
        labels = self.of_units(clients)
        rates = self.of_each(self.rates or [rate] * len(self.names))
        each = {name: draws(members, rates[name]) for name, members in Counter(labels).items()}
        scales = self.of_each(self.clip_scales) if self.clip_scales else None
        return grouped(labels, each, clip_scales=scales)

    def records(self, sizes: Sequence[int], rate: float) -> RecordSampler:
        """Draws each client's records, with probability `rate` where no other is given.

        Args:
          sizes: [clients], how many records each holds, which is public; its first ones are those of its first labels.

        Raises:
          ValueError: as `of_units`; clip scales, as records have none.
        """
        if not self:
            return PublicSizes(sizes, rate=rate)
        scales = self.clip_scales or (self.epsilons and self.by == "clip_scales")
        remedy = "records of groups differ by their rates; choose rates"
        require(not scales, "groups.by", "clip_scales", remedy)
        rates = self.of_each(self.rates or [rate] * len(self.names))
        return PublicGroups([self.of_units(size) for size in sizes], rate=rates)

    def of_each(self, numbers: Sequence[float]) -> dict[str, float]:
        """By name."""
        return dict(zip(self.names, numbers, strict=True))

    def found(self, numbers: Sequence[float]) -> Self:
        """With the numbers, of each group, that `epsilons` were solved for."""
        changes: Any = {self.by: tuple(numbers)}
        return replace(self, epsilons=(), **changes)


NO_GROUPS = Groups()
