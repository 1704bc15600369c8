"""Gradients made by hand are measured: whether each is of one record alone, with the norm that it says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.certification.privacy_labels import Note
from fedpriv.core.random_losses import needs_keys, with_keys
from fedpriv.core.types import Example, Params, PyTree
from fedpriv.mechanisms.per_example import are_by_records

_RECORDS = 4
_CLOSE = 1e-3  # relative, of two ways to compute one gradient


def check_gradients(note: Note, params: Params, federation: Any, seed: int) -> None:
    """Raises ValueError: gradients made by hand mix records of a batch, or are longer than their norms say.

    Args:
      params: a model.
      federation: whose records are tried, in memory.
    """
    made = note.gradients
    if made is None or are_by_records(made):
        return
    if str(jax.tree.structure(params)) != str(jax.tree.structure(note.like)):
        params = jax.tree.map(lambda s: jnp.full(s.shape, 0.1, s.dtype), note.like)
    key = jax.random.key(seed)
    rows = jnp.unique(federation.rows)[: _RECORDS + 1]

    def of(rows: jax.Array) -> tuple[PyTree, PyTree, PyTree]:
        batch = _with_keys(jax.tree.map(lambda leaf: leaf[rows], federation.examples))
        found = made(params, batch)
        ones = jnp.eye(len(rows))
        alone = [found.weighted(jax.tree.map(lambda n, w=w: w, found.norms)) for w in ones]
        return found.norms, jax.tree.map(lambda *g: jnp.stack(g), *alone), found.each()

    def _with_keys(batch: Example) -> Any:
        return with_keys(key, batch) if needs_keys(made) else batch

    before, after = jax.jit(of)(rows[:-1]), jax.jit(of)(rows[:-1].at[0].set(rows[-1]))
    for was, became in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if not _close(was[1:], became[1:]):
            raise ValueError(
                f"gradients ({note.line}): those of a record change with another record of its batch; compute each "
                "from its own, as fp.per_example(loss) does"
            )
    for said, *grads in zip(*map(jax.tree.leaves, before), strict=True):
        for g in grads:
            lengths = jnp.linalg.norm(g.reshape(len(g), -1), axis=1)
            if bool(jnp.any(lengths > said * (1 + _CLOSE) + 1e-30)):
                raise ValueError(
                    f"gradients ({note.line}): they are longer than the norms by which they are clipped; give "
                    "fp.per_example(loss)"
                )


def _close(one: Any, other: Any) -> bool:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return bool(np.all(np.abs(one - other) <= _CLOSE * max(np.abs(one).max(), 1e-30)))
