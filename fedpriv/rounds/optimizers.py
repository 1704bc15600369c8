"""An optimiser of optax, as clients and the server train with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from fedpriv.core.arguments import require


def check_optimizer(optimizer: optax.GradientTransformation) -> None:
    """Raises ValueError: no optimiser of optax, where it is not a function of the round that is wanted."""
    fits = isinstance(optimizer, optax.GradientTransformation)
    require(fits, "optimizer", optimizer, "give an optimiser, such as optax.sgd(0.1)")


def promoting(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser, whose arithmetic is its own business, also where JAX_NUMPY_DTYPE_PROMOTION is strict."""
    if jax.config.jax_numpy_dtype_promotion != "strict":  # type: ignore[attr-defined]
        return optimizer

    def freely(fn: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            with jax.numpy_dtype_promotion("standard"):
                return fn(*args, **kwargs)

        return called

    return optimizer._replace(init=freely(optimizer.init), update=freely(optimizer.update))
