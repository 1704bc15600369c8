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
"""Loss of ONE example; batching is `vmap`. A random one is (params, example, key), see `core.random_losses`."""
