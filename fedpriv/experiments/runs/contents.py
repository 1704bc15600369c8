"""What the files of a run folder hold, as objects: `plain` of one is its JSON, `typed` reads it back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from fedpriv.core.json_values import PRIVATE, as_json
from fedpriv.engine.history import SHARES, Evaluation
from fedpriv.experiments.base.formats import ClientEpsilons, GroupEpsilons, name_of, short_name_of
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config.public import Public
from fedpriv.privacy import VIEWS, Certificate, Claim, OperationalNumbers
from fedpriv.privacy.epsilon_words import only_not_covered

NOISE = "noise_multiplier"  # the field of a config
HOURS = (
    "hours_per_round"  # what an entry's settings may say: simulated hours, public and on average
)


@dataclass(frozen=True)
class Epsilons:
    """In a line of metrics.jsonl: the paper's claim, and what is certified towards a third party.

    Attributes:
      mu: as of `OperationalNumbers`, where it is known, as at the end of a run.
      group_epsilons: certified of each public group, where units have such.
    """

    claimed: Claim | None
    certified: Certificate
    mu: float | None = None
    group_epsilons: GroupEpsilons = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_views(self.claimed, self.certified)


@dataclass(frozen=True)
class Line:
    """A line of metrics.jsonl: an evaluation. A key that ends in _not_private says of what no epsilon covers.

    Attributes:
      metrics: of the score, on the test examples, where these are public.
      metrics_not_private: likewise, where they are records of clients.
      uplink_mb_per_client, downlink_mb_per_client: megabytes (10^6 bytes) of all rounds so far, per client of the
        population, on average.
      traffic_mb_per_seed: "uplink" and "downlink", one value per seed.
      privacy: of all rounds so far.
      diagnostics_not_private: means over the rounds since the line before, and measures.
      seconds: since the line before.
    """

    algorithm: str
    round: int
    metrics: dict[str, Spread]
    uplink_mb_per_client: float = field(metadata=PRIVATE)
    downlink_mb_per_client: float = field(metadata=PRIVATE)
    traffic_mb_per_seed: dict[str, tuple[float, ...]] = field(metadata=PRIVATE)
    privacy: Epsilons
    diagnostics_not_private: dict[str, Spread]
    seconds: float = field(metadata=PRIVATE)
    metrics_not_private: dict[str, Spread] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        algorithm: str,
        e: Evaluation,
        claimed: Claim | None,
        certified: Certificate,
        group_epsilons: Mapping[str, float] = MappingProxyType({}),
    ) -> Line:
        traffic = {"uplink": e.uplink_mb, "downlink": e.downlink_mb}
        return cls(
            algorithm,
            e.round,
            {name: Spread.of(values) for name, values in e.metrics.items()},
            float(np.mean(e.uplink_mb)),
            float(np.mean(e.downlink_mb)),
            {name: tuple(values.tolist()) for name, values in traffic.items()},
            Epsilons(claimed, certified, group_epsilons=dict(group_epsilons)),
            {k: Spread.of(v) for k, v in [*e.diagnostics.items(), *e.measures.items()]},
            e.seconds,
        )

    def placed(self, own_test: bool) -> Line:
        """With the score's metrics where they belong, by whether the test records are the clients' own."""
        if not (own_test and self.metrics):
            return self
        return replace(self, metrics={}, metrics_not_private=self.of_score)

    @property
    def of_score(self) -> dict[str, Spread]:
        """The score's metrics, public or not."""
        return {**self.metrics_not_private, **self.metrics}

    def __post_init__(self) -> None:
        if not self.of_score:
            raise ValueError("metrics: is empty")
        if self.round < 1:
            raise ValueError(f"round: {self.round}; rounds count from 1")

    @property
    def seeds(self) -> int:
        return len(next(iter(self.of_score.values())).per_seed)

    def evaluation(self) -> Evaluation:
        """What `of` was given, with the numbers as `simulate` gave them; measures are among the diagnostics."""
        precision = jax.dtypes.canonicalize_dtype(float)  # in which they were computed
        return Evaluation(
            self.round,
            {name: np.array(s.per_seed, precision) for name, s in self.of_score.items()},
            np.array(self.traffic_mb_per_seed["uplink"], float),
            np.array(self.traffic_mb_per_seed["downlink"], float),
            {
                name: np.array(s.per_seed, precision)
                for name, s in self.diagnostics_not_private.items()
            },
            self.seconds,
        )

    def metric(self, name: str) -> Spread | None:
        """Of the score, or a diagnostic; None where there is no such."""
        found = self.of_score.get(name) or self.diagnostics_not_private.get(name)
        if found is None and name in SHARES:  # which are recorded where they are above 0
            return Spread.of(np.zeros(self.seeds))
        return found


@dataclass(frozen=True)
class Report:
    """Epsilons of one algorithm for `rounds` rounds: claimed, and certified by view, at least for a third party.

    Attributes:
      client_epsilons: by view, where it is public how many records each client holds.
      group_epsilons: by view, where units have public groups, of each group; the largest is that of `certified`, of
        which unit, adjacency and basis are the same.
      operational: by view, what a finite epsilon means; empty where it was recorded of one kind of unit alone, though
        there are several.
      statistics: by view, of the statistics that `certified` counts, alone; empty where none were released.
      uncounted: further rounds that may have been trained, where that is not known; then no epsilon here counts them.
      of_all_kinds: whether `operational` holds for every kind of unit. It is not in runs of older versions, whose
        numbers are of the kind that costs most at delta: too low for others, where units have groups or are persons.
    """

    rounds: int
    claimed: Claim | None
    certified: dict[str, Certificate]
    client_epsilons: dict[str, ClientEpsilons] = field(default_factory=dict)
    operational: dict[str, OperationalNumbers] = field(default_factory=dict)
    group_epsilons: dict[str, GroupEpsilons] = field(default_factory=dict)
    statistics: dict[str, Certificate] = field(default_factory=dict)
    of_all_kinds: bool = False
    uncounted: int = field(default=0, metadata=as_json())

    def __post_init__(self) -> None:
        _check_views(self.claimed, *self.certified.values())
        if self._is_of_one_kind:
            object.__setattr__(self, "operational", {})
        if any(view != c.view for view, c in self.certified.items()):
            raise ValueError(f"certificates of {', '.join(self.certified)} are of other views")
        if "third_party" not in self.certified:
            raise ValueError("lacks certified.third_party")

    def in_words(self, view: str) -> str:
        """What an epsilon means, in one sentence; "" where nobody has computed it."""
        numbers, c = self.operational.get(view), self.certified[view]
        if self._is_of_one_kind and math.isfinite(c.epsilon):
            return (
                f"what an attacker can do was recorded of the {c.unit}s that cost most at delta, and may be more for "
                "others; `experiments.privacy` computes it of all, without training"
            )
        return numbers.in_words(c.unit, c.view, c.relation) if numbers else ""

    @property
    def _is_of_one_kind(self) -> bool:
        """Whether what was recorded holds for one kind of unit alone, as far as is known."""
        persons = any(c.unit == "person" for c in self.certified.values())
        return not self.of_all_kinds and (persons or bool(self.group_epsilons))

    @property
    def is_private(self) -> bool:
        """Whether any epsilon is finite, claimed or certified, or would be, had no private number chosen a round."""
        numbers: list[Certificate | Claim] = [*self.certified.values()]
        numbers += [self.claimed] if self.claimed else []
        return any(not math.isinf(each.epsilon) or only_not_covered(each) for each in numbers)


def _check_views(*numbers: Certificate | Claim | None) -> None:
    for number in numbers:
        if number and number.view not in VIEWS:
            raise ValueError(f"view: {number.view!r} is none of {', '.join(VIEWS)}")


@dataclass(frozen=True)
class NotFinite:
    """In a run's summary: what was NaN or infinite and counted as 0, of what clients sent or of records' gradients.

    Attributes:
      by_round: the first evaluation that tells of it.
      share: of all rounds so far, in 0..1.
    """

    by_round: int
    share: Spread


@dataclass(frozen=True)
class Summary:
    """summary.json; mappings from rounds on are by algorithm.

    Attributes:
      status: "complete", "interrupted", "failed: ..." or "diverged: ...".
      rounds: that were evaluated; algorithms without an evaluation are not there.
      rounds_planned: that were to be trained; algorithms of which that is not known are not there.
      metric: the one to show, of the score or of what was measured beside it.
      best, final: by public metric; the best over the evaluations, each seed's own, and the last.
      best_not_private, final_not_private: likewise by private metric, of the score and the one to show; the best of
        those alone by which settings say that a round may be chosen (`not_covered`).
      best_note: on which records the best is chosen, and what that means.
      of_score: names of the score's metrics.
      not_covered: what private numbers chose, in words; then every epsilon is infinite.
      diverged: what sweeps say of algorithms that did.
      stopped: why training ended before the rounds planned, of algorithms of which it did.
      reused_from: where sweeps took an algorithm's training from.
      per_client_not_private: by name, what was last found of single clients, see `fedpriv.measures.per_client`.
      not_finite_not_private: by name, what was NaN or infinite, of algorithms of which anything was.
      solved: the noise that `target_epsilon` found, in the config's fields; with `groups.epsilons`, also each group's
        rate or clip scale, by its name.
      prng: JAX's implementation of random numbers; None in a run of an older version, which did not record it.
      streams: version of which random numbers a seed gives; None in a run of an older version, whose seeds give others.
      names: of algorithms, for people, where the config says one.
      secret_seed: as in `Begun`; then other runs share the clients of a seed, and no other random number.
      own_test, public_held_out: as in `Begun`.
      choice: of a model that was chosen under a certificate, in words, what its epsilon is of; then nothing was kept of
        its training, and what was measured there is not known.
    """

    config: str
    settings: dict[str, Any]
    algorithm_settings: dict[str, dict[str, Any]]
    status: str
    rounds: dict[str, int]
    rounds_planned: dict[str, int]
    metric: str
    best: dict[str, dict[str, Spread]]
    best_note: str = field(default="", kw_only=True)
    final: dict[str, dict[str, Spread]]
    best_not_private: dict[str, dict[str, Spread]] = field(default_factory=dict, kw_only=True)
    final_not_private: dict[str, dict[str, Spread]] = field(default_factory=dict, kw_only=True)
    of_score: tuple[str, ...] = field(default=(), kw_only=True)
    not_covered: tuple[str, ...] = field(default=(), kw_only=True)
    uplink_mb_per_client: dict[str, float] = field(metadata=PRIVATE)
    downlink_mb_per_client: dict[str, float] = field(metadata=PRIVATE)
    privacy: dict[str, Report]
    privacy_notes: tuple[str, ...]
    rounds_per_second: dict[str, float] = field(metadata=PRIVATE)
    compile_seconds: dict[str, float | None]
    versions: dict[str, Any]
    device: dict[str, Any]
    prng: str | None = field(default=None, kw_only=True)
    streams: int | None = field(default=None, kw_only=True)
    git_revision: str | None
    resumed: tuple[dict[str, Any], ...] = ()
    diverged: dict[str, str] = field(default_factory=dict)
    reused_from: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    per_client_not_private: dict[str, dict[str, Spread]] = field(default_factory=dict)
    not_finite_not_private: dict[str, dict[str, NotFinite]] = field(default_factory=dict)
    solved: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    secret_seed: bool = False
    own_test: bool = False
    public_held_out: bool = False
    choice: str = ""

    def __post_init__(self) -> None:
        measured = ("uplink_mb_per_client", "downlink_mb_per_client", "rounds_per_second")
        known = () if self.choice else (*measured, "compile_seconds")
        for name in ("best", "final", "privacy", *known):
            if missing := sorted(set(self.rounds) - set(getattr(self, name))):
                raise ValueError(f"{name}: lacks {', '.join(missing)}")
        for algorithm in self.final:
            if self.metric not in self.last(algorithm):
                raise ValueError(f"final.{algorithm}: lacks {self.metric}, the metric")

    def last(self, algorithm: str) -> dict[str, Spread]:
        """After the last round, what is public and what is not."""
        return {**self.final_not_private.get(algorithm, {}), **self.final.get(algorithm, {})}

    def bests(self, algorithm: str) -> dict[str, Spread]:
        """Likewise the best over the evaluations."""
        return {**self.best_not_private.get(algorithm, {}), **self.best.get(algorithm, {})}

    @property
    def public(self) -> Public:
        """What of all that was measured is public."""
        return Public(self.of_score, self.own_test, self.public_held_out)

    def hours_per_round(self, algorithm: str) -> float | None:
        """Simulated hours that a round takes, where the config says so."""
        hours = self.algorithm_settings.get(algorithm, {}).get(HOURS)
        return float(hours) if isinstance(hours, int | float) else None

    def name_of(self, algorithm: str) -> str:
        """For people."""
        return name_of(algorithm, self.names)

    def short_name_of(self, algorithm: str) -> str:
        """Its name, cut where it is long."""
        return short_name_of(algorithm, self.names)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train: it is complete, or diverged."""
        return self.status.partition(":")[0] in ("complete", "diverged")


@dataclass(frozen=True)
class Environment:
    """In a run's summary: where it was computed, and by what; see `Summary`."""

    versions: dict[str, Any]
    device: dict[str, Any]
    git_revision: str | None
    prng: str | None = None
    streams: int | None = None


@dataclass(frozen=True)
class Resumption:
    """That a run went on after a stop, what of its environment differs from the one before, and how far it had come."""

    time: str
    differs: tuple[str, ...] = ()
    reached: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Begun:
    """config.json: the config's name and fields, and where the run was begun, which the point of a sweep leaves out.

    Attributes:
      higher: metrics that are better when higher, beside accuracies.
      names: of algorithms, for people, where the config says one.
      secret_seed: whether the random numbers come from the seed in the file `secret_seed`.
      noise: by algorithm, what `target_epsilon` found; with `groups.epsilons`, the noise and each group's number.
      solved: likewise, in the config's fields, as in `Summary`; a run of an older version did not record it.
      algorithm_settings: as in `Summary`, likewise.
      rounds_planned: by algorithm, rounds that are to be trained, likewise.
      own_test, public_held_out: what the experiment says of test records and of held-out ones, see `Experiment`.
      num_clients: of the federation; 0 where it is not known, as in runs of older versions.
      client_names: of each of these, where the config says it.
    """

    config: str
    settings: dict[str, Any]
    environment: Environment | None = None
    resumed: tuple[Resumption, ...] = ()
    higher: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    secret_seed: bool = False
    noise: dict[str, Any] = field(default_factory=dict)
    solved: dict[str, dict[str, Any]] = field(default_factory=dict)
    algorithm_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    own_test: bool = False
    public_held_out: bool = False
    num_clients: int = 0
    client_names: tuple[str, ...] = ()
    rounds_planned: dict[str, int] = field(default_factory=dict)

    def public(self, of_score: Iterable[str]) -> Public:
        """What of all that is measured is public, for a score with metrics of these names."""
        return Public(tuple(dict.fromkeys(of_score)), self.tests_clients, self.public_held_out)

    @property
    def tests_clients(self) -> bool:
        """Whether the test records are the clients' own, or a part of the training records."""
        return self.own_test or self.settings.get("fold") is not None

    def solved_for(self, algorithm: str) -> dict[str, Any]:
        """The noise that was solved for it, by field; empty where none was."""
        if algorithm in self.solved or algorithm not in self.noise:
            return self.solved.get(algorithm, {})
        return {NOISE if NOISE in self.settings else "noise": self.noise[algorithm]}
