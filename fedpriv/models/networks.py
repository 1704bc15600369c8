"""The bundle of functions the laboratory needs of any model, and the models of the papers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.errors import (
    InvalidRngError,
    ScopeCollectionNotFound,
    ScopeParamNotFoundError,
    ScopeParamShapeError,
)
from jax import lax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.random_losses import takes_key
from fedpriv.core.types import Example, Key, LossFn, Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.dense_gradients import dense_gradients
from fedpriv.mechanisms.per_example import CLOSED_FORMS
from fedpriv.models.classification import Apply, cross_entropy, judged
from fedpriv.models.example_checks import check_pixels, check_type, wrong_input
from fedpriv.models.modules import (
    CNN,
    MLP,
    DropoutCNN,
    LogisticRegression,
    SigmoidLeNet,
    Weights,
)
from fedpriv.models.named_leaves import misfit


class Built(NamedTuple):
    """What a model is made of, so that one kept in a file can be made again.

    Attributes:
      module: of flax.linen.
      input: shape and type of what `module` takes.
    """

    module: nn.Module
    input: jax.ShapeDtypeStruct


class Model(NamedTuple):
    """A model as functions. To use any library's model, write the first three.

    Attributes:
      init: key -> params.
      loss: (params, example) -> f32[], for ONE example.
      score: (params, example) -> {name: f32[]} for ONE example. Evaluation sums these: a metric is its sum divided by
        the sum of "weight" (1 per example by default). Use a `Score` for metrics that are not means.
      apply: (params, x) -> outputs, for ONE input x, such as an image; `predict` needs it.
      built: the flax.linen module that it is made of; None for other models.
      merged: in a fine-tuned model (`adapters`, `frozen`): params -> parameters with which the original model scores
        the same. None for other models.
      precision: "float32", or "bfloat16" where loss, score and apply compute in that, see `in_bfloat16`.
      adapted: in a model of `adapters`: (path of a leaf, shapes of its adapter) of each.
    """

    init: Callable[[Key], Params]
    loss: LossFn
    score: Callable[[Params, Example], dict[str, jax.Array]]
    apply: Apply | None = None
    built: Built | None = None
    merged: Callable[[Params], Params] | None = None
    precision: str = "float32"
    adapted: tuple[tuple[str, Any], ...] = ()

    @names_user_code
    def predict(self, params: Params, inputs: PyTree) -> PyTree:
        """The outputs [n, ...] for inputs [n, ...]; for a classifier, logits, whose `argmax(-1)` is the label.

        Raises:
          ValueError: the model has no `apply`.
        """
        return predict(self.apply, params, inputs)


def predict(apply: Apply | None, params: Params, inputs: PyTree, batch_size: Count = 250) -> PyTree:
    """`apply(params, x)` for each x of `inputs` (leaves [n, ...]), so many at a time.

    Raises:
      ValueError: there is no `apply`.
    """
    if apply is None:
        raise ValueError(
            "apply: this model has none; make it with Model(..., apply=lambda params, x: ...)"
        )
    return _mapped(apply, params, inputs, batch_size)


@partial(jax.jit, static_argnums=(0, 3))
def _mapped(apply: Apply, params: Params, inputs: PyTree, batch_size: int) -> PyTree:
    return lax.map(lambda x: apply(params, x), inputs, batch_size=batch_size)


_MISFITS = (ScopeParamShapeError, ScopeParamNotFoundError, ScopeCollectionNotFound)
_OF_IMAGES = (LogisticRegression, MLP, CNN, DropoutCNN, SigmoidLeNet)  # these scale bytes


def scales_bytes(module: nn.Module) -> bool:
    """Whether it is a network of this package that divides bytes by 255."""
    return isinstance(module, _OF_IMAGES)


def classifier(
    module: nn.Module, input: Sequence[Count] | jax.typing.ArrayLike, inputs: str = "image"
) -> Model:
    """A `Model` of examples {"image": ..., "label": i32[]} with cross-entropy loss.

    A module whose `__call__` has a parameter `train` counts as random: it is called with True and a key for "dropout"
    in training, and with False otherwise.

    Args:
      module: gives the logits f32[classes] of ONE input.
      input: one input, such as `data.train["x"][0]`, for its shape and type; or the shape of an image of bytes. A
        module of your own that is made for an image of floats refuses bytes, which nobody divides for it.
      inputs: name of the input in an example. The networks of `models` divide bytes (uint8) by 255, and refuse images
        of other integers or of unscaled floats.

    Raises:
      ValueError: at `init`, a module with state beside its parameters, such as batch normalisation.
    """
    require(
        isinstance(module, nn.Module),
        "module",
        module,
        "give one such as fp.models.MLP((64,), 10)",
    )
    given: Any = input if hasattr(input, "dtype") else checked("input", input, Sequence[Count])
    shape, dtype = (given.shape, given.dtype) if hasattr(given, "dtype") else (given, jnp.uint8)
    like = jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))
    image = inputs == "image" or len(like.shape) == 3
    of_images = image and scales_bytes(module)
    random = "train" in inspect.signature(type(module).__call__).parameters
    evaluating: dict[str, Any] = {"train": False} if random else {}

    def random_apply(params: Params, x: PyTree, key: Key | None = None, **beside: PyTree) -> PyTree:
        if said := misfit(params, shapes()):
            raise ValueError(f"params: {said}")
        if of_images:
            check_pixels(inputs, x)
        elif image:
            check_type(inputs, x, like.dtype)
        training: dict[str, Any] = {"train": True, "rngs": {"dropout": key}}
        try:
            return module.apply(params, x, **beside, **(evaluating if key is None else training))
        except _MISFITS as error:
            raise _misfit(inputs, x, like.shape, error) from None
        except InvalidRngError as error:
            raise ValueError(
                f"module: {type(module).__name__} draws random numbers outside of training ({_first(error)}); give its "
                "__call__ a parameter `train`, and nn.Dropout deterministic=not train"
            ) from None

    def apply(params: Params, x: PyTree, **beside: PyTree) -> PyTree:
        return random_apply(params, x, **beside)

    @cache
    def shapes() -> Params:
        return jax.eval_shape(initial, jax.random.key(0))

    def initial(key: Key) -> Params:
        return _parameters(module.init(key, jnp.zeros(like.shape, like.dtype), **evaluating))

    made = from_apply(_compiled(initial), random_apply if random else apply, inputs)
    if type(module) in (LogisticRegression, MLP) and inputs == "image":
        CLOSED_FORMS[made.loss] = dense_gradients
    return made._replace(built=Built(module, like))


def _misfit(inputs: str, x: PyTree, made_for: tuple[int, ...], error: Exception) -> ValueError:
    """Why flax did not find a model's own parameters in their places: the input is another, or the module errs."""
    if jnp.shape(x) != made_for:
        return wrong_input(inputs, x, made_for)
    return ValueError(
        f"module: it asks for other parameters than at `init` ({_first(error).rstrip('.')}); let its __call__ make the "
        "same in training and otherwise"
    )


def _compiled(initial: Callable[[Key], Params]) -> Callable[[Key], Params]:
    """To the same numbers: op by op, an initialisation is dozens of programs to compile.

    It runs once, and on CPU LLVM would take seconds to make that one run faster. A program within another has the
    other's options.
    """
    compiled = jax.jit(initial)
    quick = jax.jit(initial, compiler_options={"xla_backend_optimization_level": 1})

    @names_user_code
    def init(key: Key) -> Params:
        inside = isinstance(key, jax.core.Tracer)
        return compiled(key) if inside or jax.default_backend() != "cpu" else quick(key)

    return init


def _parameters(variables: Any) -> Params:
    """Raises ValueError: there is more than parameters."""
    if beside := set(variables) - {"params"}:
        raise state_beside(beside)
    return variables


def state_beside(kinds: Collection[str]) -> ValueError:
    """The complaint about a network whose module keeps such state beside its parameters."""
    if {"batch_stats", "BatchStat"} & set(kinds):
        return ValueError(
            "module: batch normalisation mixes the records of a batch, so that no gradient is one record's, and its "
            "running statistics are private and belong to no client; take GroupNorm"
        )
    return ValueError(
        f"module: it has state beside its parameters ({', '.join(sorted(kinds))}), which clients and the server would "
        "have to agree on; take a module without"
    )


def _first(error: Exception) -> str:
    return str(error).partition("(http")[0].strip()


def from_apply(init: Callable[[Key], Params], apply: Apply, inputs: str = "image") -> Model:
    """A `Model` of any library's network: cross-entropy of `apply(params, example[inputs])` with example["label"].

    Args:
      init: key -> params.
      apply: (params, x) -> logits f32[classes], for ONE input. With dropout, (params, x, key=None): only training gives
        a key.
      inputs: name of the input in an example.

    Raises:
      ValueError: `init` or `apply` is not a function.
    """
    require(callable(init), "init", init, "give a function, key -> params")
    require(callable(apply), "apply", apply, "give a function, (params, x) -> logits")

    def loss(params: Params, example: Example) -> jax.Array:
        return cross_entropy(*judged(apply, inputs, params, example))

    def random_loss(params: Params, example: Example, key: Key | None = None) -> jax.Array:
        keys = () if key is None else (key,)
        return cross_entropy(*judged(apply, inputs, params, example, *keys))

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        z, label = judged(apply, inputs, params, example)
        correct = (jnp.argmax(z) == label).astype(jnp.float32)
        return {"accuracy": correct, "loss": cross_entropy(z, label)}

    return Model(init, random_loss if takes_key(apply) else loss, score, apply)


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
    """Convolutions of 16, 32 and 64 filters, a dense layer of 64: 131,562 parameters (cf. the paper's Figure 6)."""
    return classifier(CNN((16, 32, 64), (64,), 10), (32, 32, 3))
