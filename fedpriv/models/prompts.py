"""Trained prompts: vectors before a text, which a network takes for the embeddings of its first tokens.

B. Lester, R. Al-Rfou, N. Constant, "The Power of Scale for Parameter-Efficient Prompt Tuning", EMNLP 2021,
arXiv:2104.08691.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count, check_fields


class Prompted(nn.Module):
    """A network of texts with a prompt before each; its parameters are {"prompt": ..., "module": the network's}.

    `fp.models.frozen(model, base, trainable="prompt$")` trains the prompt alone, which begins as it is in `base`, such
    as embeddings of some tokens. A network with one vector for each position needs one for each of the prompt, too.

    Attributes:
      module: of flax.linen; maps ONE text of any length, ids [length], to outputs [length, ...].
      vectors: their number.
      width: numbers per vector, those of the embedding.
      embedding: name of the module's layer `nn.Embed` that embeds the tokens.
    """

    module: nn.Module
    vectors: Count
    width: Count
    embedding: str = "Embed_0"

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """The module's outputs at the positions of the text, [length, ...].

        Raises:
          ValueError: no layer of that name embeds the text, or its vectors have another width.
        """
        like_embed = nn.initializers.normal(self.width**-0.5)  # as nn.Embed draws
        prompt = self.param("prompt", like_embed, (self.vectors, self.width))
        embedded: list[str] = []

        def with_prompt(
            layer: Callable[..., Any],
            args: tuple,
            kwargs: dict,
            context: nn.module.InterceptorContext,
        ) -> Any:
            x = layer(*args, **kwargs)
            called = isinstance(context.module, nn.Embed) and context.method_name == "__call__"
            if not called or context.module.name != self.embedding:
                return x
            embedded.append(self.embedding)
            _check_width(self.width, x)
            return x.at[: self.vectors].set(prompt.astype(x.dtype))

        places = jnp.zeros(self.vectors, tokens.dtype)
        with nn.intercept_methods(with_prompt):
            outputs = self.module(jnp.concatenate([places, tokens]))
        if not embedded:
            raise ValueError(
                f"embedding: no layer nn.Embed of the name {self.embedding!r}; give the name of the one that embeds "
                "tokens, such as 'Embed_0'"
            )
        return outputs[self.vectors :]


def _check_width(width: int, embedded: jax.Array) -> None:
    """Raises ValueError: the embeddings, [length, width], have another one."""
    if embedded.shape[-1] != width:
        raise ValueError(
            f"width: {width}, but the embedding has {embedded.shape[-1]} numbers per token; give these"
        )
