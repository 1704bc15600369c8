"""Networks of flax.nnx as models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fedpriv.core.complaints import require
from fedpriv.core.types import Key, Params, PyTree
from fedpriv.core.user_functions import asked
from fedpriv.models.named_leaves import check_shapes
from fedpriv.models.networks import Model, from_apply, state_beside


def from_nnx(make: Callable[[Any], Any], inputs: str = "image") -> Model:
    """A `Model`, as from `from_apply`, of the module that `make(rngs: nnx.Rngs)` returns; parameters are nested dicts.

    In training, dropout gets its own key for each record; otherwise it is off (`module.eval()`).

    Args:
      make: such as `lambda rngs: Net(784, 10, rngs=rngs)`. The module gives the logits f32[classes] of ONE input.
      inputs: name of the input in an example.

    Raises:
      ValueError: no such function; the module has batch normalisation, or other state beside its parameters.
    """
    from flax import nnx

    remedy = "give one such as lambda rngs: Net(rngs=rngs)"
    require(callable(make) and not isinstance(make, nnx.Module), "make", make, remedy)

    def parts(key: Key) -> Any:
        made = asked("make", make, "(rngs)", nnx.Rngs(key))
        require(isinstance(made, nnx.Module), "make", made, remedy)
        return nnx.split(made, nnx.Param, ...)

    graph, _, rest = parts(jax.random.key(0))
    kinds = jax.tree.leaves(rest, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    variables = [kind for kind in kinds if isinstance(kind, nnx.Variable)]
    if beside := {type(v).__name__ for v in variables if not isinstance(v, nnx.RngState)}:
        raise state_beside(beside)
    streams = {kind.tag for kind in kinds if isinstance(kind, nnx.RngKey)}

    def module(params: Params) -> Any:
        check_shapes("params", params, shapes)
        state = nnx.eval_shape(lambda: parts(jax.random.key(0))[1])
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state, rest, copy=True)  # its own, in this trace

    def apply(params: Params, x: PyTree) -> PyTree:
        model = module(params)
        model.eval()
        return model(x)

    def random_apply(params: Params, x: PyTree, key: Key | None = None) -> PyTree:
        if key is None:
            return apply(params, x)
        model = module(params)
        model.train()
        of_streams = zip(sorted(streams), jax.random.split(key, len(streams)), strict=True)
        nnx.reseed(model, **dict(of_streams))
        return model(x)

    init = jax.jit(lambda key: nnx.to_pure_dict(parts(key)[1]))
    shapes = jax.eval_shape(init, jax.random.key(0))
    return from_apply(init, random_apply if streams else apply, inputs)
