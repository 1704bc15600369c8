"""Gradients made by hand are measured: whether each is of one record alone, with the norm that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.random_losses import needs_keys, with_keys
from fedpriv.core.types import Key, Params, PyTree
from fedpriv.mechanisms.per_example import RecordGradients
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.record_marks import Mean

_RECORDS = 4
_CLOSE = 1e-3  # relative, of two ways to compute one gradient


def check_gradients(mean: Mean, params: Params, federation: Any, seed: int) -> None:
    """Raises ValueError: gradients made by hand mix records of a batch, or are longer than their norms say.

    Args:
      params: a model.
      federation: whose records are tried, in memory.
    """
    gradients = features_of(mean.step).gradients
    if type(gradients) is RecordGradients:
        return
    structures = (str(jax.tree.structure(tree)) for tree in (params, mean.like))
    if len(set(structures)) > 1:  # of a part of the model
        params = jax.tree.map(lambda s: jnp.full(s.shape, 0.1, s.dtype), mean.like)
    key = jax.random.key(seed)
    rows = jnp.asarray(np.unique(federation.client_rows.on_host().rows)[: _RECORDS + 1])
    if len(rows) < 3:
        raise ValueError(
            f"gradients ({mean.line}): {len(rows)} records are too few to measure them; give a federation with 3 or "
            "more"
        )

    def measure(rows: jax.Array) -> tuple[PyTree, PyTree]:
        """(the norms that are said, the gradients of each record) of a batch."""
        of_batch = gradients(params, _batch(rows))
        ones = jnp.eye(len(rows))
        single = [of_batch.weighted(jax.tree.map(lambda n, w=w: w, of_batch.norms)) for w in ones]
        return of_batch.norms, jax.tree.map(lambda *g: jnp.stack(g), *single)

    def _batch(rows: jax.Array) -> Any:
        batch = jax.tree.map(lambda leaf: leaf[rows], federation.examples)
        return with_keys(key, batch) if needs_keys(gradients) else batch

    measured = jax.jit(measure)
    before = measured(rows[:-1])
    for changed in range(len(rows) - 1):
        others = np.delete(np.arange(len(rows) - 1), changed)
        after = measured(rows[:-1].at[changed].set(rows[-1]))
        for was, became in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            if not _close(was[others], became[others]):
                raise ValueError(
                    f"gradients ({mean.line}): a record's gradient depends on another record of its batch; compute "
                    "each from its own, as fp.per_example(loss) does"
                )

    @jax.jit
    def sums_and_each(weights: PyTree) -> tuple[PyTree, PyTree]:
        of_batch = gradients(params, _batch(rows[:-1]))
        return of_batch.weighted(weights), of_batch.each()

    _check_sums(mean, sums_and_each, before[0], before[1], key)
    for said, g in zip(*map(jax.tree.leaves, before), strict=True):
        lengths = jnp.linalg.norm(g.reshape(len(g), -1), axis=1)
        worst = int(jnp.argmax(lengths - said))
        if lengths[worst] > said[worst] * (1 + _CLOSE) + 1e-30:
            raise ValueError(
                f"gradients ({mean.line}): a norm is {lengths[worst]:.3g}, but `norms` says {said[worst]:.3g}; give "
                "true norms, as fp.per_example(loss) does"
            )


def _check_sums(
    mean: Mean,
    sums_and_each: Callable[[PyTree], tuple[PyTree, PyTree]],
    norms: PyTree,
    each: PyTree,
    key: Key,
) -> None:
    """Raises ValueError: gradients, or weighted sums of them, are not those that one record at a time has."""
    leaves = jax.tree.leaves(each)
    factors = jax.random.uniform(key, (len(leaves), len(leaves[0]))).at[:, 0].set(0.0)
    weights = jax.tree.unflatten(jax.tree.structure(norms), list(factors))
    sums = [jnp.tensordot(w, g.astype(w.dtype), 1) for w, g in zip(factors, leaves, strict=True)]
    together = zip(
        [*sums, *leaves],
        jax.tree.leaves(sums_and_each(weights)),
        strict=True,
    )
    if not all(_close(one, other) for one, other in together):
        raise ValueError(
            f"gradients ({mean.line}): `weighted` and `each` disagree; give fp.per_example(loss)"
        )


def _close(one: Any, other: Any) -> bool:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return bool(np.all(np.abs(one - other) <= _CLOSE * max(np.abs(one).max(), 1e-30)))
