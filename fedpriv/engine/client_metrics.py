"""How evenly a model serves the clients: a metric of each one's own records. A diagnostic, not private."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Finite, checked, require
from fedpriv.core.types import State
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import sum_over
from fedpriv.engine.compiled_rounds import ScoreFn
from fedpriv.engine.simulate import Measure
from fedpriv.models.score import Score, better_higher, main_metric

PREFIX = "per_client_"
BATCH = 250  # records at a time, if a client has not more


def per_client(
    score: ScoreFn,
    clients: Count = 20,
    metric: str | None = None,
    bound: Finite | None = None,
    on: Federation | None = None,
) -> Measure:
    """A `measure` for `simulate`: how a metric of the clients' own records is spread over them, each counting equally.

    For accuracy, say: `per_client_accuracy_mean`, `_median`, `_worst_decile`, the mean over the tenth of the clients
    (rounded up) that fare worst (T. Li et al., "Fair resource allocation in federated learning", ICLR 2020), and
    `_below_0.5`, the fraction of clients worse than the bound (`_above_` where lower is better). A client whose records
    have no weight does not count.

    Args:
      score: as `simulate`'s.
      clients: how many are evaluated, the same ones every time: drawn once without replacement, all if there are fewer.
      metric: by default accuracy, else loss, else the first.
      bound: by default 0.5 for an accuracy, none for others.
      on: clients with other records, such as held-out ones; by default those that train, with their training records.

    Raises:
      ValueError: clients below 1, or a bound that is no number; when it is called, no such metric.
    """
    require(callable(score), "score", score, "give a function, (params, example) -> {name: number}")
    clients = checked("clients", clients, Count)
    bound = checked("bound", bound, Finite | None)
    known = metric is None or isinstance(metric, str)
    require(known, "metric", metric, "give the name of one that the score gives")
    fits = on is None or isinstance(on, Federation)
    require(fits, "on", on, "give such as fp.Federation.from_arrays(...)")
    scored = Score.of(score)

    def measure(state: State, federation: Federation) -> dict[str, jax.Array]:
        of = on if on is not None else federation
        name = main_metric(scored.names(state.params, of.examples), metric)
        values = _each(scored, name, state, of, clients)
        return _spread(values, name, better_higher(name, scored.higher), bound)

    return measure


def _each(score: Score, name: str, state: State, of: Federation, clients: int) -> jax.Array:
    """f32[clients evaluated]; NaN where a client's records have no weight."""
    total = of.num_clients
    count = min(clients, total)
    chosen = np.sort(np.random.default_rng(0).choice(total, count, replace=False))
    together = max(1, BATCH // of.capacity)
    ids = np.resize(chosen, (-(-count // together), together)).astype(np.int32)

    def client(i: jax.Array) -> jax.Array:
        examples = jax.tree.map(lambda leaf: leaf[of.rows[i]], of.examples)
        each = jax.vmap(score, in_axes=(None, 0))(state.params, examples)
        there = jnp.arange(of.capacity) < of.size[i]
        return score.metrics(jax.tree.map(lambda s: jnp.sum(jnp.where(there, s, 0.0)), each))[name]

    every = jnp.ones(len(ids), bool)
    values = sum_over(lambda some: ((), jax.vmap(client)(some)), every, jnp.asarray(ids))[1]
    return jnp.asarray(values).reshape(-1)[:count]


def _spread(
    values: jax.Array, metric: str, higher: bool, bound: float | None
) -> dict[str, jax.Array]:
    name, worst, sign = PREFIX + metric, math.ceil(len(values) / 10), 1 if higher else -1
    statistics = {
        f"{name}_mean": jnp.nanmean(values),
        f"{name}_median": jnp.nanmedian(values),
        f"{name}_worst_decile": sign * jnp.nanmean(jnp.sort(sign * values)[:worst]),  # NaN is last
    }
    if bound is None and metric == "accuracy":
        bound = 0.5
    if bound is not None:
        beyond = jnp.where(jnp.isnan(values), jnp.nan, sign * values < sign * bound)
        statistics[f"{name}_{'below' if higher else 'above'}_{bound:g}"] = jnp.nanmean(beyond)
    return statistics


def labelled(names: Collection[str]) -> tuple[str, dict[str, str]]:
    """The metric of the numbers with these names, and by label which is which, in the order of `per_client`."""
    (mean,) = (name for name in names if name.endswith("_mean"))
    stem = mean.removesuffix("mean")
    ends = ["mean", "median", "worst_decile"]
    ends += sorted({name.removeprefix(stem) for name in names} - set(ends))
    metric = stem.removeprefix(PREFIX).removesuffix("_")
    return metric, {end.replace("_", " "): stem + end for end in ends}


def together(*measures: Measure) -> Measure:
    """One `measure` of several, with the numbers of all.

    Raises:
      ValueError: one of them is no function.
    """
    for i, each in enumerate(measures):
        require(
            callable(each), f"measures[{i}]", each, "give such as fp.measures.per_client(score)"
        )

    def measure(state: State, federation: Federation) -> dict[str, Any]:
        measured: dict[str, Any] = {}
        for each in measures:
            measured |= each(state, federation)
        return measured

    return measure
