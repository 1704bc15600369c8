"""A decoder of tokens, quick to compile: its layers are one program, run over stacked leaves."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, check_fields
from fedpriv.core.complaints import require


class Transformer(nn.Module):
    """Embeddings, layers of causal attention and of two dense layers, and the embeddings again as the head.

    Each half of a layer adds a function of its normalised input to its input (A. Vaswani et al., arXiv:1706.03762, with
    layer normalisation first, R. Xiong et al., arXiv:2002.04745). Positions turn queries and keys (J. Su et al.,
    arXiv:2104.09864), so that texts may have any length and a packed row needs no positions of its own. It computes in
    the type of its parameters; attention's weights and the turns are float32.

    Attributes:
      vocabulary: number of tokens, of input and output.
      width: numbers per token, divided among the heads; a multiple of 2 heads.
      heads: number of attention heads.
      layers: number of layers.
      scan_layers: stacks the parameters of all layers in leaves [layers, ...], so that one layer is compiled; without,
        each layer has leaves of its own.
      remat: computes each layer again for the gradient (`jax.checkpoint`), in place of keeping what is inside it.
    """

    vocabulary: Count
    width: Count
    heads: Count
    layers: Count
    scan_layers: bool = True
    remat: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        fits = self.width % (2 * self.heads) == 0
        require(fits, "width", self.width, f"give a multiple of {2 * self.heads}, twice the heads")
        super().__post_init__()

    @nn.compact
    def __call__(self, text: jax.Array, segment: jax.Array | None = None) -> jax.Array:
        """float[n, vocabulary], the logits at every position of one row, ids i[n].

        Args:
          segment: i[n], in a packed row, which text each token is of: it sees no others.
        """
        embed = nn.Embed(self.vocabulary, self.width)
        x = embed(text.astype(jnp.int32)) * self.width**0.5  # of variance 1 each
        seen = jnp.tri(len(text), dtype=bool)
        if segment is not None:
            seen &= segment[:, None] == segment[None, :]
        beside = (seen, *_turns(len(text), self.width // self.heads))
        layer: Any = Layer
        if self.remat:
            layer = nn.remat(Layer, prevent_cse=not self.scan_layers)
        if self.scan_layers:
            stacked = nn.scan(
                layer,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                in_axes=nn.broadcast,
                length=self.layers,
            )
            x, _ = stacked(self.heads, name="layers")(x, beside)
        else:
            for i in range(self.layers):
                x, _ = layer(self.heads, name=f"layer_{i}")(x, beside)
        return embed.attend(nn.LayerNorm(name="norm")(x))


class Layer(nn.Module):
    """One layer of a `Transformer`.

    Attributes:
      heads: number of attention heads.
    """

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, beside: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        """Float[n, width] of float[n, width]; and nothing, for a scan.

        Args:
          beside: what each position sees, bool[n, n], and its turns, as `_turns`.
        """
        (n, width), (seen, cos, sin) = x.shape, beside
        y = nn.LayerNorm(name="norm_1")(x)
        query, key, value = (
            nn.Dense(width, name=name)(y).reshape(n, self.heads, -1)
            for name in ("query", "key", "value")
        )
        mean = _attention(_turned(query, cos, sin), _turned(key, cos, sin), value, seen)
        x = x + nn.Dense(width, name="out")(mean.reshape(n, width))
        y = nn.Dense(4 * width, name="up")(nn.LayerNorm(name="norm_2")(x))
        return x + nn.Dense(width, name="down")(nn.gelu(y)), None


def _attention(query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array) -> jax.Array:
    """Float[n, heads, d], means of the values that each position sees; all float[n, heads, d] but bool[n, n]."""
    long = jnp.promote_types(query.dtype, jnp.float32)
    products = jnp.einsum("qhd,khd->hqk", query, key, preferred_element_type=long)
    weights = jax.nn.softmax(jnp.where(seen, products / query.shape[-1] ** 0.5, -jnp.inf))
    return jnp.einsum("hqk,khd->qhd", weights.astype(value.dtype), value)


def _turns(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines f32[n, 1, d / 2] of the angles by which positions turn: position / 10^(8 i / d) for pair i."""
    angle = np.arange(n)[:, None, None] * 1e4 ** (-2 * np.arange(d // 2) / d)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _turned(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Float[n, heads, d] whose pairs (i, i + d/2) are turned: two products depend on how far positions are apart."""
    one, other = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], -1).astype(x.dtype)
