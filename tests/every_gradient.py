"""Losses whose gradients of records are of every kind: a new one gets one entry, and is held to all laws."""

from collections.abc import Callable
from typing import NamedTuple

import factored_models as of
import jax
import jax.numpy as jnp
import numpy as np
from factored_models import (
    LAYERS,
    MATRIX,
    TABLE,
    VOCABULARY,
    WIDTH,
    B,
    batch,
    filled,
    square,
)


class Case(NamedTuple):
    """A loss.

    Attributes:
      kind: which code finds its gradients.
      loss, params, batch: (params, record) -> number, its parameters, and records.
      factored: the leaves whose gradients stay factors.
      large: from how many numbers a layer's gradient counts as large; None: factors always pay.
      close: the share of a leaf's largest number within which all that is found is.
    """

    kind: str
    loss: Callable
    params: dict[str, jax.Array]
    batch: dict[str, jax.Array]
    factored: list[str]
    large: int | None = None
    close: float = 2e-4


TIED = {**TABLE, **MATRIX}
TWO = {**MATRIX, "other": filled(WIDTH, WIDTH, seed=4)}
ALL = {**TABLE, **LAYERS}
IN = batch()
NEGATIVE = batch(-VOCABULARY, VOCABULARY)
OUT = batch(-2 * VOCABULARY, 2 * VOCABULARY)
BYTES = {**IN, "x": IN["x"].astype(jnp.uint8)}


def rows(*shape):
    """Records of inputs and labels."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(B, *shape)), jnp.float32)
    return {"x": x, "y": jnp.asarray(rng.integers(0, 3, B))}


def layer(i, o, into=None):
    """Two layers, of which the first has a bias."""
    return {"b": jnp.ones(o), "out": filled(o, 3, seed=1), "w": filled(i, into or o, seed=1)}


HEADS = {
    "into": filled(30, 20, seed=1).reshape(30, 5, 4),
    "out": filled(20, 30, seed=1).reshape(5, 4, 30),
}
ATTENTION = {name: filled(8, 2, 4, seed=i) for i, name in enumerate("qkv")} | {
    "out": filled(2, 4, 8, seed=3)
}


def by_size(loss, params, batch, factored):
    """Of which layers count as large from 100 numbers on."""
    return Case("by size", loss, params, batch, factored, 100, 1e-5)


CASES = {
    "shared, transposed": Case("product", of.shared_transposed, MATRIX, IN, ["w"]),
    "dense": Case("product", of.dense, MATRIX, IN, ["w"]),
    "two leaves": Case("product", of.stacked_twice, TWO, IN, ["w", "other"]),
    "solved": Case("product", of.solved, MATRIX, IN, ["w"]),
    "adapters": Case(
        "product",
        of.over_a_base,
        {"a": filled(WIDTH, 2), "b": filled(2, WIDTH)},
        IN,
        ["a", "b"],
    ),
    "flipping": Case("formed", of.flipping, MATRIX, IN, []),
    "shared, otherwise": Case("formed", of.shared_otherwise, MATRIX, IN, []),
    "two places": Case("formed", of.two_places, TABLE, IN, []),
    "several rows": Case("formed", of.several_rows, TABLE, IN, []),
    "branches": Case("formed", of.branches, MATRIX, IN, []),
    "two look-ups": Case("look-up", of.twice, TABLE, IN, ["table"]),
    "embedding": Case("look-up", of.embedding, TABLE, IN, ["table"]),
    "columns": Case("look-up", of.columns, TABLE, IN, ["table"]),
    "fixed places": Case("look-up", of.fixed_places, TABLE, IN, ["table"]),
    "one-hot": Case("look-up", of.one_hot, TABLE, IN, ["table"]),
    "rows and columns": Case("look-up", of.rows_and_columns, TABLE, IN, ["table"]),
    "embedding of bytes": Case("look-up", of.embedding, TABLE, BYTES, ["table"]),
    "embedding, from the end": Case("beyond", of.embedding, TABLE, NEGATIVE, ["table"]),
    "taken, filled": Case("beyond", of.taken("fill"), TABLE, OUT, ["table"]),
    "taken, clipped": Case("beyond", of.taken("clip"), TABLE, OUT, ["table"]),
    "taken, wrapped": Case("beyond", of.taken("wrap"), TABLE, OUT, ["table"]),
    "tied, scan, remat": Case(
        "scan, remat", of.tied_scanned(jax.checkpoint), ALL, IN, ["table", "layers"]
    ),
    "scan": Case("scan, remat", lambda p, e: square(of.scanned(p, e)), LAYERS, IN, ["layers"]),
    "tables": Case(
        "scan, remat", of.tables, {"tables": filled(3, VOCABULARY, WIDTH)}, IN, ["tables"]
    ),
    "shared layers": Case("shared in a loop", of.shared_layers, MATRIX, IN, ["w"]),
    "over time, remat": Case(
        "shared in a loop", of.over_time(jax.checkpoint), TIED, IN, ["table", "w"]
    ),
    "remat, called": Case("remat", of.called_thrice, TWO, IN, ["w", "other"]),
    "remat, shared": Case("remat", of.recomputed, TWO, IN, ["w", "other"]),
    "remat, whole": Case("remat", of.recomputed_whole, ALL, IN, ["table", "layers"]),
    "remat, embedding": Case("remat", of.looked_up_again, TIED, IN, ["table", "w"]),
    "nested, remat": Case(
        "scan, remat", of.nested_leaf, {"nested": filled(2, 3, WIDTH, WIDTH)}, IN, ["nested"]
    ),
    "dropout": Case("scan, remat", of.with_dropout, LAYERS, IN, ["layers"]),
    "odd leaves": Case(
        "scan, remat",
        of.odd_leaves,
        {"layers": LAYERS["layers"], "scales": filled(3), "unused": filled(4)},
        IN,
        ["layers"],
    ),
    "attention": Case("formed last", of.attention, ATTENTION, rows(4, 8), [], 2**18, 1e-5),
    "large": by_size(of.tanh_layer, layer(6, 8), rows(6), ["w", "out"]),
    "large sequence": by_size(of.sequence, layer(30, 20), rows(2, 30), ["w", "out"]),
    "a sequence too long": by_size(of.sequence, layer(6, 8), rows(30, 6), ["out"]),
    "large heads": by_size(of.heads, HEADS, rows(2, 30), ["into", "out"]),
    "large part": by_size(of.part, layer(6, 8, 24), rows(6), ["out"]),
}
