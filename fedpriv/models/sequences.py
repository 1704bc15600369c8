"""Models of texts: every token is predicted from those before it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.random_losses import takes_key
from fedpriv.core.types import Example, Key, LossFn, Params, PyTree
from fedpriv.data.labels import that_count
from fedpriv.models.classification import cross_entropy
from fedpriv.models.example_checks import ExampleError, check_leaves, class_of
from fedpriv.models.modules import CharacterLSTM
from fedpriv.models.named_leaves import misfit
from fedpriv.models.networks import Built, Model, classifier
from fedpriv.models.score import Score


def next_token(network: nn.Module | Model, length: Count | None = None) -> Model:
    """A `Model` of rows of tokens, such as `fp.datasets.from_tokens` makes.

    An example is {"text": i[length] ids, "label": i[length] the tokens that follow, "mask": bool[length]}, and in a
    packed row "segment": i[length], which text each token is of. The loss is the mean cross-entropy (nats) of the
    tokens of the row whose mask is True, 0 where there are none; the labels of others may be anything, such as -100.
    Over a test set or a client, `loss` and `accuracy` are means over all tokens, and `perplexity` is exp(loss): a row
    counts by its tokens.

    Args:
      network: a module of flax.linen that maps ONE row of ids to logits [length, vocabulary], each position's of tokens
        up to it alone; for packed rows it has to take `segment`, too, as `fp.models.Transformer`. Or a `Model` with
        such an `apply`, as of `fp.models.from_nnx`.
      length: tokens of a row that the module is made for; of a `Model`, none.

    Raises:
      ValueError: neither; a module without length; when called, packed rows, or others that the network does not take.
    """
    if isinstance(network, nn.Module):
        require(length is not None, "length", length, "give how many tokens a row of data has")
        row = np.zeros(checked("length", length, Count), np.int32)
        network = classifier(network, row, inputs="text")
    else:
        such_as = "give a module such as fp.models.Transformer(...), or a Model with `apply`"
        fits = isinstance(network, Model) and callable(network.apply)
        require(fits, "network", network, such_as)
        require(length is None, "length", length, "leave it out: a Model has been made for one")
    assert network.apply is not None
    loss, score = _of_tokens(network.apply, _takes_segment(network))
    return network._replace(loss=loss, score=score)


def next_character(module: nn.Module) -> Model:
    """A `Model` of examples {"text": [80] character ids, "label": i32[80] next characters, "mask": bool[80]}.

    Its loss is the mean cross-entropy of the unmasked characters; accuracy and perplexity are per character.

    Args:
      module: maps ONE text to logits f32[80, classes]; each position's depend only on characters before the next one.

    Raises:
      ValueError: not a module.
    """
    such_as = "give one such as fp.models.CharacterLSTM(90, 8, 256)"
    require(isinstance(module, nn.Module), "module", module, such_as)

    def apply(params: Params, text: jax.Array) -> PyTree:
        if said := misfit(params, shapes()):
            raise ValueError(f"params: {said}")
        return module.apply(params, text)

    @cache
    def shapes() -> Params:
        return jax.eval_shape(init, jax.random.key(0))

    def init(key: Key) -> Params:
        return module.init(key, jnp.zeros(80, jnp.int32))

    built = Built(module, jax.ShapeDtypeStruct((80,), jnp.int32))
    return Model(init, *_of_tokens(apply, segments=False), apply, built)


def shakespeare_lstm() -> Model:
    """Fed-SMP's next-character network: embedding 8, 2 x LSTM 256, dense 90; d = 820,522.

    Table 3's 46.02 MB imply 822,570, which is 2 x 4 x 256 more: the second bias vector of PyTorch's LSTM layers, which
    adds nothing to what a layer can compute.
    """
    return next_character(CharacterLSTM(90, 8, 256))


def _takes_segment(model: Model) -> bool:
    """Whether it can be given packed rows: what hands on all that it is given asks the module."""
    taken = inspect.signature(model.apply).parameters  # type: ignore[arg-type]
    if model.built and any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        taken = inspect.signature(type(model.built.module).__call__).parameters
    return "segment" in taken


def _of_tokens(apply: Callable[..., Any], segments: bool) -> tuple[LossFn, Score]:
    """The loss and score of tokens; whether `apply` takes packed rows."""

    def per_token(params: Params, example: Example, *key: Key) -> tuple[jax.Array, ...]:
        """The logits, the tokens that are right, the losses, and which of them count."""
        check_leaves(example, "text", "label", "mask")
        packed = {name: example[name] for name in ("segment",) if name in example}
        if packed and not segments:
            raise ExampleError(
                "example: a packed row, of a network that takes no `segment`; give from_tokens(..., packed=False), "
                "or a network that does"
            )
        z: Any = apply(params, example["text"], *key, **packed)
        label = class_of(that_count(example["label"], example["mask"]), z)
        z = z.astype(jnp.promote_types(z.dtype, jnp.float32))
        return z, label, cross_entropy(z, label), example["mask"].astype(jnp.float32)

    def random_loss(params: Params, example: Example, key: Key | None = None) -> jax.Array:
        _, _, losses, mask = per_token(params, example, *(() if key is None else (key,)))
        return jnp.sum(losses * mask) / jnp.maximum(jnp.sum(mask), 1)

    def loss(params: Params, example: Example) -> jax.Array:
        return random_loss(params, example)

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        z, label, losses, mask = per_token(params, example)
        correct = (jnp.argmax(z, -1) == label) * mask
        return {
            "accuracy": jnp.sum(correct),
            "loss": jnp.sum(losses * mask),
            "weight": jnp.sum(mask),
        }

    derived = {"perplexity": lambda means: jnp.exp(means["loss"])}
    measured = Score(score, derived, smooth=tuple(derived))
    return random_loss if takes_key(apply) else loss, measured
