"""Measurements of noise that is correlated over rounds, where its mechanism or its matrix is made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.provenance import constructed
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import spread
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.noise_matrices import PROVED, Factorization, identity
from fedpriv.proof.marks import Sum
from fedpriv.proof.noise import Floats
from fedpriv.rounds.record_marks import Mean
from fedpriv.testing.measurements import check_mechanism

_STREAMED = 16  # rounds at most
_ROUNDING = 1e-3  # relative, of float32 noise


def check_correlated_noise(release: Sum | Mean, rounds: int, seed: int) -> None:
    """Raises ValueError: a mechanism, or a matrix, made by hand hides less than it says."""
    used: Any = release.step.mechanism
    unknown = type(used) is Mechanism and is_correlated(used) and not constructed(used)
    if not isinstance(release, Sum) or not unknown:
        return
    if used.parts:
        for part, like in zip(used.parts, release.like, strict=True):
            own = replace(release, step=replace(release.step, mechanism=part), like=like)
            check_mechanism(own, rounds, seed)
            check_correlated_noise(own, rounds, seed)
        return
    of_a_round = replace(release.step, mechanism=_of_a_round(used))
    check_mechanism(replace(release, step=of_a_round), rounds, seed)
    if type(used.correlation.factorization) not in PROVED:
        _check_matrix(used.correlation.factorization, release.line)


def _of_a_round(used: Mechanism) -> Mechanism:
    """What clips as `used`, and adds the noise z_t alone, as the engine draws it."""
    inner: Mechanism = used.correlation.mechanism
    if (
        used.correlation.factorization == identity()
    ):  # the engine has `inner` perturb the sum itself
        return inner._replace(clip=used.clip, seal=())
    unit = inner.at(1.0, inner.noise_multiplier)  # type: ignore[misc]

    def perturb(key: Key, total: PyTree) -> PyTree:
        z = unit.perturb(key, jax.tree.map(jnp.zeros_like, total))
        bounds = spread(inner.clip_norm, total)
        return jax.tree.map(lambda s, n, c: s + c * n, total, z, bounds)

    return inner._replace(clip=used.clip, perturb=perturb, seal=())


def _check_matrix(factorization: Factorization, line: str) -> None:
    """Raises ValueError: the noise of the first rounds, N z, hides less than the sensitivity and the bands say.

    A unit in the rounds p that adds the same in each moves N^-1 of the sums by ||N^-1 1_p||.
    """
    rounds = min(factorization.rounds or _STREAMED, _STREAMED)
    noise = _streamed(factorization, rounds)
    singular = not np.isfinite(noise).all() or not np.abs(np.diag(noise)).min() > 0
    moved = np.full((rounds, rounds), np.inf) if singular else np.linalg.inv(noise)
    of_one = float(np.linalg.norm(moved, axis=0).max())
    of_all = float(np.linalg.norm(moved.sum(axis=1)))
    told_one, told_all = (
        factorization.sensitivity(rounds, rounds, 1),
        factorization.sensitivity(rounds),
    )
    for told, measured in ((told_one, of_one), (told_all, of_all)):
        if not measured <= told * (1 + _ROUNDING):
            raise ValueError(
                f"factorization ({line}): it declares a sensitivity of {told:.4g}, but its noise over {rounds} "
                f"rounds has {measured:.4g}; declare the sensitivity of what `next` adds"
            )
    far = np.tril(moved, -(factorization.bands or rounds))
    if np.abs(far).max(initial=0.0) > _ROUNDING * of_one:
        raise ValueError(
            f"factorization ({line}): it declares {factorization.bands} bands, but the inverse of its noise has more; "
            "leave out `bands`"
        )


def _streamed(factorization: Factorization, rounds: int) -> Floats:
    """N, f64[rounds, rounds]: what `next` makes of a unit of noise in each round."""
    memory, rows = factorization.init(jnp.zeros(rounds)), []
    for t in range(rounds):
        row, memory = factorization.next(memory, jnp.eye(rounds)[t], jnp.int32(t))
        rows.append(np.asarray(row, np.float64))
    return np.array(rows)
