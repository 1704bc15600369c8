"""statistics.json: what a run has released of its clients' features before it trained on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.json_values import of_kind, plain
from fedpriv.experiments.base.files import opened, write_text
from fedpriv.experiments.config.statistics import of_leaf
from fedpriv.privacy import Certificate
from fedpriv.statistics import Moments, Released

STATISTICS = "statistics.json"


@dataclass(frozen=True)
class Feature:
    """One leaf of the examples: a number for each channel of a picture, or for each of a record's.

    Attributes:
      mean, variance: as released, with noise; lists, nested as the numbers are.
      mean_error, variance_error: their standard errors.
      axis: of one record, over which the numbers are averaged.
    """

    mean: Any
    variance: Any
    mean_error: Any
    variance_error: Any
    axis: tuple[int, ...] = ()

    @classmethod
    def of(cls, released: Released) -> Feature:
        (mean, variance), (of_mean, of_variance) = (
            [np.asarray(x).tolist() for x in each]
            for each in (released.value, released.standard_error)
        )
        return cls(mean, variance, of_mean, of_variance, released.statistic.axis)


@dataclass(frozen=True)
class ReleasedStatistics:
    """What was released before an algorithm trained.

    Attributes:
      features: by leaf of the examples.
      bounds: what each feature was taken to lie between, by leaf; of all in files of older versions.
      noise_multiplier: sigma of each.
      certified: what they cost alone, in the settings' view; the run's certificates count them.
    """

    features: dict[str, Feature]
    bounds: dict[str, tuple[float, float]] | tuple[float, float]
    noise_multiplier: float
    certified: Certificate

    @property
    def relative_error(self) -> float:
        """The largest standard error of a mean, as a share of the range between the bounds."""
        return max(
            float(np.max(of.mean_error)) / -float(np.subtract(*self._between(name)))
            for name, of in self.features.items()
        )

    @property
    def by(self) -> list[Released]:
        """For `fp.normalised`, which makes of further examples what the model was trained on."""
        return [
            Released(
                of_leaf(name, self._between(name), of.axis),
                _moments(of.mean, of.variance),
                _moments(of.mean_error, of.variance_error),
                noise_multiplier=self.noise_multiplier,
            )
            for name, of in self.features.items()
        ]

    def _between(self, name: str) -> tuple[float, float]:
        return self.bounds[name] if isinstance(self.bounds, dict) else self.bounds


def _moments(mean: Any, variance: Any) -> Moments:
    return Moments(np.asarray(mean, np.float64), np.asarray(variance, np.float64))


def released_of(
    released: Mapping[str, Released],
    bounds: Mapping[str, tuple[float, float]],
    noise_multiplier: float,
    certified: Certificate,
) -> ReleasedStatistics:
    """As a run keeps it, by leaf."""
    features = {name: Feature.of(each) for name, each in released.items()}
    return ReleasedStatistics(features, dict(bounds), noise_multiplier, certified)


def write_statistics(folder: Path, found: Mapping[str, ReleasedStatistics]) -> None:
    """Raises OSError: the file cannot be written."""
    content = {name: plain(statistics) for name, statistics in found.items()}
    write_text(folder / STATISTICS, json.dumps(content, indent=2) + "\n")


def read_statistics(folder: Path) -> dict[str, ReleasedStatistics]:
    """By algorithm; empty where none were released.

    Raises:
      ValueError: the file is damaged.
    """
    path, remedy = folder / STATISTICS, "restore it, or leave this run out"
    if not path.exists():
        return {}
    with opened(path, remedy) as file:
        text = file.read()
    try:
        return of_kind(dict[str, ReleasedStatistics], json.loads(text.decode()), "")
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from None
