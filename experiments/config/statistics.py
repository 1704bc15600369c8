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


def planned(
    algorithm: Algorithm, federation: Federation, settings: Settings, delta: float
) -> Statistics:
    """The statistics of what an algorithm trains on, with the noise at which they alone cost their share.

    Args:
      federation: its shapes count.

    Raises:
      ValueError: the settings' bounds are missing, or there is nothing to normalise.
    """
    examples = federation.examples
    features = features_of(examples, settings.statistics_bounds)
    shapes = tuple((name, examples[name].shape[1:], str(examples[name].dtype)) for name in examples)
    drawn = algorithm.sampler.accounting
    clients = (federation.num_clients, federation.capacity, federation.public.shape[-1])
    epsilon = (settings.statistics or 0.0) * (settings.target_epsilon or 0.0)
    bounds = settings.statistics_bounds or BYTES
    return _planned(
        shapes, features, bounds, clients, algorithm.unit, drawn.adjacency, epsilon, delta, settings.view
    )


@lru_cache(maxsize=64)
def _planned(shapes: Any, features: Any, bounds: Any, clients: Any, unit: Any, adjacency: Any, epsilon: float, delta: float, view: Any) -> Statistics:
    example = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
    blank = Federation.blank(example, clients[0], clients[1], public=clients[2])
    size = sum(2 * example[name].shape[-1] for name in features)
    params = jnp.zeros(size)

    def values(record: Any) -> Any:
        both = []
        for name in features:
            x = (record[name].astype(jnp.float32) - bounds[0]) / (bounds[1] - bounds[0])
            x = jnp.stack([x, x * x])
            both.append(x.mean(tuple(range(1, x.ndim - 1))).ravel() - 0.5)
        return jnp.concatenate(both)

    def make(noise: float) -> Algorithm:
        sampler = {"replace_one": fp.fixed_size(clients[0], clients[0]), "add_or_remove": fp.poisson(clients[0], 1.0)}.get(adjacency, fp.everyone(clients[0]))
        return fp.dp_fed_avg(lambda m, r: 0.5 * ((m - values(r)) ** 2).sum(), sampler=sampler, batches=fp.full_batch(), optimizer=lambda t: optax.sgd(1.0), clip_norm=size ** 0.5 / 2, noise_multiplier=noise)

    noise = fp.calibrate_noise(make, params, blank, epsilon=epsilon, rounds=1, delta=delta, view=view)
    traced = fp.trace_round(make(noise), params, blank)
    return Statistics(traced, params, features, bounds, noise)
