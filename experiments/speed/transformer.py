"""A decoder of characters as users of flax write it; of flax alone, as jax_privacy's run takes it, too."""

from __future__ import annotations

import flax.linen as nn
import jax


class Transformer(nn.Module):
    """Causal self-attention and dense layers of four times the width, each after a layer norm (GPT-2's order)."""

    vocabulary: int
    length: int
    width: int
    heads: int
    layers: int

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        """i32[..., length] -> logits f32[..., length, vocabulary]."""
        places = self.param("places", nn.initializers.normal(0.02), (self.length, self.width))
        x = nn.Embed(self.vocabulary, self.width)(text) + places
        mask = nn.make_causal_mask(text)
        for _ in range(self.layers):
            x += nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x), mask=mask)
            hidden = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            x += nn.Dense(self.width)(hidden)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))
