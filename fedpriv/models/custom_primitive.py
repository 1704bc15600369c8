"""A JAX primitive made of a function of arrays; its derivatives and batching are the maker's to register."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import mlir

from fedpriv.proof.flow import Operation, of_all_inputs
from fedpriv.proof.labels import Labels


class FunctionOfArrays(Operation):
    """One whose outputs depend on its inputs alone."""

    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """Of all its inputs."""
        return of_all_inputs(eqn, labels)


def primitive_of(fn: Callable[..., jax.Array]) -> Primitive:
    """A primitive that computes `fn(*arrays, **static)`, a function of its inputs alone."""
    primitive = FunctionOfArrays(fn.__name__)

    def abstract(*avals: jax.core.ShapedArray, **params: object) -> jax.core.ShapedArray:
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        out = jax.eval_shape(partial(fn, **params), *shapes)
        return jax.core.ShapedArray(out.shape, out.dtype)

    primitive.def_impl(lambda *args, **params: jax.jit(partial(fn, **params))(*args))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(fn, multiple_results=False))
    return primitive
