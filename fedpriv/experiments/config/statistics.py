"""Statistics before training: what is released of the features first, for a share of the target epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv import statistics
from fedpriv.certification.calibration import least_noise
from fedpriv.certification.certificate import trace_round
from fedpriv.certification.groups import by_group
from fedpriv.certification.persons_held import PersonsHeld
from fedpriv.certification.traced_round import TracedRound, with_basis
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.core.complaints import require
from fedpriv.data.federation import Federation
from fedpriv.experiments.config.intervals import FIELD, Bounds, Interval, intervals_of
from fedpriv.experiments.config.settings import Settings
from fedpriv.privacy import Certificate, certify_seen
from fedpriv.privacy.certify import among
from fedpriv.privacy.sampling import Neighbour
from fedpriv.proof.seen import common_neighbour
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.statistics import Statistic

BYTES = (0.0, 255.0)
_NO_MODEL = np.zeros(1, np.float32)  # statistics have a state of their own
_TOLERANCE = 1e-4  # of the noise, as of `fp.calibrate_noise`


class Features(NamedTuple):
    """What statistics are of: all that an algorithm is made of, beside the noise.

    Attributes:
      leaves: name, shape and dtype of each leaf of a record.
      clients, per_client: how many there are, and the most records of one.
      unit: what is protected.
      limits: name of each leaf that is a feature, and what it lies between.
      persons: what each of them holds, where they are protected.
    """

    leaves: tuple[tuple[str, tuple[int, ...], str], ...]
    clients: int
    per_client: int
    unit: str
    limits: tuple[tuple[str, Interval], ...]
    persons: PersonsHeld | None = None

    @property
    def asked(self) -> dict[str, Statistic]:
        """By leaf."""
        shapes = {name: shape for name, shape, _ in self.leaves}
        return {name: of_leaf(name, each, axis_of(shapes[name])) for name, each in self.limits}

    @property
    def blank(self) -> Federation:
        record = {name: jax.ShapeDtypeStruct(of, np.dtype(kind)) for name, of, kind in self.leaves}
        return Federation.blank(record, self.clients, self.per_client)

    def algorithms(self, noise: float) -> list[Algorithm]:
        options: Any = {"noise_multiplier": noise, "unit": self.unit}
        return [statistic.algorithm(self.blank, **options) for statistic in self.asked.values()]


class Units(NamedTuple):
    """Of what a training is certified.

    Attributes:
      kinds: of persons, by what they hold, or one of all units.
      neighbour: how neighbours differ; of all groups of a training they are alike.
      view: of the certificate.
    """

    kinds: tuple[UnitKind, ...]
    neighbour: Neighbour
    view: Any

    @classmethod
    def of(cls, training: TracedRound, view: Any) -> Units:
        seen = training.seen(1, training.kinds[0])
        neighbour = common_neighbour([each for each in seen if each.view == view])
        return cls(training.kinds if training.persons else (ANY,), neighbour, view)


class Statistics(NamedTuple):
    """Mean and variance of the features, each released in a round of its own before an algorithm trains.

    Attributes:
      features: what they are of.
      traced: the rounds, in order.
      noise_multiplier: sigma of each.
    """

    features: Features
    traced: tuple[TracedRound, ...]
    noise_multiplier: float

    @property
    def runs(self) -> list[tuple[Algorithm, int]]:
        """As `fp.certify_together` takes them."""
        return [(traced.algorithm, 1) for traced in self.traced]

    def alone(
        self, training: TracedRound, delta: float, view: Any, honest: float = 1.0
    ) -> Certificate:
        """What they cost without the training that follows, for its units and neighbours."""
        return self.cost(Units.of(training, view), delta, honest)

    def cost(self, units: Units, delta: float, honest: float = 1.0) -> Certificate:
        """Of such units, of whichever kind it is most."""

        def of(kind: UnitKind) -> Certificate:
            every = [each for traced in self.traced for each in traced.seen(1, kind, honest=honest)]
            return certify_seen([among(each, units.neighbour) for each in every], delta, units.view)

        certificate = by_group({kind: of(kind) for kind in units.kinds})
        return replace(with_basis(certificate, self.traced), compositions=())


def limits_of(record: Mapping[str, Any], bounds: Bounds | None) -> dict[str, Interval]:
    """The features and what they lie between: an image of bytes, or all floats but the label, or those that are named.

    Args:
      record: with what has a shape and a dtype as leaves.
      bounds: of the floats, or of the bytes in place of 0 and 255; by name, of these features alone.

    Raises:
      ValueError: there are no such leaves; floats, whose bounds are not known; a name of none.
    """
    kinds = {name: np.dtype(leaf.dtype) for name, leaf in record.items() if name != "label"}
    bytes_ = kinds.get("image") == np.uint8
    names = ["image"] if bytes_ else [name for name, kind in kinds.items() if kind.kind == "f"]
    known = intervals_of(bounds) if bounds else None
    if isinstance(known, Mapping):
        for name in known:
            remedy = f"name features that can be normalised, of {' '.join(names) or 'which there are none'}"
            require(name in names, FIELD, name, remedy)
        return dict(known)
    remedy = (
        "no leaf of the examples is an image of bytes or a float, to be normalised; leave it out"
    )
    require(bool(names), "statistics", " ".join(kinds), remedy)
    remedy = (
        "floats have no bounds by their type; give --statistics-bounds LOW HIGH, or NAME=LOW:HIGH for each, without "
        "looking at the data"
    )
    require(bytes_ or known is not None, "statistics", " ".join(names), remedy)
    return dict.fromkeys(names, known or BYTES)


def axis_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a picture [height, width, channels] its pixels, so that there is one mean a channel; else nothing."""
    return (0, 1) if len(shape) == 3 and min(shape[:2]) > 1 else ()


def of_leaf(name: str, bounds: Interval, axis: Sequence[int]) -> Statistic:
    """What is released of a leaf of the examples: mean and variance, of pictures by channel."""
    return statistics.mean_and_variance(name, bounds=tuple(bounds), axis=tuple(axis))


def planned(
    training: TracedRound, federation: Federation, settings: Settings, delta: float
) -> Statistics:
    """What is released before this training, with the noise at which that alone costs its share of the target.

    Args:
      federation: its shapes count.

    Raises:
      ValueError: as `limits_of`; persons whose clients are of several groups, or take turns.
    """
    persons = training.persons
    remedy = "a person's clients are in groups, or take turns; leave it out, and release them by fp.statistics"
    alike = persons is None or not persons.in_classes
    require(alike, "statistics", settings.statistics, remedy)
    share = (settings.statistics or 0.0) * (settings.target_epsilon or 0.0)
    examples = federation.examples
    remedy = "the examples are no dict of arrays; leave it out"
    require(isinstance(examples, Mapping), "statistics", settings.statistics, remedy)
    leaves = tuple((name, tuple(x.shape[1:]), str(x.dtype)) for name, x in examples.items())
    counts = federation.num_clients, federation.capacity
    record = {name: jax.ShapeDtypeStruct(of, np.dtype(kind)) for name, of, kind in leaves}
    limits = tuple(limits_of(record, settings.statistics_bounds).items())
    features = Features(leaves, *counts, training.algorithm.unit, limits, persons)
    return at_noise(features, _noise(features, Units.of(training, settings.view), share, delta))


@lru_cache(maxsize=64)
def _noise(features: Features, units: Units, epsilon: float, delta: float) -> float:
    """At which they cost so much."""
    return least_noise(
        lambda noise: at_noise(features, noise).cost(units, delta), epsilon, _TOLERANCE
    )


@lru_cache(maxsize=64)
def at_noise(features: Features, noise: float) -> Statistics:
    """The statistics with this noise."""
    traced = (trace_round(a, _NO_MODEL, features.blank) for a in features.algorithms(noise))
    whose = (each._replace(persons=features.persons) for each in traced)
    return Statistics(features, tuple(whose), noise)
