"""Statistics before training: what is released of the features first, for a share of the target epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.config.settings import Settings
from fedpriv import statistics
from fedpriv.certification.calibration import calibrate_together
from fedpriv.certification.certificate import trace_round
from fedpriv.certification.traced_round import TracedRound, with_basis
from fedpriv.core.complaints import require
from fedpriv.data.federation import Federation
from fedpriv.privacy import Certificate, certify_seen
from fedpriv.privacy.certify import among
from fedpriv.privacy.sampling import Neighbour
from fedpriv.proof.seen import common_neighbour
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.statistics import Statistic

BYTES = (0.0, 255.0)
_NO_MODEL = np.zeros(1, np.float32)  # statistics have a state of their own
Bounds = tuple[float, float]


class Features(NamedTuple):
    """What statistics are of: all that an algorithm is made of, beside the noise.

    Attributes:
      leaves: name, shape and dtype of each leaf of a record.
      clients, per_client: how many there are, and the most records of one.
      unit: what is protected.
      bounds: what the features lie between.
    """

    leaves: tuple[tuple[str, tuple[int, ...], str], ...]
    clients: int
    per_client: int
    unit: str
    bounds: Bounds | None

    @property
    def limits(self) -> Bounds:
        """The bounds, known or given."""
        return self.bounds or BYTES

    @property
    def asked(self) -> dict[str, Statistic]:
        """By leaf, see `asked_of`."""
        return asked_of(self._record, self.bounds)

    @property
    def blank(self) -> Federation:
        return Federation.blank(self._record, self.clients, self.per_client)

    def algorithms(self, noise: float) -> list[Algorithm]:
        options: Any = {"noise_multiplier": noise, "unit": self.unit}
        return [statistic.algorithm(self.blank, **options) for statistic in self.asked.values()]

    @property
    def _record(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {name: jax.ShapeDtypeStruct(of, np.dtype(kind)) for name, of, kind in self.leaves}


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
        """What they cost without the training that follows, for its neighbours."""
        neighbour = _neighbour(training, view)
        every = [each for traced in self.traced for each in traced.seen(1, honest=honest)]
        seen = [among(each, neighbour) for each in every]
        certificate = with_basis(certify_seen(seen, delta, view), self.traced)
        return replace(certificate, compositions=())


def asked_of(record: Mapping[str, Any], bounds: Bounds | None) -> dict[str, Statistic]:
    """By leaf: mean and variance of an image of bytes, or of all floats but the label; of pictures by channel.

    Args:
      record: with what has a shape and a dtype as leaves.
      bounds: of the floats, or of the bytes in place of 0 and 255.

    Raises:
      ValueError: there are no such leaves; or floats, whose bounds are not known.
    """
    kinds = {name: np.dtype(leaf.dtype) for name, leaf in record.items() if name != "label"}
    bytes_ = kinds.get("image") == np.uint8
    names = ["image"] if bytes_ else [name for name, kind in kinds.items() if kind.kind == "f"]
    remedy = (
        "no leaf of the examples is an image of bytes or a float, to be normalised; leave it out"
    )
    require(bool(names), "statistics", " ".join(kinds), remedy)
    remedy = "floats have no bounds by their type; give --statistics-bounds LOW HIGH, without looking at the data"
    require(bytes_ or bounds is not None, "statistics", " ".join(names), remedy)
    shapes = {name: record[name].shape for name in names}
    return {name: of_leaf(name, bounds or BYTES, axis_of(shapes[name])) for name in names}


def axis_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a picture [height, width, channels] its pixels, so that there is one mean a channel; else nothing."""
    return (0, 1) if len(shape) == 3 and min(shape[:2]) > 1 else ()


def of_leaf(name: str, bounds: Bounds, axis: Sequence[int]) -> Statistic:
    """What is released of a leaf of the examples."""
    return statistics.mean_and_variance(name, bounds=tuple(bounds), axis=tuple(axis))


def planned(
    training: TracedRound, federation: Federation, settings: Settings, delta: float
) -> Statistics:
    """What is released before this training, with the noise at which that alone costs its share of the target.

    Args:
      federation: its shapes count.

    Raises:
      ValueError: as `asked_of`; units that are persons, whose share of the target is not what a client's is.
    """
    remedy = "units are persons; leave it out, and release them by fp.statistics"
    require(training.persons is None, "statistics", settings.statistics, remedy)
    share = (settings.statistics or 0.0) * (settings.target_epsilon or 0.0)
    examples = federation.examples
    remedy = "the examples are no dict of arrays; leave it out"
    require(isinstance(examples, Mapping), "statistics", settings.statistics, remedy)
    leaves = tuple((name, tuple(x.shape[1:]), str(x.dtype)) for name, x in examples.items())
    counts = federation.num_clients, federation.capacity
    features = Features(leaves, *counts, training.algorithm.unit, settings.statistics_bounds)
    noise = _noise(features, share, delta, settings.view)
    return at_noise(features, _moved(_neighbour(training, settings.view)) * noise)


@lru_cache(maxsize=64)
def _noise(features: Features, epsilon: float, delta: float, view: Any) -> float:
    """At which a unit that is zeroed out costs so much."""
    options: Any = {"epsilon": epsilon, "delta": delta, "view": view}
    return calibrate_together(
        lambda noise: [(algorithm, 1) for algorithm in features.algorithms(noise)],
        _NO_MODEL,
        features.blank,
        **options,
    )


@lru_cache(maxsize=64)
def at_noise(features: Features, noise: float) -> Statistics:
    """The statistics with this noise."""
    traced = (trace_round(a, _NO_MODEL, features.blank) for a in features.algorithms(noise))
    return Statistics(features, tuple(traced), noise)


def _neighbour(training: TracedRound, view: Any) -> Neighbour:
    """The neighbours for which a training is certified; those of all its groups are alike."""
    seen = training.seen(1, training.kinds[0])
    return common_neighbour([each for each in seen if each.view == view])


def _moved(neighbour: Neighbour) -> float:
    """How far a sum moves, in norms of the unit that is zeroed out."""
    return 2.0 if neighbour == "replaced" else 1.0
