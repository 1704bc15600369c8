"""The few types everything else is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax

Key: TypeAlias = jax.Array
PyTree: TypeAlias = Any
Params: TypeAlias = PyTree
Example: TypeAlias = PyTree
State: TypeAlias = Any
Metrics: TypeAlias = dict[str, Any]
LossFn: TypeAlias = Callable[[Params, Example], jax.Array]
"""Loss of ONE example; batching is `vmap`."""


def check_loss(loss: LossFn) -> None:
    """Raises ValueError: something else in the place of the function, such as the whole model."""
    if not callable(loss):
        kind = type(loss).__name__
        remedy = (
            f"a {kind}; give its `loss`"
            if hasattr(loss, "loss")
            else f"{loss!r:.40} is no function"
        )
        raise ValueError(f"loss: {remedy}, (params, example) -> loss of one example")
