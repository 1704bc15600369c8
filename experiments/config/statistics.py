"""Statistics before training: what is released of the features first, for a share of the target epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from experiments.config.settings import Settings
from fedpriv.certification.certificate import TracedRound
from fedpriv.core.arguments import require
from fedpriv.core.types import Example
from fedpriv.data.federation import Federation
from fedpriv.rounds.algorithm import Algorithm

BYTES = (0.0, 255.0)


class Statistics(NamedTuple):
    """Mean and variance of the features, a run of one round.

    Attributes:
      traced: the round, of the examples as they are.
      params: what it begins with.
      features: names of the leaves of an example.
      bounds: what the features lie between.
      noise_multiplier: sigma.
    """

    traced: TracedRound
    params: Any
    features: tuple[str, ...]
    bounds: tuple[float, float]
    noise_multiplier: float

    @property
    def run(self) -> tuple[Algorithm, int, Any]:
        """As `fp.certify_together` takes it."""
        return self.traced.algorithm, 1, self.params


def features_of(example: Mapping[str, Any], bounds: tuple[float, float] | None) -> tuple[str, ...]:
    """Names of the leaves that statistics are of: an image of bytes, or all floats but the label.

    Args:
      example: with what has a shape and a dtype as leaves.

    Raises:
      ValueError: there are none; or floats, whose bounds are not known.
    """
    kinds = {name: np.dtype(leaf.dtype) for name, leaf in example.items() if name != "label"}
    if kinds.get("image") == np.uint8:
        return ("image",)
    found = tuple(name for name, kind in kinds.items() if jnp.issubdtype(kind, jnp.floating))
    remedy = "no leaf of the examples is an image of bytes or a float, to be normalised; leave it out"
    require(bool(found), "statistics", " ".join(kinds), remedy)
    remedy = "floats have no bounds by their type; give --statistics-bounds LOW HIGH, without looking at the data"
    require(bounds is not None, "statistics", " ".join(found), remedy)
    return found
