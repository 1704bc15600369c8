"""What accounting needs of an experiment: its algorithms and the shapes of what they train on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedpriv.certification.certificate import of_all_seeds
from fedpriv.certification.checks import check_launch
from fedpriv.certification.together import certify_traced
from fedpriv.certification.traced_round import TracedRound
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.data.federation import Federation
from fedpriv.experiments.base.formats import ClientEpsilons, GroupEpsilons
from fedpriv.experiments.config.public import sentences
from fedpriv.experiments.config.statistics import Statistics
from fedpriv.privacy import Certificate, Claim, Seen
from fedpriv.privacy.words import SEVERAL_RUNS
from fedpriv.proof.seen import ONE_RUN, RANDOM_SEED
from fedpriv.rounds.algorithm import Algorithm

_WITH_SECRET_SEED = {
    RANDOM_SEED: "the secret seed of the run stays secret",
    ONE_RUN: "one model, trained once, is released; runs with the same secret seed and the same number (seed-0, "
    "seed-1, ..) share their noise",
    SEVERAL_RUNS: "nothing but the statistics and one model, trained once, is released; the statistics have a number "
    "of their own; runs with the same secret seed and the same number (seed-0, seed-1, ..) share their noise",
}
"""What a certificate assumes of any seed, and of one that the launcher has drawn."""


class Entry(NamedTuple):
    """One algorithm of an experiment.

    Attributes:
      algorithm: what trains.
      federations: what it trains on, one per seed.
      settings: what it got in place of a config's default that depends on the algorithm.
      solved: settings that `target_epsilon` found for it.
      name: for people, in tables and figures; "": the entry's key, or the published name of one of ours.
      statistics: its traced round -> what is released before it trains, which its epsilons count; None: nothing is.
      test: what it is evaluated on, normalised by these; None: the experiment's.
    """

    algorithm: Algorithm
    federations: Sequence[Federation]
    settings: Mapping[str, Any] = MappingProxyType({})
    solved: Mapping[str, Any] = MappingProxyType({})
    name: str = ""
    statistics: Callable[[TracedRound], Statistics] | None = None
    test: Example | None = None


@dataclass(frozen=True)
class Ledger:
    """What accounting needs of an experiment: its algorithms, and shapes; no data.

    Attributes:
      entries: by the algorithm's name; of an entry's federations the first one's shapes count (`blank`).
      delta: of the differential privacy guarantees.
      params: the model, its shapes, or key -> model.
      notes: what the numbers assume or leave out, such as data that was not looked at.
      secret_seed: whether the launcher has drawn the seed, which then is random.
      not_covered: what private numbers choose in the run -> their names, see `config.public.by_what`.
      traced: what was read off the algorithms' rounds so far.
      certified: the certificates that were asked for so far; evaluations, progress and summary ask for the same ones.
    """

    entries: dict[str, Entry]
    delta: float
    params: Any
    notes: tuple[str, ...] = ()
    secret_seed: bool = False
    not_covered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traced: dict[str, TracedRound] = field(default_factory=dict, compare=False, repr=False)
    certified: dict[tuple[Any, ...], Certificate] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, name: str) -> tuple[Algorithm, Any, Federation]:
        """What `fp.certify`, `fp.trace_round` and `fp.calibrate_rounds` begin with."""
        entry = self.entries[name]
        return entry.algorithm, self.params, entry.federations[0]

    def trace(self, name: str) -> TracedRound:
        """What is read off the algorithm's round, which is traced once; its persons are those of every seed.

        Raises:
          ValueError: what `init` or the round is refused for, see `fedpriv.certification.checks.check_launch`.
        """
        if name not in self.traced:
            traced = check_launch(*self.of(name))
            self.traced[name] = of_all_seeds(traced, self.entries[name].federations)
        return self.traced[name]

    def statistics(self, name: str) -> Statistics | None:
        """What is released before an algorithm trains.

        Raises:
          ValueError: there is nothing that it could be of, see `fedpriv.experiments.config.statistics.limits_of`.
        """
        plan = self.entries[name].statistics
        return plan(self.trace(name)) if plan else None

    def seen(self, name: str, rounds: int) -> tuple[tuple[UnitKind, tuple[Seen, ...]], ...]:
        """By kind of unit, what views see of an algorithm's statistics, if any, and of so many rounds."""
        traced, statistics = self.trace(name), self.statistics(name)
        before = statistics.traced if statistics else ()
        runs = [*((each, 1) for each in before), (traced, rounds)]
        return tuple(
            (kind, tuple(one for run, length in runs for one in run.seen(length, kind)))
            for kind in traced.kinds
        )

    def certify(
        self,
        name: str,
        rounds: int,
        *,
        view: str = "third_party",
        honest: float = 1.0,
        best_of: float = 1.0,
        kind: UnitKind | None = None,
    ) -> Certificate:
        """The certificate of so many rounds, and of statistics before them, if any, which is computed once.

        Args:
          kind: of the unit; by default all.

        Raises:
          ValueError: the best of several runs that release statistics is asked for.
        """
        asked = (name, rounds, view, honest, best_of, kind, self.delta, self.secret_seed)
        if asked not in self.certified:
            options: Any = {"view": view, "honest": honest, "best_of": best_of, "kind": kind}
            certificate = self._certified(name, rounds, **options)
            if self.secret_seed:
                assumed = (_WITH_SECRET_SEED.get(text, text) for text in certificate.assumptions)
                certificate = replace(certificate, assumptions=tuple(assumed))
            for chosen, names in self.not_covered.items():
                certificate = certificate.not_covered(names, chosen)
            self.certified[asked] = certificate
        return self.certified[asked]

    def _certified(self, name: str, rounds: int, best_of: float, **options: Any) -> Certificate:
        remedy = "the best of several runs is certified of training alone; leave statistics out"
        alone = best_of == 1 or self.entries[name].statistics is None
        require(alone, "best_of", best_of, remedy)  # before the noise of statistics is solved for
        training, statistics = self.trace(name), self.statistics(name)
        if statistics is None:
            return training.certify(rounds, self.delta, best_of=best_of, **options)
        before = [("statistics", traced, 1) for traced in statistics.traced]
        return certify_traced([*before, ("training", training, rounds)], self.delta, **options)

    def of_statistics(self, name: str, view: Any, honest: float = 1.0) -> Certificate | None:
        """Of the statistics that are released before an algorithm trains, alone; None without any."""
        statistics = self.statistics(name)
        return statistics and statistics.alone(self.trace(name), self.delta, view, honest)

    def client_epsilons(
        self,
        name: str,
        rounds: int,
        views: Sequence[str],
        *,
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> dict[str, ClientEpsilons]:
        """By view, where it is public how many records each client holds; not with groups or persons.

        The more records a client holds, the smaller is its epsilon.
        """
        traced = self.trace(name)
        if traced.public_sizes is None or any(kind.group or kind.held for kind in traced.kinds):
            return {}
        sizes = sorted(traced.public_sizes)

        def epsilon(view: str, size: int) -> float:
            options: Any = {"view": view, "honest": honest, "best_of": best_of}
            return self.certify(name, rounds, kind=UnitKind(size=size), **options).epsilon

        median = (len(sizes) - 1) // 2
        return {
            view: (epsilon(view, sizes[-1]), epsilon(view, sizes[median]), epsilon(view, sizes[0]))
            for view in views
        }

    def group_epsilons(
        self,
        name: str,
        rounds: int,
        views: Sequence[str],
        *,
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> dict[str, GroupEpsilons]:
        """By view, the smallest first, where units have public groups; nothing elsewhere."""
        groups = {kind.group: kind for kind in self.trace(name).kinds if kind.group}
        options: Any = {"honest": honest, "best_of": best_of}

        def epsilons(view: str) -> GroupEpsilons:
            found = {
                group: self.certify(name, rounds, view=view, kind=kind, **options).epsilon
                for group, kind in groups.items()
            }
            return dict(sorted(found.items(), key=lambda each: each[1]))

        return {view: epsilons(view) for view in views if groups}

    def claim(self, name: str, rounds: int) -> Claim | None:
        """The paper's claim for so many rounds; not for statistics that are released before these."""
        claim = self.entries[name].algorithm.claim(rounds, self.delta)
        if claim and (said := sentences(self.not_covered)):
            claim = replace(claim, sound=False, reasons=(*said, *claim.reasons))
        if claim is None or self.entries[name].statistics is None:
            return claim
        reason = "The formula does not count the statistics that are released before training."
        return replace(claim, sound=False, reasons=(reason, *claim.reasons))


def blank(
    algorithm: Algorithm,
    example: Example,
    clients: int,
    records: int,
    public: int = 0,
    held_out: float = 0.0,
) -> Entry:
    """An entry of a ledger: clients with so many records each (and the server), of the shapes of `example`.

    Args:
      held_out: the share of every client's records on which it does not train, as of `federations`.
    """
    out = int(held_out * records + 0.5)
    remedy = f"it leaves a client none of its {records} records; hold out less, or let fewer clients share"
    require(out < records, "held_out", held_out, remedy)
    given = {"public": public, "held_out": out}
    return Entry(algorithm, [Federation.blank(example, clients, records - out, **given)])


def image(*shape: int, dtype: Any = np.uint8) -> Example:
    """For a ledger, the shapes of a labelled image."""
    return {"image": np.zeros(shape, dtype), "label": np.int32(0)}


def text(length: int) -> Example:
    """For a ledger, the shapes of a text whose next characters are predicted."""
    label, mask = np.zeros(length, np.int32), np.zeros(length, bool)
    return {"text": np.zeros(length, np.uint8), "label": label, "mask": mask}
