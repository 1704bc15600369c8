"""Which leaves of a network get low-rank adapters, and in which shapes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count, CountOrZero, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key
from fedpriv.models.low_rank_products import LowRankSum
from fedpriv.models.named_leaves import matching


class Adapter(NamedTuple):
    """The shapes of a leaf's adapter.

    Attributes:
      rows, columns: n and m, of the matrix that the leaf, or each of its layers, is taken for.
      rank: of A B.
      layers: () or (number of layers,) of a leaf of scanned layers.
      factor: alpha / rank, of A B.
    """

    rows: int
    columns: int
    rank: int
    layers: tuple[int, ...]
    factor: float

    def drawn(self, key: Key, dtype: Any) -> dict[str, jax.Array]:
        """A ~ N(0, 1 / n), and B = 0."""
        shape = (*self.layers, self.rows, self.rank)
        random = jax.random.normal(key, shape, dtype) * self.rows**-0.5
        return {"A": random, "B": jnp.zeros((*self.layers, self.rank, self.columns), dtype)}

    def sum(self, leaf: jax.Array, adapter: Mapping[str, jax.Array]) -> LowRankSum:
        """`leaf` + factor A B, not formed, in the leaf's type."""
        layers = len(self.layers)
        after_rows = [math.prod(leaf.shape[layers:i]) for i in range(layers, leaf.ndim)]
        split = layers + after_rows.index(self.rows)
        a, b = adapter["A"].astype(leaf.dtype), adapter["B"].astype(leaf.dtype)
        a = a.reshape(*leaf.shape[:split], self.rank)
        b = b if self.factor == 1 else self.factor * b
        return LowRankSum(leaf, a, b.reshape(*self.layers, self.rank, *leaf.shape[split:]))


def adapters_of(
    leaves: Mapping[str, jax.Array],
    rank: Count | Mapping[str, CountOrZero],
    where: str,
    stacked: Collection[str],
    alpha: float | None,
) -> dict[str, Adapter]:
    """Path -> adapter, of the leaves that get one; arguments as those of `adapters`.

    Args:
      stacked: paths of leaves of scanned layers.

    Raises:
      ValueError: as `adapters`, of ranks and patterns.
    """
    layers = {path: leaves[path].shape[:1] for path in stacked}
    shapes = {path: leaf.shape[len(layers.get(path, ())) :] for path, leaf in leaves.items()}
    kernels = [path for path, leaf in leaves.items() if _is_kernel(path, leaf, shapes[path])]
    chosen = matching("where", where, kernels)
    sides = {path: _sides(shapes[path]) for path in chosen}
    ranks = _ranks(rank, chosen)
    for path, its_rank in ranks.items():
        _check_rank(path, its_rank, sides)
    return {
        path: Adapter(*sides[path], r, layers.get(path, ()), 1.0 if alpha is None else alpha / r)
        for path, r in ranks.items()
    }


def _ranks(rank: Count | Mapping[str, CountOrZero], paths: list[str]) -> dict[str, int]:
    """Path -> rank, without those that have none."""
    if not isinstance(rank, Mapping):
        return dict.fromkeys(paths, checked("rank", rank, Count))
    ranks: dict[str, int] = {}
    for pattern, its_rank in rank.items():
        its_rank = checked(f"rank[{pattern!r}]", its_rank, CountOrZero)
        for path in matching("rank", pattern, paths):
            ranks.setdefault(path, its_rank)
    above_zero = {path: ranks[path] for path in paths if ranks.get(path)}
    require(bool(above_zero), "rank", rank, "give a leaf a rank above 0, as {'kernel': 4} does")
    return above_zero


def _check_rank(path: str, rank: int, sides: Mapping[str, tuple[int, int]]) -> None:
    """Raises ValueError: it exceeds the smaller side of the leaf's matrix."""
    rows, columns = sides[path]
    if rank <= min(rows, columns):
        return
    large = [other for other, its_sides in sides.items() if min(its_sides) >= rank]
    without = f", or leave it out, as where={large[0]!r} does" if large else ""
    raise ValueError(
        f"rank: {rank} exceeds the smaller side of {path or 'it'}, a matrix of {rows} x {columns}; give at "
        f"most {min(rows, columns)}{without}"
    )


def _is_kernel(path: str, leaf: jax.Array, shape: tuple[int, ...]) -> bool:
    """Attention has biases of two axes, [heads, size].

    Args:
      shape: of the leaf, or of each of its layers.
    """
    real = bool(jnp.issubdtype(leaf.dtype, jnp.floating))
    return real and len(shape) >= 2 and not path.endswith("bias")


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the matrix that an array is taken for: as few as possible; if in doubt, many rows."""
    splits = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(reversed(splits), key=sum)
