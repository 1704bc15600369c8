"""Orders of a tensor's entries: what transposing and reshaping make of each record's, side by side."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax

Move: TypeAlias = tuple[str, tuple[int, ...]]
"""("transpose", axes) or ("reshape", shape) of one record's entries."""


def shape_of(variable: Any) -> tuple[int, ...]:
    """Of a variable of a traced program."""
    return variable.aval.shape


def moved(x: jax.Array, moves: tuple[Move, ...]) -> jax.Array:
    """x [B, ...], each record's entries in another order."""
    for kind, to in moves:
        axes = (0, *(axis + 1 for axis in to))
        x = x.transpose(axes) if kind == "transpose" else x.reshape(x.shape[0], *to)
    return x


def composed(*moves: Move) -> tuple[Move, ...]:
    """One after another, in as few as that takes."""
    made: list[Move] = []
    for kind, to in moves:
        if made and made[-1][0] == kind:
            before = made.pop()[1]
            to = tuple(before[axis] for axis in to) if kind == "transpose" else to
        if kind == "reshape" or to != tuple(range(len(to))):
            made.append((kind, to))
    return tuple(made)
