"""What a loss gives for one example: a real number whose gradient is not 0 whatever the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal
from jax.interpreters import partial_eval

from fedpriv.core.complaints import shown
from fedpriv.core.jaxprs import CUSTOM_VMAP, equations
from fedpriv.core.types import Params

Loss = Callable[[Params, Any], Any]


def check_loss(loss: Loss, params: Params, example: Any, *, apart: bool = False) -> None:
    """Traces the gradient of a loss of (params, example), and computes nothing.

    Args:
      params, example: arrays, or traced.
      apart: whether the loss of an example must not depend on others beside it.

    Raises:
      ValueError: the loss gives no real number, or one on which the parameters have no influence; a `custom_vmap` in it
        may mix examples that have to stay apart.
    """

    def number(params: Params, example: Any) -> Any:
        value = loss(params, example)
        if not is_number(value):
            raise ValueError(f"loss: gives {_given(value)}; {_remedy(value)}")
        return value

    gradient = jax.make_jaxpr(jax.grad(number))(params, example).jaxpr
    if _is_zero(gradient):
        raise ValueError(
            "loss: the parameters have no influence on its value, so the gradient is 0 for every example; compute it "
            "from them, without argmax, rounding or stop_gradient"
        )
    if apart and any(eqn.primitive.name == CUSTOM_VMAP for eqn, _ in equations(gradient)):
        raise ValueError(
            "loss: its jax.custom_batching.custom_vmap may mix the records of a batch; leave it out, or use jax.lax.map"
        )


def is_number(value: Any) -> bool:
    """Whether a loss is one real number of a type of floats."""
    if isinstance(value, float):
        return True
    array = isinstance(value, jax.Array | np.ndarray | np.generic)
    return array and value.shape == () and jnp.issubdtype(value.dtype, jnp.floating)


def _given(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)} for an example, not a number of type float"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)} for an example, not a number"
    return f"{shown(value)} for an example, not a number of type float"


def _remedy(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(value, tuple | list | dict):
        return "return the loss alone; what else you want to know of a model is for `score`"
    if isinstance(value, complex) or (dtype and jnp.issubdtype(dtype, jnp.complexfloating)):
        return "return a real one, as its abs()"
    if shape and dtype and jnp.issubdtype(dtype, jnp.floating):
        one = int(np.prod(shape)) == 1
        return "squeeze it, as .squeeze() does" if one else "return its mean or sum over all axes"
    if value is None:
        return "return the loss"
    return "return one that is computed with floats, or it has no gradient"


def _is_zero(gradient: Jaxpr) -> bool:
    """Whether a program gives zeros whatever it is given, as JAX writes gradients that it knows to be 0."""
    needed, used = partial_eval.dce_jaxpr(gradient, [True] * len(gradient.outvars))
    if any(used) or any(eqn.primitive.name != "broadcast_in_dim" for eqn in needed.eqns):
        return False
    zeros = {id(eqn.outvars[0]) for eqn in needed.eqns}
    return _zeros([eqn.invars[0] for eqn in needed.eqns]) and all(
        id(v) in zeros or _zeros([v]) for v in needed.outvars
    )


def _zeros(values: Sequence[Any]) -> bool:
    return all(isinstance(v, Literal) and not np.any(v.val) for v in values)
