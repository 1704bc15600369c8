"""The papers' networks as modules of flax.linen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Finite, Positive, check_fields, checked
from fedpriv.core.leaves import as_float
from fedpriv.core.types import Key
from fedpriv.models.conv import conv_general_dilated
from fedpriv.models.dense import dot_general
from fedpriv.models.lstm import LSTM
from fedpriv.models.pooling import max_pool_2x2

Weights: TypeAlias = Literal["flax", "pytorch"]
"""Whose default initial weights; see `initializers`."""


class _Checked(nn.Module):
    """A module that checks its fields when it is made."""

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()


class LogisticRegression(_Checked):
    """Multinomial logistic regression on the flattened input.

    Attributes:
      classes: number of outputs, the logits.
    """

    classes: Count

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        return nn.Dense(self.classes)(as_float(x).reshape(-1))


class MLP(_Checked):
    """Dense layers with ReLU on the flattened input.

    Attributes:
      hidden: width of each hidden layer.
      classes: number of outputs, the logits.
    """

    hidden: Sequence[Count]
    classes: Count

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        x = as_float(x).reshape(-1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.classes)(x)


class CNN(_Checked):
    """5 x 5 convolutions, each with 2 x 2 max pooling and ReLU; dense layers with ReLU; a linear output.

    `CNN((32, 64), (512,), 10)` on 28 x 28 x 1 images is McMahan et al.'s network (1,663,370 parameters).

    Attributes:
      filters: number of filters of each convolution.
      hidden: width of each hidden dense layer.
      classes: number of outputs, the logits.
      weights: whose default initial weights to use, see `initializers`.
    """

    filters: Sequence[Count]
    hidden: Sequence[Count]
    classes: Count
    weights: Weights = "flax"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        x = as_float(x)[None]
        for features in self.filters:
            initial = initializers(self.weights, 25 * x.shape[-1])
            conv = nn.Conv(features, (5, 5), conv_general_dilated=conv_general_dilated, **initial)
            x = nn.relu(max_pool_2x2(conv(x)))
        x = x.reshape(-1)
        for width in self.hidden:
            initial = initializers(self.weights, x.size)
            x = nn.relu(nn.Dense(width, dot_general=dot_general, **initial)(x))
        return nn.Dense(self.classes, **initializers(self.weights, x.size))(x)


class DropoutCNN(_Checked):
    """Two 3 x 3 convolutions without padding, 2 x 2 max pooling, a dense layer of 128; dropout of 1/4 and 1/2.

    pfl-research's network (F. Granqvist et al., arXiv:2404.06430) for 32 x 32 x 3 images, 1,626,442 parameters. Weights
    are Glorot uniform, biases PyTorch's.

    Attributes:
      classes: number of outputs, the logits.
      mean: mean of each channel, subtracted from pixels between 0 and 1.
      std: standard deviation of each channel, by which the result is divided.
    """

    classes: Count
    mean: Sequence[Finite] = (0.0,)
    std: Sequence[Positive] = (1.0,)

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels], height and width even."""

        def initial(fan_in: int) -> dict[str, Any]:
            return {
                **initializers("pytorch", fan_in),
                "kernel_init": nn.initializers.glorot_uniform(),
            }

        def dropped(x: jax.Array, rate: float) -> jax.Array:
            return nn.Dropout(rate, deterministic=not train)(x)

        x = as_float(x)[None]
        mean, std = (np.array([[[of]]], x.dtype) for of in (self.mean, self.std))
        x = (x - mean) / std
        for features in (32, 64):
            given = initial(9 * x.shape[-1])
            conv = nn.Conv(features, (3, 3), conv_general_dilated=conv_general_dilated, **given)
            x = conv(x)[
                :, 1:-1, 1:-1
            ]  # what no padding has touched, as that of "SAME" is fast here
            x = max_pool_2x2(x) if features == 64 else x
            x = nn.relu(x)
        x = dropped(x.reshape(-1), 0.25)
        x = nn.relu(nn.Dense(128, dot_general=dot_general, **initial(x.size))(x))
        return nn.Dense(self.classes, **initial(128))(dropped(x, 0.5))


def initializers(weights: Weights, fan_in: Count) -> dict[str, Any]:
    """Initial weights of a module's layer with `fan_in` inputs per output.

    They follow flax's defaults (LeCun normal kernels of variance 1 / fan_in, zero biases) or PyTorch's (both uniform in
    +-1 / sqrt(fan_in), of variance 1 / (3 fan_in)).

    Raises:
      ValueError: unknown weights, or a fan_in below 1.
    """
    weights = checked("weights", weights, Weights)
    fan_in = checked("fan_in", fan_in, Count)
    if weights == "flax":
        return {}
    bound = fan_in**-0.5

    def uniform(key: Key, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return {"kernel_init": uniform, "bias_init": uniform}


class SigmoidLeNet(_Checked):
    """A network for gradient inversion: three 5 x 5 convolutions of 12 filters with sigmoids, and a dense layer.

    L. Zhu, Z. Liu, S. Han, "Deep Leakage from Gradients", NeurIPS 2019; strides 2, 2, 1, no pooling, all weights
    uniform in +-1/2, so that gradients have second derivatives everywhere.

    Attributes:
      classes: number of outputs, the logits.
    """

    classes: Count

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        x = as_float(x)[None]
        initial: dict[str, Any] = {"kernel_init": _within_half, "bias_init": _within_half}
        for stride in (2, 2, 1):
            x = nn.sigmoid(nn.Conv(12, (5, 5), stride, padding=2, **initial)(x))
        return nn.Dense(self.classes, **initial)(x.reshape(-1))


def _within_half(key: Key, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.uniform(key, shape, dtype, -0.5, 0.5)


class CharacterLSTM(_Checked):
    """An embedding, two LSTM layers, and a linear output at every position.

    Attributes:
      vocabulary: number of characters, of input and output.
      embedding: numbers per character.
      hidden: width of the LSTM layers.
    """

    vocabulary: Count
    embedding: Count
    hidden: Count

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        """f32[length, vocabulary], the logits at every position of one text, ids [length]."""
        x = nn.Embed(self.vocabulary, self.embedding)(characters.astype(jnp.int32))
        for _ in range(2):
            x = LSTM(self.hidden)(x)
        return nn.Dense(self.vocabulary)(x)


class CharacterTransformer(_Checked):
    """Embeddings of characters and positions, blocks of causal attention and two dense layers, a linear output.

    There is an output at every position. Each half of a block adds a function of its normalised input to its input (A.
    Vaswani et al., arXiv:1706.03762, with layer normalisation first, R. Xiong et al., arXiv:2002.04745).

    Attributes:
      vocabulary: number of characters, of input and output.
      width: numbers per character, divided among the heads.
      heads: number of attention heads; divides `width`.
      blocks: number of blocks.
    """

    vocabulary: Count
    width: Count
    heads: Count
    blocks: Count

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        """f32[length, vocabulary], the logits at every position of one text, ids [length]."""
        length = len(characters)
        unit = nn.initializers.normal(1.0)  # the normalisation makes the loss steep in smaller ones
        embed = nn.Embed(self.vocabulary, self.width, embedding_init=unit)
        x = embed(characters.astype(jnp.int32))
        x = x + self.param("positions", unit, (length, self.width))
        past = jnp.tri(length, dtype=bool)
        for _ in range(self.blocks):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(y, mask=past)
            y = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(y)
        return nn.Dense(self.vocabulary, name="head")(nn.LayerNorm()(x))
