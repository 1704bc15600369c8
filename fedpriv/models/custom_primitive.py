"""A JAX primitive made of a function of arrays; its derivatives and batching are the maker's to register."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

OWN: set[Primitive] = set()
"""Those that were made here: functions of their inputs alone."""


def primitive_of(fn: Callable[..., jax.Array]) -> Primitive:
    """A primitive that computes `fn(*arrays, **static)`."""
    primitive = Primitive(fn.__name__)

    def abstract(*avals: jax.core.ShapedArray, **params: object) -> jax.core.ShapedArray:
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        out = jax.eval_shape(partial(fn, **params), *shapes)
        return jax.core.ShapedArray(out.shape, out.dtype)

    primitive.def_impl(lambda *args, **params: jax.jit(partial(fn, **params))(*args))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(fn, multiple_results=False))
    OWN.add(primitive)
    return primitive
