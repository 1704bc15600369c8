"""A network with sums W + A B in the place of kernels, which are not formed where they are only multiplied.

A product x (W + A B) is x W + (x A) B. Clients side by side, each with an A and a B of its own, then share W, and the
gradient of A and B takes none of W. The network's program is evaluated with the sums as values of their own: products,
scans over layers, and what computes layers again (`jax.checkpoint`) take them as they are; for any other operation the
sum is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedpriv.core.interpreted import inlined
from fedpriv.core.jaxprs import bind, evaluate, scan_operands
from fedpriv.core.types import Params
from fedpriv.models.dense import product


class LowRankSum(NamedTuple):
    """The array `whole` + a b, in whose place a network's program gets it; or one for each layer that is scanned.

    Attributes:
      whole: [*layers, *rows, *columns].
      a: [*layers, *rows, rank].
      b: [*layers, rank, *columns].
    """

    whole: jax.Array
    a: jax.Array
    b: jax.Array

    @property
    def layers(self) -> int:
        """0, or 1 where there is an axis of layers."""
        return self.a.ndim + self.b.ndim - self.whole.ndim - 2

    def formed(self) -> jax.Array:
        """The array itself."""
        if self.layers:
            return jax.vmap(LowRankSum.formed)(self)
        return self.whole + jnp.tensordot(self.a, self.b, 1).astype(self.whole.dtype)


def _is_sum(value: Any) -> bool:
    return isinstance(value, LowRankSum)


def with_sums(fn: Callable[..., Any], params: Params, *args: Any) -> Any:
    """`fn(params, *args)`, where some leaves of `params` are sums: the same up to rounding as with formed ones."""
    leaves, tree = jax.tree.flatten(params, is_leaf=_is_sum)
    if not any(map(_is_sum, leaves)):
        return fn(params, *args)
    like = [leaf.whole if _is_sum(leaf) else leaf for leaf in leaves]
    of_leaves = lambda leaves, args: fn(jax.tree.unflatten(tree, leaves), *args)  # noqa: E731
    program, shape = jax.make_jaxpr(of_leaves, return_shape=True)(like, args)
    found = evaluate(program, [*leaves, *jax.tree.leaves(args)], _rule)
    return jax.tree.unflatten(jax.tree.structure(shape), found)


def _rule(eqn: JaxprEqn, values: list[Any]) -> Any:
    """The outputs of an equation; a sum is no output but of a conversion."""
    if not any(map(_is_sum, values)):
        return NotImplemented
    name = eqn.primitive.name
    if eqn.primitive is lax.convert_element_type_p:
        return [jax.tree.map(lambda x: x.astype(eqn.params["new_dtype"]), values[0])]
    if eqn.primitive is product and _is_sum(values[1]):
        x, w = values
        return [product.bind(x, w.whole) + x @ w.a @ w.b]
    if eqn.primitive is lax.dot_general_p and (out := _product(eqn, *values)) is not None:
        return [out]
    if name in ("jit", "pjit"):
        return inlined(eqn, values, _rule)
    if name in ("checkpoint", "remat", "remat2"):
        return _computed_again(eqn, values)
    if name == "scan":
        return _scanned(eqn, values)
    return bind(eqn, [v.formed() if _is_sum(v) else v for v in values])


def _product(eqn: JaxprEqn, lhs: Any, rhs: Any) -> jax.Array | None:
    """A product of one sum over its rows, or over its columns; None where it is another one."""
    (of_lhs, of_rhs), batch = eqn.params["dimension_numbers"]
    if any(batch) or _is_sum(lhs) == _is_sum(rhs):
        return None
    x, of_x, w, of_w = (lhs, of_lhs, rhs, of_rhs) if _is_sum(rhs) else (rhs, of_rhs, lhs, of_lhs)
    rows = w.a.ndim - 1
    if w.layers or sorted(of_w) not in (list(range(rows)), list(range(rows, w.whole.ndim))):
        return None
    over_rows = 0 in of_w
    near, far = (w.a, w.b) if over_rows else (w.b, w.a)
    of_near = of_w if over_rows else [axis - rows + 1 for axis in of_w]

    def over(x: jax.Array, of_x: Any, y: jax.Array, of_y: Any) -> jax.Array:
        options = {k: eqn.params[k] for k in ("precision", "preferred_element_type")}
        return lax.dot_general(x, y, ((tuple(of_x), tuple(of_y)), ((), ())), **options)

    thin = over(x, of_x, near, of_near).astype(far.dtype)
    rank = [0] if over_rows else [far.ndim - 1]
    out = over(x, of_x, w.whole, of_w) + over(thin, [thin.ndim - 1], far, rank)
    free = w.whole.ndim - len(
        of_w
    )  # their axes come last, and first where the sum is the left factor
    return out if w is rhs else jnp.moveaxis(out, range(-free, 0), range(free))


def _computed_again(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    program = ClosedJaxpr(eqn.params["jaxpr"], ())
    again = jax.checkpoint(
        lambda values: evaluate(program, values, _rule),
        policy=eqn.params["policy"],
        prevent_cse=eqn.params["prevent_cse"],
    )
    return again(values)


def _scanned(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    """A scan over the layers of sums."""
    consts, carried, stacked = scan_operands(eqn, values)
    carried = [v.formed() if _is_sum(v) else v for v in carried]
    stacked = [v.formed() if _is_sum(v) and not v.layers else v for v in stacked]

    def step(carried: list[Any], layer: list[Any]) -> tuple[list[Any], list[Any]]:
        found = evaluate(eqn.params["jaxpr"], [*consts, *carried, *layer], _rule)
        return found[: len(carried)], found[len(carried) :]

    options = {k: eqn.params[k] for k in ("length", "reverse", "unroll")}
    after, outputs = lax.scan(step, carried, stacked, **options)
    return [*after, *outputs]
