"""statistics.json: what a run has released of its clients' features before it trained on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.base.files import opened, write_text
from experiments.base.json_values import of_kind, plain
from fedpriv.privacy import Certificate

STATISTICS = "statistics.json"


@dataclass(frozen=True)
class Moments:
    """Of one leaf of the examples: a number for each channel of an image, or column of a table.

    Attributes:
      mean, variance: as released, with noise.
      mean_error, variance_error: their standard errors, of the noise.
    """

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    mean_error: tuple[float, ...]
    variance_error: tuple[float, ...]


@dataclass(frozen=True)
class ReleasedStatistics:
    """What was released before an algorithm trained.

    Attributes:
      features: by leaf of the examples.
      bounds: what the features were taken to lie between.
      noise_multiplier: sigma.
      certified: what the statistics cost alone, in the settings' view.
    """

    features: dict[str, Moments]
    bounds: tuple[float, float]
    noise_multiplier: float
    certified: Certificate


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
