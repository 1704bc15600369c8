"""Optimisers whose steps are linear in a tensor: SGD with or without momentum, Nesterov's too, and weight decay.

With gradients G_1..G_s at the steps of a run from W_0, whatever they keep of the tensor is a W_0 + sum_j c_j G_j, the
scalars being its entries' own. So they can be run on (a, c_1, .., c_S) in the tensor's place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from fedpriv.core.interpreted import NotInterpretedError
from fedpriv.core.types import Params

_SAME = {"neg", "copy", "copy_p", "convert_element_type"}


def on_coefficients(
    optimizer: optax.GradientTransformation, params: Params, tensor: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(init, step) of `optimizer` with coefficients f32[1 + S, 1, ..] in the place of one tensor.

    Both take and give lists of leaves: init(params) -> state, step(gradient, state, params) -> (params, state).

    Args:
      params: the parameters, or their shapes.
      tensor: its number among their leaves.

    Raises:
      NotInterpretedError: it is not linear in the tensor, or mixes its entries with each other or with other tensors.
    """
    leaves, tree = jax.tree.flatten(jax.eval_shape(lambda p: p, params))
    state, structure = jax.tree.flatten(jax.eval_shape(optimizer.init, params))

    def init(leaves: list[Any]) -> list[Any]:
        return jax.tree.leaves(optimizer.init(jax.tree.unflatten(tree, leaves)))

    def step(gradient: list[Any], state: list[Any], leaves: list[Any]) -> tuple:
        params = jax.tree.unflatten(tree, leaves)
        arguments = jax.tree.unflatten(tree, gradient), jax.tree.unflatten(structure, state), params
        updates, after = optimizer.update(*arguments)
        return jax.tree.leaves(optax.apply_updates(params, updates)), jax.tree.leaves(after)

    owned = _owned(jax.make_jaxpr(step)(leaves, state, leaves).jaxpr, len(leaves), tensor)
    begun = jax.make_jaxpr(init)(leaves).jaxpr
    zeros = {e.outvars[0] for e in begun.eqns if _is_zeros(e)}
    if not all(_among(begun.outvars[i], zeros) for i in owned):
        raise NotInterpretedError("the optimiser's state does not begin with zeros")
    # One entry stands for all.
    of_params = [0 if i == tensor else None for i in range(len(leaves))]
    of_state = [0 if i in owned else None for i in range(len(state))]
    axes = of_params, of_state
    return jax.vmap(init, (of_params,), of_state), jax.vmap(step, (of_params, *axes[::-1]), axes)


def _owned(jaxpr: Jaxpr, count: int, tensor: int) -> set[int]:
    """Numbers of the leaves of the state that are linear in the tensor's history."""
    states = len(jaxpr.outvars) - count
    own, owned = {jaxpr.invars[tensor], jaxpr.invars[count + states + tensor]}, set[int]()
    while True:
        inside = own | {jaxpr.invars[count + i] for i in owned}
        linear, reached = set(inside), set(inside)
        _follow(jaxpr, linear, reached)
        outputs = [_among(v, reached) for v in jaxpr.outvars]
        now = {i for i in range(states) if outputs[count + i]}
        if now == owned:
            break
        owned = now
    ends = [v for v, out in zip(jaxpr.outvars, outputs, strict=True) if out]
    moved = [i for i in range(count) if outputs[i]]
    if moved != [tensor] or not linear.issuperset(ends):
        raise NotInterpretedError("the optimiser is not linear, or mixes tensors")
    return owned


def _follow(jaxpr: Jaxpr, linear: set[Any], reached: set[Any]) -> None:
    """Adds the variables that are linear in those of `linear`, and all that depend on them."""
    uniform = {e.outvars[0] for e in jaxpr.eqns if _is_uniform(e)}
    for eqn in jaxpr.eqns:
        inputs = [v for v in eqn.invars if not isinstance(v, Literal)]
        if reached.isdisjoint(inputs):
            continue
        if eqn.primitive.name in ("jit", "pjit"):
            _follow_call(eqn, linear, reached)
            continue
        if _is_linear(eqn, linear, uniform - reached, reached):
            linear.update(eqn.outvars)
        reached.update(eqn.outvars)


def _follow_call(eqn: JaxprEqn, linear: set[Any], reached: set[Any]) -> None:
    """As `_follow`, through a call whose results may be of several tensors, one each."""
    inner = eqn.params["jaxpr"].jaxpr
    pairs = list(zip(inner.invars, eqn.invars, strict=True))
    within = [{i for i, v in pairs if _among(v, known)} for known in (linear, reached)]
    _follow(inner, *within)
    for known, found in zip((linear, reached), within, strict=True):
        results = zip(eqn.outvars, inner.outvars, strict=True)
        known.update(o for o, v in results if _among(v, found))


def _among(atom: Any, known: set[Any]) -> bool:
    return not isinstance(atom, Literal) and atom in known


def _is_linear(eqn: Any, linear: set[Any], uniform: set[Any], reached: set[Any]) -> bool:
    name, inputs = eqn.primitive.name, eqn.invars
    own = [_among(v, linear) for v in inputs]
    if name in _SAME or (name == "integer_pow" and eqn.params["y"] == 1):
        return all(own) and eqn.outvars[0].aval.dtype == jnp.float32
    if name in ("add", "add_any", "sub"):
        return all(own)
    if name not in ("mul", "div") or sum(own) != 1 or (name == "div" and not own[0]):
        return False
    other = inputs[own.index(False)]
    return not _among(other, reached) and (other.aval.ndim == 0 or _among(other, uniform))


def _is_uniform(eqn: Any) -> bool:
    return eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0].aval.ndim == 0


def _is_zeros(eqn: JaxprEqn) -> bool:
    first = eqn.invars[0] if _is_uniform(eqn) else None
    return isinstance(first, Literal) and first.val == 0
