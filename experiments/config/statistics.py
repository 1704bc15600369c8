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
from fedpriv.certification.certificate import TracedRound, trace_round, with_basis
from fedpriv.core.arguments import require
from fedpriv.data.federation import Federation
from fedpriv.privacy import Certificate, certify_releases
from fedpriv.privacy.relations import relation_of
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.statistics import Statistic

BYTES = (0.0, 255.0)
_NO_MODEL = np.zeros(1, np.float32)  # statistics have their own state
Bounds = tuple[float, float]
Shapes = tuple[tuple[str, tuple[int, ...], str], ...]  # name, shape and dtype of each leaf of a record


class Statistics(NamedTuple):
    """Mean and variance of the features, each released in a round of its own before an algorithm trains.

    Attributes:
      asked: by leaf of the examples.
      traced: the rounds, of the examples as they are, in this order.
      bounds: what the features lie between.
      noise_multiplier: sigma of each.
    """

    asked: Mapping[str, Statistic]
    traced: tuple[TracedRound, ...]
    bounds: Bounds
    noise_multiplier: float

    @property
    def runs(self) -> list[tuple[Algorithm, int]]:
        """As `fp.certify_together` takes them."""
        return [(traced.algorithm, 1) for traced in self.traced]

    def alone(
        self, training: TracedRound, delta: float, view: Any, honest: float = 1.0
    ) -> Certificate:
        """What they cost without the training, for its neighbours."""
        relation = _relation(training, view)
        releases = [release for traced in self.traced for release in traced.releases(1)]
        moved = 2 if relation == "replace_one" else 1  # how far, in units of the zeroed one
        nearer = [replace(each, multiplier=each.multiplier / moved) for each in releases]
        certificate = with_basis(certify_releases(nearer, delta, view, honest=honest), self.traced)
        event = " + ".join(each.event for each in releases if each.view == view)
        return replace(certificate, relation=relation, event=event, composition=None)


def asked_of(
    record: Mapping[str, Any], bounds: Bounds | None
) -> dict[str, Statistic]:
    """Mean and variance of an image of bytes, or of all floats but the label; of pictures by channel.

    Args:
      record: with what has a shape and a dtype as leaves.
      bounds: of the floats, or of the bytes in place of 0 and 255.

    Raises:
      ValueError: there are no such leaves; or floats, whose bounds are not known.
    """
    kinds = {name: np.dtype(leaf.dtype) for name, leaf in record.items() if name != "label"}
    names = [name for name, kind in kinds.items() if kind.kind == "f"]
    names = ["image"] if kinds.get("image") == np.uint8 else names
    remedy = "no leaf of the examples is an image of bytes or a float, to be normalised; leave it out"
    require(bool(names), "statistics", " ".join(kinds), remedy)
    known = bounds is not None or names == ["image"] and kinds["image"] == np.uint8
    remedy = "floats have no bounds by their type; give --statistics-bounds LOW HIGH, without looking at the data"
    require(known, "statistics", " ".join(names), remedy)
    return {
        name: of_leaf(name, bounds or BYTES, axis_of(record[name].shape)) for name in names
    }


def axis_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a picture [height, width, channels] its pixels, of which there is one mean a channel; else nothing."""
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
      ValueError: as `asked_of`.
    """
    share = (settings.statistics or 0.0) * (settings.target_epsilon or 0.0)
    leaves = federation.examples.items()
    shapes = tuple((name, tuple(leaf.shape[1:]), str(leaf.dtype)) for name, leaf in leaves)
    counts = federation.num_clients, federation.capacity
    unit, view = training.algorithm.unit, settings.view
    moved = 2 if _relation(training, view) == "replace_one" else 1
    crowd = (shapes, counts, unit, settings.statistics_bounds)
    return at_noise(crowd, moved * _noise(crowd, share, delta, view))


Crowd = tuple[Shapes, tuple[int, int], str, Bounds | None]


@lru_cache(maxsize=64)
def _noise(crowd: Crowd, epsilon: float, delta: float, view: Any) -> float:
    """At which a unit that is zeroed out costs so much."""

    def runs(noise: float) -> list[tuple[Algorithm, int]]:
        return [(algorithm, 1) for algorithm in _algorithms(crowd, noise)]

    options: Any = {"epsilon": epsilon, "delta": delta, "view": view}
    return calibrate_together(runs, _NO_MODEL, _blank(crowd), **options)


@lru_cache(maxsize=64)
def at_noise(crowd: Crowd, noise: float) -> Statistics:
    """The statistics with this noise."""
    asked, blank = _asked(crowd), _blank(crowd)
    traced = (trace_round(each, _NO_MODEL, blank) for each in _algorithms(crowd, noise))
    return Statistics(asked, tuple(traced), crowd[3] or BYTES, noise)


def _algorithms(crowd: Crowd, noise: float) -> list[Algorithm]:
    options: Any = {"noise_multiplier": noise, "unit": crowd[2]}
    blank = _blank(crowd)
    return [statistic.algorithm(blank, **options) for statistic in _asked(crowd).values()]


def _asked(crowd: Crowd) -> dict[str, Statistic]:
    shapes, _, _, bounds = crowd
    return asked_of(_record(shapes), bounds)


def _record(shapes: Shapes) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(shape, np.dtype(kind)) for name, shape, kind in shapes}


def _blank(crowd: Crowd) -> Federation:
    return Federation.blank(_record(crowd[0]), *crowd[1])


def _relation(training: TracedRound, view: Any) -> str:
    """The neighbours for which a training is certified."""
    releases = [release for release in training.releases(1) if release.view == view]
    return relation_of(releases, view)
