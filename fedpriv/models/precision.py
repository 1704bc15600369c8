"""Models that compute in bfloat16, while their parameters, and whatever is summed of them, stay in float32.

P. Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740: master weights. bfloat16 has float32's
range, so that no loss needs scaling (D. Kalamkar et al., arXiv:1905.12322).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.complaints import require
from fedpriv.core.jaxprs import equations
from fedpriv.core.leaves import as_float
from fedpriv.core.trees import widened
from fedpriv.core.types import Example, Key, Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.models.networks import Model, scales_bytes
from fedpriv.models.score import Score


@names_user_code
def in_bfloat16(model: Model) -> Model:
    """`model` that computes its loss, score and outputs in bfloat16: half the memory of activations and of a base.

    Parameters stay float32 (master weights): they are rounded where they are used, together with the example's
    floats; integers stay as they are. Losses, gradients, metrics and outputs are float32, and so are the norms, sums,
    noise and steps that come of gradients: certificates are those of `model`. A float whose digits count, such as a
    regression's target, is rounded to 8 bits, too; so are sums over a mask of floats (give booleans).

    `adapters` and `frozen` of the returned model hold the base in bfloat16, and train in float32.

    Raises:
      ValueError: not a model, one that is in bfloat16 already, or a fine-tuned one; when called, a loss most of whose
        products are in float32 all the same.
    """
    fits = isinstance(model, Model) and callable(model.loss)
    require(fits, "model", model, "give what fp.models.classifier makes")
    known = model.precision == "float32"
    require(known, "model", model.precision, "it computes in bfloat16 already; give it as it is")
    if model.merged is not None:
        raise ValueError(
            "model: a fine-tuned one holds its base in float32; give the network, and fine-tune what this returns: "
            "fp.models.adapters(fp.models.in_bfloat16(model), base)"
        )
    given, scored, used = _rounding(model), Score.of(model.score), model.apply
    compared = _once(_check_products)

    @functools.wraps(model.loss)
    def loss(params: Params, example: Example, *key: Key | None) -> Any:
        rounded = _rounded(params), given(example)
        compared(model.loss, *rounded, *key)
        return _lengthened(model.loss(*rounded, *key))

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        return _lengthened(scored.function(_rounded(params), given(example)))

    def apply(params: Params, x: PyTree, *key: Key, **beside: Any) -> PyTree:
        assert used is not None
        return _lengthened(used(_rounded(params), given(x), *key, **beside))

    return model._replace(
        loss=loss,
        score=dataclasses.replace(scored, function=score),
        apply=functools.wraps(used)(apply) if used else None,
        precision="bfloat16",
    )


def _rounded(tree: PyTree) -> PyTree:
    """With floats of 32 bits or more in bfloat16."""

    def one(leaf: Any) -> Any:
        kind = jnp.result_type(leaf)
        long = jnp.issubdtype(kind, jnp.floating) and kind.itemsize > 2
        return jnp.asarray(leaf, jnp.bfloat16) if long else leaf

    return jax.tree.map(one, tree)


def _lengthened(tree: PyTree) -> PyTree:
    """With floats of fewer bits in float32; what is no array stays as it is."""
    return jax.tree.map(lambda x: widened(x) if isinstance(x, jax.Array) else x, tree)


def _rounding(model: Model) -> Callable[[PyTree], PyTree]:
    """What rounds the inputs of a model: of a network that divides bytes by 255, in float32, also these."""
    bytes_of = model.built.input.shape if model.built and scales_bytes(model.built.module) else None

    def one(leaf: Any) -> Any:
        if (jnp.shape(leaf), jnp.result_type(leaf)) == (bytes_of, jnp.uint8):
            return as_float(jnp.asarray(leaf))
        return leaf

    return lambda inputs: _rounded(jax.tree.map(one, inputs))


def _once(check: Callable[..., None]) -> Callable[..., None]:
    """`check`, until it has passed."""
    passed: list[bool] = []

    def checking(*args: Any) -> None:
        if not passed:
            check(*args)
            passed.append(True)

    return checking


def _check_products(loss: Callable[..., Any], params: Params, example: Example, *key: Any) -> None:
    """Raises ValueError: most products of a loss of bfloat16 are in float32, to which one number of 32 bits leads."""
    program = jax.make_jaxpr(loss)(params, example, *key).jaxpr
    products = (lax.dot_general_p, lax.conv_general_dilated_p)
    factors: list[Any] = [
        e.invars[0].aval for e, _ in equations(program) if e.primitive in products
    ]
    of = Counter(str(factor.dtype) for factor in factors)
    if of["float32"] > of["bfloat16"]:
        raise ValueError(
            f"model: {of['float32']} of its {of.total()} products are in float32, as something in it, such as bytes / "
            "255 or a table of numbers, is; give that the parameters' type, table.astype(kernel.dtype)"
        )
