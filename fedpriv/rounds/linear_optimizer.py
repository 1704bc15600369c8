"""Optimisers whose steps are linear in a tensor: its state is then kept as coefficients of whatever it is a sum of.

SGD with or without momentum, Nesterov's too, and weight decay: with gradients G_1..G_s at the steps of a run from W_0,
every quantity of the optimiser that belongs to the tensor is a W_0 + sum_j c_j G_j, the scalars being its entries' own.
They are found by running the optimiser's own program on vectors (a, c_1, .., c_S) in the tensor's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import JaxprEqn

from fedpriv.core.jaxprs import NotInterpretedError, evaluate, inlined, reached
from fedpriv.core.types import Params, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coefficients:
    """A tensor as a W_0 + sum_j c_j G_j.

    Attributes:
      values: f32[1 + S], (a, c_1, .., c_S).
      owner: the tensor's number among the parameters.
    """

    values: jax.Array
    owner: int = field(metadata={"static": True})


class _Uniform(NamedTuple):
    """A tensor of equal entries."""

    value: Any
    eqn: JaxprEqn


class LinearOptimizer:
    """An optimiser run on coefficients in place of some tensors.

    Args:
      optimizer: of optax.
      params: the parameters, or their shapes.
      tensors: numbers of the leaves of `params` that are to be kept as coefficients.
      most: S, the number of steps at most.

    Raises:
      NotInterpretedError: it is not linear in one of them.
    """

    def __init__(
        self,
        optimizer: optax.GradientTransformation,
        params: Params,
        tensors: Sequence[int],
        most: int,
    ):
        self._tensors, self._most = tuple(tensors), most
        shapes = jax.eval_shape(lambda p: p, params)
        self._init = jax.make_jaxpr(optimizer.init)(shapes)
        state = jax.eval_shape(optimizer.init, shapes)

        def step(gradient: PyTree, state: PyTree, params: Params) -> tuple:
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        self._step = jax.make_jaxpr(step)(shapes, state, shapes)
        self._count, self._states = len(jax.tree.leaves(shapes)), len(jax.tree.leaves(state))
        self._owners = self._owned()
        jax.eval_shape(self._trial, *jax.eval_shape(lambda p: jax.tree.leaves(p), shapes))

    def start(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The parameters' leaves with coefficients (1, 0, .., 0) in place of the tensors, and the state's leaves."""
        unit = jnp.zeros(1 + self._most, jnp.float32).at[0].set(1.0)
        values = [Coefficients(unit, i) if i in self._tensors else x for i, x in enumerate(leaves)]
        state = evaluate(self._init, values, _rule)
        for i, owner in self._owners.items():
            if isinstance(state[i], _Uniform) and _is_zero(state[i].value):
                state[i] = Coefficients(jnp.zeros(1 + self._most, jnp.float32), owner)
        return values, [_formed(x) for x in state]

    def step(
        self, s: jax.Array, gradients: Sequence[Any], state: Sequence[Any], leaves: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Step s (i32[], from 0); the gradients of the tensors, G_{s+1}, are not looked at.

        Raises:
          NotInterpretedError: as the class.
        """
        now = jnp.zeros(1 + self._most, jnp.float32).at[1 + s].set(1.0)
        given = [Coefficients(now, i) if i in self._tensors else g for i, g in enumerate(gradients)]
        out = [_formed(x) for x in evaluate(self._step, [*given, *state, *leaves], _rule)]
        self._check(out)
        return out[: self._count], out[self._count :]

    def _owned(self) -> dict[int, int]:
        """Number of a leaf of the state -> the tensor whose history it holds."""
        jaxpr, owners = self._step.jaxpr, dict[int, int]()
        inputs = jaxpr.invars[self._count : self._count + self._states]
        outputs = jaxpr.outvars[self._count :]
        for tensor in self._tensors:
            own = [jaxpr.invars[tensor], jaxpr.invars[self._count + self._states + tensor]]
            found: set[int] = set()
            while True:
                depending = reached(jaxpr, [*own, *(inputs[i] for i in found)])
                more = {i for i, v in enumerate(outputs) if not _literal(v) and v in depending}
                if more <= found:
                    break
                found |= more
            owners |= dict.fromkeys(found, tensor)
        return owners

    def _trial(self, *leaves: Any) -> None:
        values, state = self.start(leaves)
        self._check([*values, *state])
        self.step(jnp.int32(0), leaves, state, values)

    def _check(self, values: Sequence[Any]) -> None:
        """Coefficients are where they belong, and nowhere else."""
        for i, value in enumerate(values):
            here = i if i < self._count else self._owners.get(i - self._count)
            expected = here if here in self._tensors else None
            found = value.owner if isinstance(value, Coefficients) else None
            if found != expected:
                raise NotInterpretedError("the optimiser mixes tensors")


def _literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def _is_zero(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and bool(value == 0)


def _formed(value: Any) -> Any:
    if isinstance(value, _Uniform):
        return value.eqn.primitive.bind(value.value, **value.eqn.params)
    return value


def _rule(eqn: JaxprEqn, values: list[Any]) -> Any:
    """Linear operations on coefficients."""
    name = eqn.primitive.name
    if name == "broadcast_in_dim" and len(values) == 1 and jnp.ndim(values[0]) == 0:
        return [_Uniform(values[0], eqn)]
    if not any(isinstance(v, Coefficients) for v in values):
        if any(isinstance(v, _Uniform) for v in values):
            values[:] = [_formed(v) for v in values]
        return NotImplemented
    if name in ("jit", "pjit"):
        return inlined(eqn, values, _rule)
    return [_linear(eqn, values)]


def _linear(eqn: JaxprEqn, values: list[Any]) -> Coefficients:
    name = eqn.primitive.name
    first, *others = values
    if name in ("copy", "copy_p") or (name == "integer_pow" and eqn.params["y"] == 1):
        return first
    if name == "convert_element_type" and eqn.params["new_dtype"] == jnp.float32:
        return first
    if name == "neg":
        return replace(first, values=-first.values)
    if name in ("add", "add_any", "sub") and isinstance(first, Coefficients):
        (second,) = others
        if isinstance(second, Coefficients) and second.owner == first.owner:
            out = eqn.primitive.bind(first.values, second.values, **eqn.params)
            return replace(first, values=out)
    if name == "mul" or (name == "div" and isinstance(first, Coefficients)):
        (second,) = others
        tensor, factor = (first, second) if isinstance(first, Coefficients) else (second, first)
        factor = factor.value if isinstance(factor, _Uniform) else factor
        if not isinstance(factor, Coefficients) and jnp.ndim(factor) == 0:
            combine = jnp.multiply if name == "mul" else jnp.divide
            return replace(tensor, values=combine(tensor.values, factor))
    raise NotInterpretedError(name)
