"""Fine-tuning: of a network with a public base, low-rank adapters or some leaves are trained.

E. J. Hu, Y. Shen, P. Wallis, Z. Allen-Zhu, Y. Li, S. Wang, L. Wang, W. Chen, "LoRA: Low-Rank Adaptation of Large
Language Models", ICLR 2022, arXiv:2106.09685.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fedpriv.core.arguments import Count, CountOrZero, Positive, checked
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.complaints import require, shown
from fedpriv.core.random_losses import takes_key
from fedpriv.core.trees import widened
from fedpriv.core.types import Example, Key, Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.models.adapter_shapes import adapters_of
from fedpriv.models.dense import LARGE_MATRIX
from fedpriv.models.low_rank_products import with_sums
from fedpriv.models.named_leaves import check_shapes, matching, named_leaves
from fedpriv.models.networks import Model
from fedpriv.models.scanned import scanned_leaves
from fedpriv.models.score import Score

PUBLIC_BASE = "public base"
"""The name of a base's arrays in a traced program, by which a certificate tells them from others."""


class _Base(NamedTuple):
    """Parameters that are not trained.

    Attributes:
      leaves: by their paths, in the order of the tree.
      tree: their structure.
    """

    leaves: dict[str, jax.Array]
    tree: Any

    def held_for(self, model: Model, trained: Collection[str] = ()) -> _Base:
        """In bfloat16 where a network computes in it, for half the memory, but for what is `trained`, in float32."""
        if model.precision == "float32" or model.merged is not None:
            return self  # of adapters, which are small
        held = {
            path: _cast(leaf, jnp.float32 if path in trained else jnp.bfloat16)
            for path, leaf in self.leaves.items()
        }
        return self._replace(leaves=held)

    def leaf(self, path: str) -> jax.Array:
        return checkpoint_name(self.leaves[path], PUBLIC_BASE)

    def with_leaves(self, trained: Mapping[str, Any]) -> Params:
        """The whole network's parameters, with these leaves in the place of the base's."""
        leaves = [trained[path] if path in trained else self.leaf(path) for path in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)


@names_user_code
def adapters(
    model: Model,
    base: Params,
    rank: Count | Mapping[str, CountOrZero] = 4,
    where: str = "",
    *,
    alpha: Positive | None = None,
    stacked: str | None = None,
) -> Model:
    """`model` at `base` with low-rank adapters (LoRA); only the adapters are trained, sent and made private.

    A leaf W with two or more axes, unless it is a bias, is viewed as a matrix [n, m]: its axes are split in two where
    n + m is smallest. A dense kernel stays [in, out]; a large convolution kernel becomes [height * width * in, out], an
    attention kernel [features, heads * size]. It is replaced by

        W + (alpha / rank) A B,   A ~ N(0, 1 / n) of [n, rank],   B = 0 of [rank, m] at the start,

    which are the paper's A and B, transposed, where a kernel's outputs come last. The parameters are
    {path of W: {"A": ..., "B": ...}} in W's own type; other leaves stay as they are in `base`.

    Kernels of 2^18 numbers or more are not formed in training where the network multiplies by them: x W + (x A) B
    takes neither a W for each of the clients side by side, nor a gradient of it. The network sees smaller ones as a
    whole, so that for these clients' steps take the time and memory of training it all.

    Args:
      base: parameters of `model`, such as those of a kept model. They must be public, that is, independent of what the
        clients hold. Nothing can check that here; certificates list it as an assumption.
      rank: rank of A B, at most min(n, m). Or {regular expression: rank}, such as {"head": 8, "query|value": 2}: the
        first that is found in a leaf's path decides; leaves with rank 0 or none stay as they are.
      where: regular expression, searched for in each leaf's path, such as params.Dense_0.kernel; by default all match.
      alpha: by default the rank of each leaf.
      stacked: regular expression for leaves [layers, ...] of layers that are scanned (`nn.scan`). Each layer has an
        adapter of its own: A is [layers, n, rank] and B [layers, rank, m]. By default, of a model that is made of a
        module of flax, the leaves over which its program scans, as those of `Transformer`; of others none.

    Returns:
      A model whose `merged` gives the whole network's parameters. It can itself be fine-tuned: `frozen` with
      trainable=r"B$" keeps A as drawn (FFA-LoRA; Y. Sun et al., ICLR 2024, arXiv:2403.12313).

    Raises:
      ValueError: not a model; a base with other shapes; a pattern that matches no such leaf; a rank
        below 1, or above the smaller side of a leaf; no leaf with a rank above 0.
    """
    its = _base(model, base).held_for(model)
    alpha = checked("alpha", alpha, Positive | None)
    if stacked is None:
        layers = scanned_leaves(model, jax.eval_shape(model.init, jax.random.key(0)))
    else:
        layers = matching("stacked", stacked, [p for p, leaf in its.leaves.items() if leaf.ndim])
    added = adapters_of(its.leaves, rank, where, layers, alpha)

    def init(key: Key) -> Params:
        keys = jax.random.split(key, len(added))
        drawn = zip(keys, added.items(), strict=True)
        return {path: its_own.drawn(key, dtype(path)) for key, (path, its_own) in drawn}

    def dtype(path: str) -> Any:
        return its.leaves[path].dtype if model.precision == "float32" else jnp.float32

    def adapted(path: str, adapter: Params) -> jax.Array:
        leaf = its.leaf(path)
        change = added[path].factor * (adapter["A"] @ adapter["B"])
        kind = jnp.promote_types(leaf.dtype, change.dtype)
        return leaf.astype(kind) + change.reshape(leaf.shape).astype(kind)

    def full_params(params: Params) -> Params:
        return its.with_leaves({path: adapted(path, params[path]) for path in added})

    def in_sums(params: Params) -> Params:
        def of(path: str) -> Any:
            if its.leaves[path].size < LARGE_MATRIX:
                return adapted(path, params[path])
            return added[path].sum(its.leaf(path), params[path])

        return its.with_leaves({path: of(path) for path in added})

    made = _fine_tuned(model, init, full_params, in_sums)
    return made._replace(adapted=tuple(added.items()))


@names_user_code
def frozen(model: Model, base: Params, trainable: str) -> Model:
    """`model` at `base`; only the leaves that match `trainable` are trained, sent and made private.

    The parameters are {path: leaf}. They begin at their values in `base`, whatever the key.

    Args:
      base: as for `adapters`.
      trainable: regular expression, searched for in each leaf's path, such as params.Dense_0.kernel.

    Returns:
      A model whose `merged` gives the whole network's parameters.

    Raises:
      ValueError: not a model; a base with other shapes; a pattern that matches no leaf, or all.
    """
    its = _base(model, base)
    chosen = matching("trainable", trainable, its.leaves)
    if len(chosen) == len(its.leaves):
        raise ValueError(
            f"trainable: {shown(trainable)} matches every leaf; leave some out, or train the model itself from its base"
        )
    its = its.held_for(model, chosen)
    return _fine_tuned(
        model, lambda key: {path: its.leaves[path] for path in chosen}, its.with_leaves
    )


def _base(model: Model, base: Params) -> _Base:
    """Raises ValueError: it is not one of the model's parameters, in values."""
    fits = isinstance(model, Model) and callable(model.init)
    require(fits, "model", model, "give what fp.models.classifier makes")
    check_leaves("base", base)
    wanted = jax.eval_shape(model.init, jax.random.key(0))
    check_shapes("base", base, wanted)
    shapes_alone = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(base))
    require(not shapes_alone, "base", base, "give arrays (zeros suffice if you only certify)")
    given = named_leaves(base)  # perhaps in dicts, where the model has lists or objects
    leaves = {path: jnp.asarray(given[path]) for path in named_leaves(wanted)}
    return _Base(leaves, jax.tree.structure(wanted))


def _cast(leaf: jax.Array, dtype: Any) -> jax.Array:
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _fine_tuned(
    model: Model,
    init: Callable[[Key], Params],
    full_params: Callable[[Params], Params],
    in_sums: Callable[[Params], Params] | None = None,
) -> Model:
    """`model` with other parameters, of which `full_params` makes its own.

    Args:
      in_sums: makes them for the loss, some as a `LowRankSum`.
    """
    scored, used, full_params = Score.of(model.score), model.apply, _of_its_own(init, full_params)
    of_loss = full_params if in_sums is None else _of_its_own(init, in_sums)

    def loss(params: Params, example: Example) -> jax.Array:
        return with_sums(model.loss, of_loss(params), example)

    def random_loss(params: Params, example: Example, key: Key | None = None) -> jax.Array:
        return with_sums(model.loss, of_loss(params), example, key)

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        return scored.function(full_params(params), example)

    def apply(params: Params, x: PyTree) -> PyTree:
        assert used is not None
        return used(full_params(params), x)

    def merged(params: Params) -> Params:
        whole = full_params(params)
        whole = whole if model.precision == "float32" else widened(whole)
        return model.merged(whole) if model.merged else whole

    return model._replace(
        init=init,
        loss=random_loss if takes_key(model.loss) else loss,
        score=dataclasses.replace(scored, function=score),
        apply=apply if used else None,
        merged=merged,
        adapted=(),
    )


def _of_its_own(
    init: Callable[[Key], Params], full_params: Callable[[Params], Params]
) -> Callable[[Params], Params]:
    """`full_params`, which raises ValueError for parameters that are not such as `init` makes."""
    shapes = jax.eval_shape(init, jax.random.key(0))

    def checked_whole(params: Params) -> Params:
        check_shapes("params", params, shapes)
        return full_params(params)

    return checked_whole
