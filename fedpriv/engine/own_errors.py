"""How exactly a client's own records tell a metric: its standard error over them, or over the persons they are of.

A metric is a function of sums over the records. To first order, one record moves it by the gradient at the sums times
what that record adds (the infinitesimal jackknife: B. Efron, "Nonparametric standard errors and confidence intervals",
Canadian Journal of Statistics, 1981). Of an AUC that is E. R. DeLong et al.'s error (Biometrics, 1988), of an accuracy
the binomial's; moves of one person's records are added up first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.models.score import WEIGHT, Score, is_fraction

_ROUNDING = 1e-5
"""Of an average record's parts, what may be left of a move whose parts cancel in float32."""


class OwnErrors(NamedTuple):
    """Of one client; of several, in several seeds, with leading axes.

    Attributes:
      units: f32[...], how many of its records weigh anything, or of its persons who have such.
      errors: by metric, f32[...], the standard error over them; NaN of fewer than two, and where it is not known.
      shares: by metric, f32[...], in 0..1, the share of the records that is behind it, see `Score.counts`; NaN where no
        error is known, such as that of a derived metric which is not among `Score.smooth`.
    """

    units: Any
    errors: dict[str, Any]
    shares: dict[str, Any]


def owners(federation: Any) -> np.ndarray | None:
    """i32[total], a number for each record: equal where records share a person. None where each is a unit of its own.

    So it is where the data do not say whose records are, and where every client is one person's.
    """
    persons = federation.persons
    if persons is None or persons.of_clients:
        return None
    if not persons.have_several:
        return np.asarray(persons.owners[:, 0], np.int32)
    from scipy import sparse

    row, place = np.nonzero(persons.owners >= 0)
    total, number = len(persons.owners), persons.number
    edges = np.ones(len(row)), (row, total + persons.owners[row, place])
    joined = sparse.coo_array(edges, shape=(total + number, total + number))
    _, found = sparse.csgraph.connected_components(joined, directed=False)
    return np.asarray(found[:total], np.int32)


def own_errors(
    score: Score, sums: Mapping[str, Any], each: Mapping[str, Any], there: jax.Array, owner: Any
) -> OwnErrors:
    """Of a client's records.

    Args:
      sums: what the score sums over these.
      each: what it gives for each of them, leaves [n, ...], where `there` (bool[n]).
      owner: i32[n], equal where records share a person; None: each is a unit of its own.
    """
    weighs = there & (each[WEIGHT] != 0)
    unit = jnp.arange(len(weighs))
    if owner is not None:
        unit = jnp.unique(owner, return_inverse=True, size=len(weighs))[1].reshape(-1)

    def of_units(moves: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(jnp.where(weighs, moves, 0.0), unit, len(weighs))

    units = jnp.sum(of_units(jnp.ones(len(weighs))) > 0).astype(jnp.float32)
    errors, shares = {}, {}
    for name, moves in _moves(score, sums, each).items():
        if moves is None:
            errors[name] = shares[name] = jnp.full((), jnp.nan)
            continue
        of = of_units(moves)
        squares = jnp.sum(of**2)
        errors[name] = jnp.where(units > 1, jnp.sqrt(squares * units / (units - 1)), jnp.nan)
        if name in score.counts:
            shares[name] = jnp.clip(score.counts[name](score.means(sums)), 0.0, 1.0)
        elif name in score.derived and is_fraction(name):
            # As many as there would be if all moved it alike.
            alike = jnp.sum(jnp.abs(of)) ** 2 / jnp.where(squares > 0, squares, 1.0)
            shares[name] = alike / jnp.maximum(units, 1.0)
        else:
            shares[name] = jnp.ones(())
    return OwnErrors(units, errors, shares)


def _moves(
    score: Score, sums: Mapping[str, Any], each: Mapping[str, Any]
) -> dict[str, jax.Array | None]:
    """By metric, f32[n]: how far each record moves it, to first order; None where the first order is not known to do.

    So it is of a derived metric that nobody calls smooth: it may choose a threshold, which moves with the records.
    """
    weight, means = sums[WEIGHT], score.means(sums)
    found: dict[str, jax.Array | None] = {
        name: (each[name] - mean * each[WEIGHT]) / weight
        for name, mean in means.items()
        if jnp.ndim(mean) == 0
    }
    for name, derive in score.derived.items():
        gradient = _gradient(score, derive, sums) if name in score.smooth else {}
        if not gradient:
            found[name] = None
            continue
        moves = sum(jnp.tensordot(each[key], of, of.ndim) for key, of in gradient.items())
        parts = sum(jnp.sum(jnp.abs(of * sums[key])) for key, of in gradient.items())
        small = jnp.abs(moves) <= _ROUNDING * parts / len(each[WEIGHT])
        found[name] = jnp.where(small, 0.0, moves)
    return found


def _gradient(
    score: Score, derive: Callable[[Any], Any], sums: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Of a derived metric by the sums; empty where JAX cannot take it, as of a loop of the user's."""

    def number(sums: Any) -> jax.Array:
        return jnp.asarray(derive(score.means(sums)), jnp.float32)

    try:
        return dict(jax.grad(number)(dict(sums)))
    except Exception:  # whatever the user's own function does that has no derivative
        return {}
