"""What is known of a run while it goes on and afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import Seed, checked
from fedpriv.core.cards import in_a_line
from fedpriv.core.types import Params, State
from fedpriv.engine.client_intervals import own_interval
from fedpriv.engine.history_card import card_of
from fedpriv.engine.own_errors import OwnErrors
from fedpriv.models.score import is_fraction, no_metric
from fedpriv.privacy import Certificate

SHARES = {"not_finite_messages": "messages", "not_finite_records": "records"}
"""Diagnostics that are there where they are above 0, by their names in a round's metrics, see `Cohort.not_finite`."""


class ClientValues(NamedTuple):
    """What was measured on single clients. Not private.

    A `measure` gives it, without the axis of seeds, under the name of its kind and beside its numbers.

    Attributes:
      clients: i32[clients], their numbers in the federation, the same for every seed.
      records: f32[seeds, clients], the weight of the records that were evaluated.
      metrics: name -> f32[seeds, clients], every metric of the score; NaN where it is undefined (0/0) or not finite.
      own: what intervals over a client's own records are made of; None where nobody has measured it.
    """

    clients: Any
    records: Any
    metrics: Mapping[str, Any]
    own: OwnErrors | None = None

    def interval(self, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
        """(low, high), f64[seeds, clients]: 95 % intervals of each client's metric over its own records, or persons.

        They hold for the trained models, and say how these would fare on other such records of the same client; NaN
        where too little is known, see `fedpriv.engine.client_intervals`, and of a derived metric that is not among
        `Score.smooth`. None where nobody has measured errors.

        Raises:
          ValueError: there is no such metric.
        """
        if metric not in self.metrics:
            raise no_metric(metric, [*self.metrics])
        if self.own is None:
            return None
        of = self.own.errors[metric], self.own.units, self.own.shares[metric]
        return own_interval(self.metrics[metric], *of, self.records, is_fraction(metric))


class PublicEvaluation(NamedTuple):
    """What `simulate`'s `on_evaluation` may decide by: the score on the test examples, which are taken to be public.

    Attributes:
      round: rounds done.
      metrics: name -> f64[seeds], from `simulate`'s `score` on the test examples.
      not_covered: name -> f64[seeds], further numbers that `simulate`'s `not_covered` asks for by name.
    """

    round: int
    metrics: Mapping[str, np.ndarray]
    not_covered: Mapping[str, np.ndarray] = MappingProxyType({})

    def metric(self, name: str) -> np.ndarray:
        """f64[seeds], a metric, or a number that was asked for by name.

        Raises:
          ValueError: there is no such metric, or it is not public and was not asked for.
        """
        every = {**self.not_covered, **self.metrics}
        if not isinstance(name, str) or name not in every:
            remedy = f"; to decide by a private number, give simulate not_covered=({name!r},)"
            raise ValueError(f"{no_metric(name, list(every))}{remedy}")
        return every[name]

    @property
    def accuracy(self) -> np.ndarray:
        """f64[seeds], 0..1, if the score has it."""
        return self.metric("accuracy")

    @property
    def loss(self) -> np.ndarray:
        """f64[seeds], if the score has it."""
        return self.metric("loss")


class Evaluation(NamedTuple):
    """What was measured after `round` rounds; arrays have one entry per seed.

    Attributes:
      round: rounds done.
      metrics: name -> f64[seeds], from `simulate`'s `score` on the test examples.
      uplink_mb: f64[seeds], megabytes (10^6 bytes) sent so far per client of the population, on average.
      downlink_mb: f64[seeds], likewise received so far.
      diagnostics: name -> f64[seeds], means over the rounds since the last evaluation; not private, not released.
        `not_finite_messages` and `not_finite_records` are the shares in 0..1 of messages, and of records' gradients,
        that were NaN or infinite and counted as 0; they are listed if above 0. Records are not counted if your client
        calls `private_mean` in its own `jit` or loop.
      seconds: wall-clock time of those rounds, evaluation included.
      measures: name -> f64[seeds], from `simulate`'s `measure`.
      clients: kind of records and models ("held_out", ..) -> values of single clients, from `simulate`'s `measure`.
    """

    round: int
    metrics: Mapping[str, np.ndarray]
    uplink_mb: np.ndarray
    downlink_mb: np.ndarray
    diagnostics: dict[str, np.ndarray]
    seconds: float
    measures: Mapping[str, np.ndarray] = MappingProxyType({})
    clients: Mapping[str, ClientValues] = MappingProxyType({})

    @property
    def names(self) -> list[str]:
        """What `metric` takes: metrics, measures and diagnostics."""
        return [*self.metrics, *self.measures, *self.diagnostics]

    def metric(self, name: str) -> np.ndarray:
        """f64[seeds], a metric, a measure or a diagnostic.

        Raises:
          ValueError: the name is unknown; says which exist.
        """
        none = {share: np.zeros_like(self.uplink_mb) for share in SHARES}
        every = {**none, **self.diagnostics, **self.measures, **self.metrics}
        if not isinstance(name, str) or name not in every:
            raise no_metric(name, self.names)
        return every[name]

    def public(self, not_covered: Collection[str] = ()) -> PublicEvaluation:
        """What may end training, and the private numbers of these names, which no certificate covers.

        Raises:
          ValueError: there is no such number.
        """
        asked = {name: self.metric(name) for name in not_covered if name not in self.metrics}
        return PublicEvaluation(self.round, dict(self.metrics), asked)

    @property
    def accuracy(self) -> np.ndarray:
        """f64[seeds], 0..1, if the score has it."""
        return self.metric("accuracy")

    @property
    def loss(self) -> np.ndarray:
        """f64[seeds], if the score has it."""
        return self.metric("loss")


@dataclass
class History:
    """A run's evaluations, and the state it ended in.

    Attributes:
      seeds: the seeds that were trained side by side.
      evaluations: oldest first.
      state: the algorithm's state, leaves [seeds, ...]; None until the run has ended, and in a run of the commands.
      compile_seconds: seconds of tracing and compiling before the first round; None until then, and for a streamed
        federation, whose programs are compiled when first needed.
      not_covered: private numbers by which `on_evaluation` could choose the last round, see `simulate`; no certificate
        covers that choice, see `Certificate.not_covered`.
      programs: digests of the rounds that ran; those of a certificate of them, `Certificate.programs`, are the same.
      certificate: of all planned rounds, also where `on_evaluation` ended them early, as the models then chose the end;
        where `simulate` was given a `delta`, and of the commands' runs; else None.
    """

    seeds: tuple[int, ...]
    evaluations: list[Evaluation] = field(default_factory=list)
    state: State = None
    compile_seconds: float | None = None
    not_covered: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        if not self.evaluations:
            return in_a_line(f"History(seeds={self.seeds}, no evaluations)")
        last = self.evaluations[-1]
        means = (f"{name} {np.mean(values):.4g}" for name, values in last.metrics.items())
        number = len(self.evaluations)
        said = f"{number} evaluations, round {last.round}: {', '.join(means)}"
        return in_a_line(f"History({said}, seeds={self.seeds})")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card_of(self).html()

    @property
    def rounds(self) -> np.ndarray:
        """i64[evaluations], rounds done."""
        return np.array([e.round for e in self.evaluations])

    @property
    def names(self) -> list[str]:
        """What `metric` takes: metrics, measures and diagnostics."""
        return list(dict.fromkeys(name for e in self.evaluations for name in e.names))

    def state_of(self, seed: Seed | None = None) -> State:
        """The state of one of `seeds`, by default the first; leaves as in a round, without the axis of seeds.

        Raises:
          ValueError: no such seed was trained, the run has not ended, or it is a run of the commands, which keep no
            state.
        """
        at = self._place_of(seed)
        return jax.tree.map(lambda leaf: leaf[at], self.state)

    def params(self, seed: Seed | None = None) -> Params:
        """The trained model of one of `seeds`, by default the first; with personal models, the shared one.

        Raises:
          ValueError: as `state_of`.
        """
        at = self._place_of(seed)
        return jax.tree.map(lambda leaf: leaf[at], self.state.params)

    def metric(self, name: str) -> np.ndarray:
        """f64[evaluations, seeds], a metric, a measure or a diagnostic.

        Raises:
          ValueError: the name is unknown; says which exist.
        """
        return self._each(lambda e: e.metric(name))

    @property
    def accuracy(self) -> np.ndarray:
        """f64[evaluations, seeds], 0..1, if the score has it."""
        return self.metric("accuracy")

    @property
    def loss(self) -> np.ndarray:
        """f64[evaluations, seeds], if the score has it."""
        return self.metric("loss")

    @property
    def uplink_mb(self) -> np.ndarray:
        """f64[evaluations, seeds], megabytes, see `Evaluation`."""
        return self._each(lambda e: e.uplink_mb)

    @property
    def downlink_mb(self) -> np.ndarray:
        """f64[evaluations, seeds], megabytes, see `Evaluation`."""
        return self._each(lambda e: e.downlink_mb)

    def _place_of(self, seed: Seed | None) -> int:
        """Of a seed in the state, which has to be there."""
        seed = checked("seed", self.seeds[0] if seed is None else seed, Seed)
        if self.state is None:
            raise ValueError(
                "state: there is none; the run has not ended, or it is a run of the commands, which keep only shared "
                "models; read these with fp.models.load_model(folder, algorithm, seed)"
            )
        if seed not in self.seeds:
            raise ValueError(f"seed: {seed} was not trained; give one of {list(self.seeds)}")
        return self.seeds.index(seed)

    def _each(self, number: Callable[[Evaluation], np.ndarray]) -> np.ndarray:
        """f64[evaluations, seeds], also where there are no evaluations."""
        return np.array([number(e) for e in self.evaluations]).reshape(-1, len(self.seeds))


class DivergedError(FloatingPointError):
    """The model, or its loss on the test examples, became NaN or infinite; `history` is what was recorded before."""

    def __init__(self, message: str, history: History):
        super().__init__(message)
        self.history = history


def divergence(finite: np.ndarray, start: int, seeds: Sequence[int]) -> str:
    """The message of a `DivergedError`, from finite: bool[seeds, every] of the rounds after round `start`."""
    seed, offset = np.argwhere(~finite)[np.argmin(np.argwhere(~finite)[:, 1])]
    return (
        f"the model or its test loss became NaN or infinite in round {start + offset + 1} (seed {seeds[seed]}); "
        "likely causes: a learning rate too high for unclipped updates, or noise (clip_norm x noise_multiplier / "
        "cohort size) too large for the model; what was recorded before is kept"
    )


def add_traffic(sent: list[int], name: str, metrics: dict, rounds: int) -> None:
    """For a history: adds the bits of `rounds` rounds to each seed's count, in integers: float32 ends at 2^24."""
    for seed, total in enumerate(sent):
        wire = [leaf[seed, :rounds].tolist() for leaf in metrics[name]]
        messages = metrics["cohort_size"][seed, :rounds].tolist()
        alike = Counter(zip(messages, *wire, strict=True))
        sent[seed] = total + sum(n * m * Wire(*w).bits() for (m, *w), n in alike.items())


def above_zero(diagnostics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of a history: the diagnostics [seeds, ...] without the shares of what was not finite that are 0."""
    return {name: x for name, x in diagnostics.items() if name not in SHARES or x.any()}


def means(diagnostics: dict, rounds: int) -> dict[str, np.ndarray]:
    """Of a history: name -> f64[seeds], the means over the first `rounds` of values [seeds, every]."""
    return {name: values[:, :rounds].mean(1) for name, values in diagnostics.items()}
