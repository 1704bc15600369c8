"""Large arrays that a program closes over, such as a network's public base, as arguments of the compiled program.

As constants they would be part of what is compiled, of its entry in the cache, and once more in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedpriv.core.substituted import places, run
from fedpriv.devices import distributed
from fedpriv.devices.layout import current

LARGE = 10**6  # bytes


@dataclass(frozen=True)
class Compiled:
    """A compiled function.

    Attributes:
      executable: takes the arrays, if there are any, before the function's own arguments.
      arrays: that the function closed over, on the devices of the strategy.
    """

    executable: jax.stages.Compiled
    arrays: tuple[jax.Array, ...]

    def __call__(self, *args: Any) -> Any:
        """The function's results."""
        return self.executable(self.arrays, *args) if self.arrays else self.executable(*args)

    def memory_analysis(self) -> Any:
        """The compiler's, of one device."""
        return self.executable.memory_analysis()


class Traced(NamedTuple):
    """A function, traced for arguments of some shapes.

    Attributes:
      stage: of JAX, of what takes the arrays, if there are any, before the function's own arguments.
      arrays: as in `Compiled`.
    """

    stage: Any  # a jax.stages.Traced
    arrays: tuple[jax.Array, ...]

    @property
    def program(self) -> ClosedJaxpr:
        """The arrays, in the order of their leaves, are its first arguments."""
        return self.stage.jaxpr

    def compile(self) -> Compiled:
        """For the devices on which the arguments were, that it was traced for."""
        return Compiled(self.stage.lower().compile(), self.arrays)


def traced(fn: Callable[..., Any], args: Sequence[Any], donated: Sequence[int] = ()) -> Traced:
    """`fn`, traced for `args` under the strategy in force; arrays of a megabyte or more become arguments.

    NumPy's are copied: what the user writes into them afterwards changes nothing.

    Args:
      donated: positions of arguments that a call gives up.
    """
    whole = jax.jit(fn, donate_argnums=donated).trace(*args)
    program, tree = whole.jaxpr, jax.tree.structure(whole.out_info)
    large = {id(place): value for place, value in places(program) if is_large(value)}
    if not large:
        return Traced(whole, ())
    order = {id(value): i for i, value in enumerate({id(v): v for v in large.values()}.values())}
    held = {order[id(value)]: value for value in large.values()}
    arrays = tuple(placed(held[i]) for i in range(len(held)))

    def with_arrays(arrays: tuple[jax.Array, ...], *args: Any) -> Any:
        values = {place: arrays[order[id(value)]] for place, value in large.items()}
        return jax.tree.unflatten(tree, run(program, jax.tree.leaves(args), values))

    after = [1 + position for position in donated]
    return Traced(jax.jit(with_arrays, donate_argnums=after).trace(arrays, *args), arrays)


def is_large(value: Any) -> bool:
    """Whether a program's constant is an array that becomes an argument; typed keys do not."""
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    typed = jnp.issubdtype(value.dtype, jax.dtypes.extended)
    return not typed and value.size * value.dtype.itemsize >= LARGE


def placed(array: Any) -> jax.Array:
    """On all devices of the strategy in force; JAX's own is not copied where it is there already."""
    mine = np.array(array) if isinstance(array, np.ndarray) else array
    found: jax.Array = distributed.replicate(mine, current().mesh)
    return found


class Jitted:
    """`fn` as by `jax.jit`, for arguments of each shape compiled when they first come, under the strategy in force."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn
        self._compiled: dict[Any, Compiled] = {}

    def __call__(self, *args: Any) -> Any:
        """The function's results."""
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args))
        if is_traced or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return self._fn(*args)
        shapes = of_shapes(args)
        if shapes not in self._compiled:
            self._compiled[shapes] = traced(self._fn, args).compile()
        return self._compiled[shapes](*args)


def of_shapes(args: Any) -> Any:
    """What is equal for arguments that the same compiled function takes."""
    leaves, tree = jax.tree.flatten(args)
    return tree, tuple(map(jax.typeof, leaves))
