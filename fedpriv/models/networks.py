"""The models of the papers, in flax.linen, and the bundle of functions the laboratory needs of any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.errors import ScopeParamShapeError
from jax import lax

from fedpriv.core.trees import as_float
from fedpriv.core.types import Example, Key, LossFn, Params, PyTree
from fedpriv.models.conv import conv_general_dilated
from fedpriv.models.dense import dot_general
from fedpriv.models.example_checks import check_label, check_leaves, wrong_image
from fedpriv.models.pooling import max_pool_2x2

Weights: TypeAlias = Literal["flax", "pytorch"]
"""Whose default initial weights; see `initializers`."""

Apply: TypeAlias = Callable[[Params, PyTree], PyTree]
"""(params, x) -> outputs, for ONE input x."""


class Built(NamedTuple):
    """What a model is made of, so that one kept in a file can be made again.

    Attributes:
      module: of flax.linen.
      input: shape and type of what `module` takes.
    """

    module: nn.Module
    input: jax.ShapeDtypeStruct


class Model(NamedTuple):
    """A model as functions; any library's model becomes one by writing the first three.

    Attributes:
      init: key -> params.
      loss: (params, example) -> f32[], for ONE example.
      score: (params, example) -> {"correct", "loss", "weight"}, each f32[], for ONE example: what evaluation sums;
        accuracy is correct / weight.
      apply: (params, x) -> outputs, for ONE input x, such as an image; what `predict` needs.
      built: what it is made of, if that is a module of flax.linen; None for others.
    """

    init: Callable[[Key], Params]
    loss: LossFn
    score: Callable[[Params, Example], dict[str, jax.Array]]
    apply: Apply | None = None
    built: Built | None = None

    def predict(self, params: Params, inputs: PyTree) -> PyTree:
        """The outputs [n, ...] for inputs [n, ...]; of a classifier the logits, whose `argmax(-1)` are the labels.

        Raises:
          ValueError: the model has no `apply`.
        """
        return predict(self.apply, params, inputs)


def predict(apply: Apply | None, params: Params, inputs: PyTree, batch_size: int = 250) -> PyTree:
    """`apply(params, x)` for each x of `inputs` (leaves [n, ...]), so many at a time.

    Raises:
      ValueError: there is no `apply`.
    """
    if apply is None:
        raise ValueError(
            "apply: this model has none; give it one, Model(..., apply=lambda params, x: ...)"
        )
    return _mapped(apply, params, inputs, batch_size)


@partial(jax.jit, static_argnums=(0, 3))
def _mapped(apply: Apply, params: Params, inputs: PyTree, batch_size: int) -> PyTree:
    return lax.map(lambda x: apply(params, x), inputs, batch_size=batch_size)


def classifier(module: nn.Module, image_shape: Sequence[int]) -> Model:
    """A `Model` of examples {"image": [height, width, channels], "label": i32[]} with cross-entropy loss."""

    def apply(params: Params, image: jax.Array) -> jax.Array:
        return module.apply(params, image)  # type: ignore[return-value]

    def logits(params: Params, example: Example) -> jax.Array:
        check_leaves(example)
        try:
            z = apply(params, example["image"])
        except ScopeParamShapeError:
            raise wrong_image(example, tuple(image_shape)) from None
        check_label(example["label"], z.shape[-1])
        return z

    def loss(params: Params, example: Example) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(
            logits(params, example), example["label"]
        )

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        z = logits(params, example)
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels(z, example["label"])
        correct = (jnp.argmax(z) == example["label"]).astype(jnp.float32)
        return {"correct": correct, "loss": cross_entropy, "weight": jnp.ones(())}

    # Compiled as a whole, to the same numbers: op by op, an initialisation is dozens of programs to compile.
    init = jax.jit(lambda key: module.init(key, jnp.zeros(image_shape, jnp.uint8)))
    image = jax.ShapeDtypeStruct(tuple(image_shape), jnp.uint8)
    return Model(init, loss, score, apply, Built(module, image))


class LogisticRegression(nn.Module):
    """Multinomial logistic regression on the flattened input.

    Attributes:
      classes: number of outputs, the logits.
    """

    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        return nn.Dense(self.classes)(as_float(x).reshape(-1))


class MLP(nn.Module):
    """Dense layers with ReLU on the flattened input.

    Attributes:
      hidden: width of each hidden layer.
      classes: number of outputs, the logits.
    """

    hidden: Sequence[int]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[classes], the logits of one image u8 or f32[height, width, channels]."""
        x = as_float(x).reshape(-1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.classes)(x)


class CNN(nn.Module):
    """5 x 5 convolutions, each with 2 x 2 max pooling and ReLU, then dense layers with ReLU and a linear output.

    `CNN((32, 64), (512,), 10)` on 28 x 28 x 1 images is McMahan et al.'s network (1,663,370 parameters).

    Attributes:
      filters: number of each convolution's.
      hidden: width of each hidden dense layer.
      classes: number of outputs, the logits.
      weights: whose default initial weights, see `initializers`.
    """

    filters: Sequence[int]
    hidden: Sequence[int]
    classes: int
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


def initializers(weights: Weights, fan_in: int) -> dict[str, Any]:
    """How a layer with `fan_in` inputs per output starts.

    By flax's defaults (LeCun normal kernels of variance 1 / fan_in, zero biases) or PyTorch's (both uniform in
    +-1 / sqrt(fan_in), of variance 1 / (3 fan_in)).
    """
    if weights == "flax":
        return {}
    bound = fan_in**-0.5

    def uniform(key: Key, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return {"kernel_init": uniform, "bias_init": uniform}


def fashion_mnist_cnn(weights: Weights = "flax") -> Model:
    """Fed-SMP's network for Fashion-MNIST, d = 1,663,370."""
    return classifier(CNN((32, 64), (512,), 10, weights), (28, 28, 1))


def svhn_cnn(weights: Weights = "flax") -> Model:
    """Fed-SMP's network for SVHN, d = 3,431,754."""
    return classifier(CNN((64, 128), (384, 192), 10, weights), (32, 32, 3))


def small_mnist_cnn() -> Model:
    """Convolutions of 8 and 16 filters, a dense layer of 32: 28,874 parameters, for per-record gradients.

    Of the kind of the wavelet paper's Figure 5, which gives no sizes; its gradient fills a Haar transform of 2^15.
    """
    return classifier(CNN((8, 16), (32,), 10), (28, 28, 1))


def small_cifar10_cnn() -> Model:
    """Convolutions of 16, 32 and 64 filters, a dense layer of 64: 131,562 parameters (cf. Figure 6 there)."""
    return classifier(CNN((16, 32, 64), (64,), 10), (32, 32, 3))


class SigmoidLeNet(nn.Module):
    """The network on which gradients are inverted: three 5 x 5 convolutions of 12 filters with sigmoids, a dense layer.

    L. Zhu, Z. Liu, S. Han, "Deep Leakage from Gradients", NeurIPS 2019; strides 2, 2, 1, no pooling, all weights
    uniform in +-1/2, so that gradients have second derivatives everywhere.

    Attributes:
      classes: number of outputs, the logits.
    """

    classes: int

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


class CharacterLSTM(nn.Module):
    """Embedding, two LSTM layers, a linear output at every position.

    Attributes:
      vocabulary: number of characters, in and out.
      embedding: numbers per character.
      hidden: width of the LSTM layers.
    """

    vocabulary: int
    embedding: int
    hidden: int

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        """f32[length, vocabulary], the logits at every position of one text, ids [length]."""
        x = nn.Embed(self.vocabulary, self.embedding)(characters.astype(jnp.int32))
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(self.hidden))(x)
        return nn.Dense(self.vocabulary)(x)


def shakespeare_lstm() -> Model:
    """Fed-SMP's next-character network: embedding 8, 2 x LSTM 256, dense 90; d = 820,522.

    Table 3's 46.02 MB imply 822,570: 2 x 4 x 256 more, the second bias vector that PyTorch gives an LSTM layer, which
    adds nothing to what the layer can compute.

    Examples are {"text": [80] character ids, "label": i32[80] next characters, "mask": bool[80]}.
    """
    module = CharacterLSTM(90, 8, 256)

    def per_character(params: Params, example: Example) -> tuple[jax.Array, jax.Array, jax.Array]:
        z: Any = module.apply(params, example["text"])
        losses = optax.softmax_cross_entropy_with_integer_labels(z, example["label"])
        return z, losses, example["mask"].astype(jnp.float32)

    def loss(params: Params, example: Example) -> jax.Array:
        _, losses, mask = per_character(params, example)
        return jnp.sum(losses * mask) / jnp.maximum(jnp.sum(mask), 1)

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        z, losses, mask = per_character(params, example)
        correct = (jnp.argmax(z, -1) == example["label"]) * mask
        return {
            "correct": jnp.sum(correct),
            "loss": jnp.sum(losses * mask),
            "weight": jnp.sum(mask),
        }

    def init(key: Key) -> Params:
        return module.init(key, jnp.zeros(80, jnp.int32))

    built = Built(module, jax.ShapeDtypeStruct((80,), jnp.int32))
    return Model(init, loss, score, module.apply, built)
