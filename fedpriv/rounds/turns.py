"""Parts of a model that are trained in turns, while the others wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.trees import dimension, flatten, unflatten, widened
from fedpriv.core.types import Params
from fedpriv.models.named_leaves import matching, named_leaves


class Part(NamedTuple):
    """Some leaves of a model.

    Attributes:
      pattern: regular expression that is found in their paths.
    """

    pattern: str

    def of(self, params: Params) -> dict[str, Any]:
        """Path -> leaf; raises ValueError if there are none."""
        leaves = named_leaves(params)
        return {path: leaves[path] for path in matching("turns", self.pattern, leaves)}

    def alone(self, params: Params, its: Mapping[str, Any], on: jax.Array) -> Params:
        """A tree like `params`: these leaves where `on` (bool[]) holds, zeros elsewhere."""
        at = {path: i for i, path in enumerate(named_leaves(params))}
        leaves, tree = jax.tree.flatten(jax.tree.map(jnp.zeros_like, params))
        for path, leaf in its.items():
            leaves[at[path]] = jnp.where(on, leaf, jnp.zeros_like(leaf))
        return jax.tree.unflatten(tree, leaves)


class TurnsState(NamedTuple):
    """What `in_turns` remembers: i32[], `steps` so far, and a state for each part."""

    steps: jax.Array
    states: tuple[optax.OptState, ...]


def in_turns(
    optimizer: optax.GradientTransformation, parts: Sequence[Part], turn: jax.Array | None = None
) -> optax.GradientTransformation:
    """`optimizer` for one part at a time, each with a state of its own; nothing else moves, and a waiting state stays.

    Args:
      turn: i32[], the part of all steps, modulo their number; by default the steps go through the parts.
    """

    def init(params: Params) -> TurnsState:
        return TurnsState(jnp.int32(0), tuple(optimizer.init(part.of(params)) for part in parts))

    def update(
        gradient: Params, state: TurnsState, params: Params | None = None
    ) -> tuple[Params, TurnsState]:
        now = (state.steps if turn is None else turn) % len(parts)
        step, states = jax.tree.map(jnp.zeros_like, gradient), []
        for i, (part, before) in enumerate(zip(parts, state.states, strict=True)):
            on = now == i
            of_model = None if params is None else part.of(params)
            its, after = optimizer.update(part.of(gradient), before, of_model)
            step = jax.tree.map(jnp.add, step, part.alone(gradient, its, on))
            kept = jax.tree.map(lambda new, old, on=on: jnp.where(on, new, old), after, before)
            states.append(kept)
        return step, TurnsState(state.steps + 1, tuple(states))

    return optax.GradientTransformation(init, update)


def packed(tree: Params, parts: Sequence[Part], turn: jax.Array) -> jax.Array:
    """f32[n]: the leaves of the part whose turn it is, then zeros; n are the numbers of the largest part."""
    flat = [flatten(part.of(tree)) for part in parts]
    most = max(each.size for each in flat)
    return jnp.stack([jnp.pad(each, (0, most - each.size)) for each in flat])[turn % len(parts)]


def unpacked(vector: jax.Array, like: Params, parts: Sequence[Part], turn: jax.Array) -> Params:
    """The inverse of `packed`: a tree like `like` with 32 bits or more, zeros in all other leaves."""
    tree = jax.tree.map(jnp.zeros_like, widened(like))
    for i, part in enumerate(parts):
        its = part.of(tree)
        its = unflatten(vector[: dimension(its)], its)
        tree = jax.tree.map(jnp.add, tree, part.alone(tree, its, turn % len(parts) == i))
    return tree
