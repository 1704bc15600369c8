"""Small losses of one record whose gradients are of every kind: of layers, tables, loops, and parts computed again."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import small
from jax import lax

B, T, VOCABULARY, WIDTH = 4, 5, 300, 6


def filled(*shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return jnp.asarray(rng.normal(size=shape) / shape[-1] ** 0.5, jnp.float32)


def batch(least=0, most=VOCABULARY):
    """Tokens, of which several are equal."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(least, most, (B, T))
    tokens[:, 3] = tokens[:, 0]
    tokens[1] = tokens[1, 0]
    return {
        "x": jnp.asarray(tokens),
        "y": jnp.asarray(rng.integers(0, VOCABULARY, (B, T))),
        "v": jnp.asarray(rng.normal(size=(B, T, WIDTH)), jnp.float32),
        "mask": jnp.asarray(rng.integers(0, 2, (B, T)), bool).at[:, 0].set(True),
    }


TABLE = {"table": filled(VOCABULARY, WIDTH)}
MATRIX = {"w": filled(WIDTH, WIDTH, seed=1)}
LAYERS = {"layers": filled(3, WIDTH, WIDTH, seed=2), "biases": filled(3, WIDTH, seed=3)}


def entropy(z, e):
    each = optax.softmax_cross_entropy_with_integer_labels(z, e["y"])
    return jnp.sum(jnp.where(e["mask"], each, 0.0)) / jnp.sum(e["mask"])


def square(h):
    return jnp.sum(jnp.sin(h) ** 2)


def dense(p, e):
    return square(e["v"] @ p["w"])


def shared_transposed(p, e):
    return square(jax.nn.silu(e["v"] @ p["w"]) @ p["w"].T)


def shared_otherwise(p, e):
    """Its two gradients' entries are in orders that have nothing to do with each other."""
    odd = p["w"].reshape(WIDTH // 2, 2, WIDTH).transpose(1, 0, 2).reshape(WIDTH, WIDTH)
    return square(jax.nn.silu(e["v"] @ p["w"]) @ odd)


def embedding(p, e):
    return square(p["table"][e["x"]] * e["v"])


def taken(mode):
    return lambda p, e: square(
        jnp.take(p["table"], e["x"], axis=0, mode=mode, fill_value=0) * e["v"]
    )


def columns(p, e):
    return square(p["table"].T[:, e["x"]].T * e["v"])


def twice(p, e):
    return square(p["table"][e["x"]] * e["v"]) + square(p["table"][e["y"]])


def fixed_places(p, e):
    return square(p["table"][jnp.array([7, 7, 1, 2, 299])] * e["v"])


def one_hot(p, e):
    return square((jax.nn.one_hot(e["x"], VOCABULARY) @ p["table"]) * e["v"])


def scanned(p, e, wrap=lambda f: f):
    def layer(h, leaves):
        return h + jax.nn.silu(h @ leaves["layers"] + leaves["biases"]), None

    leaves = {k: p[k] for k in ("layers", "biases")}
    return lax.scan(wrap(layer), e["v"], leaves)[0]


def tied_scanned(wrap):
    def loss(p, e):
        h = scanned(p, {"v": p["table"][e["x"]]}, wrap)
        return entropy(h @ p["table"].T, e)

    return loss


def recomputed(p, e):
    """Layers one by one, each computed again."""

    @jax.checkpoint
    def layer(h, w):
        return h + jax.nn.silu(h @ w)

    return square(layer(layer(e["v"], p["w"]), p["other"]) @ p["w"].T)


def recomputed_whole(p, e):
    """Layers that are computed again within what is, too."""
    return jax.checkpoint(tied_scanned(jax.checkpoint))(p, e)


def called_thrice(p, e):
    """One jitted layer, whose program JAX has once."""
    layer = jax.jit(jax.checkpoint(lambda h, w: h + jax.nn.silu(h @ w)))
    return square(layer(layer(layer(e["v"], p["w"]), p["other"]), p["w"]))


def looked_up_again(p, e):
    h = jax.checkpoint(lambda table, x: jnp.cos(jnp.sin(table[x])))(p["table"], e["x"])
    return square(h @ p["w"])


def over_time(wrap=lambda f: f):
    def loss(p, e):
        def step(h, x):
            return jnp.tanh(p["table"][x] + h @ p["w"]), None

        return square(lax.scan(wrap(step), jnp.zeros(WIDTH), e["x"])[0])

    return loss


def shared_layers(p, e):
    """A closed-over layer that a loop uses twice in each step."""

    def step(h, _):
        return jax.nn.silu(jax.nn.silu(h @ p["w"]) @ p["w"].T), None

    return square(lax.scan(step, e["v"], None, length=3)[0])


def flipping(p, e):
    """A loop that hands on what it takes in another order."""

    def step(state, _):
        h, w = state
        return (jnp.tanh(h @ w), w.T), None

    return square(lax.scan(step, (e["v"], p["w"]), None, length=3)[0][0])


def nested_leaf(p, e):
    def outer(h, layers):
        return lax.scan(jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None)), h, layers)

    return square(lax.scan(outer, e["v"], p["nested"])[0])


def tables(p, e):
    """A table in each layer of a loop."""

    def layer(h, table):
        return jnp.tanh(h + table[e["x"]]), None

    return square(lax.scan(layer, e["v"], p["tables"])[0])


def stacked_twice(p, e):
    """Of one value, two leaves' gradients."""
    return square(e["v"] @ (p["w"] + p["other"]))


def branches(p, e):
    return lax.cond(e["mask"][1], lambda: square(e["v"] @ p["w"]), lambda: jnp.sum(p["w"]))


def solved(p, e):
    return square(jnp.linalg.solve(jnp.eye(WIDTH) * 3 + p["w"], e["v"].T))


def rows_and_columns(p, e):
    h = jnp.cos(p["table"][e["x"]])
    return square(h + p["table"].T[:, e["y"]].T) + entropy(h @ p["table"].T, e)


def two_places(p, e):
    return square(p["table"][e["x"], e["y"] % WIDTH])


def several_rows(p, e):
    return square(lax.dynamic_slice_in_dim(p["table"], e["x"][0], 2))


def with_dropout(p, e):
    """Drawn again, and some of it kept, by a policy."""
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    key = jax.random.fold_in(jax.random.key(0), e["x"][0])

    @functools.partial(jax.checkpoint, policy=policy)
    def layer(h, leaves, key):
        kept = jax.random.bernoulli(key, 0.7, h.shape)
        return jnp.where(kept, jax.nn.relu(h @ leaves["layers"]) + leaves["biases"], 0.0)

    def step(state, leaves):
        h, key = state
        key, now = jax.random.split(key)
        return (h + layer(h, leaves, now), key), None

    return square(lax.scan(step, (e["v"], key), p, reverse=True, unroll=2)[0][0])


def odd_leaves(p, e):
    """A number for each layer, and a leaf that is not used."""

    @jax.checkpoint
    def layer(h, x):
        w, scale = x
        return jnp.tanh(h @ w) * scale, None

    return square(lax.scan(layer, e["v"], (p["layers"], p["scales"]))[0])


def over_a_base(p, e):
    """Adapters of a base that is no parameter."""

    @jax.checkpoint
    def layer(h, a, b):
        return jax.nn.gelu(h @ filled(WIDTH, WIDTH) + h @ a @ b)

    return square(layer(layer(e["v"], p["a"], p["b"]), p["b"].T, p["a"].T))


class Block(nn.Module):
    """A transformer's layer, as flax writes it."""

    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, h, _):
        of = {"dtype": self.dtype}
        n = nn.LayerNorm(**of)(h)
        mask = nn.make_causal_mask(jnp.ones(T))
        h = h + nn.MultiHeadDotProductAttention(2, **of)(n, mask=mask)
        n = nn.gelu(nn.Dense(2 * WIDTH, **of)(nn.LayerNorm(**of)(h)))
        return h + nn.Dense(WIDTH, **of)(n), None


class Transformer(nn.Module):
    recompute: bool
    dtype: type = jnp.float32
    layers: int = 2

    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(VOCABULARY, WIDTH, dtype=self.dtype)
        block = nn.remat(Block, prevent_cse=False) if self.recompute else Block
        layers = nn.scan(
            block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers
        )
        h = embed(x) + self.param("places", nn.initializers.normal(0.1), (T, WIDTH))
        return embed.attend(layers(self.dtype)(h.astype(self.dtype), None)[0])


def transformer(recompute, dtype=jnp.float32, layers=2):
    model = Transformer(recompute, dtype, layers)
    params = small.filled(lambda key: model.init(key, jnp.zeros(T, int)))["params"]
    return lambda p, e: entropy(model.apply({"params": p}, e["x"]).astype(jnp.float32), e), params


def in_bfloat16(loss):
    def other(p, e):
        short = jax.tree.map(lambda x: x.astype(jnp.bfloat16), p)
        return loss(short, {**e, "v": e["v"].astype(jnp.bfloat16)}).astype(jnp.float32)

    return other


def labelled(z, e):
    return optax.softmax_cross_entropy_with_integer_labels(z, e["y"])


def tanh_layer(p, e):
    return labelled(jnp.tanh(e["x"] @ p["w"] + p["b"]) @ p["out"], e)


def part(p, e):
    """Of a matrix."""
    return labelled(jnp.tanh(e["x"] @ p["w"].reshape(6, 3, 8)[:, 0] + p["b"]) @ p["out"], e)


def sequence(p, e):
    return labelled(jnp.sum(jnp.tanh(e["x"] @ p["w"] + p["b"]), 0) @ p["out"], e)


def heads(p, e):
    """As flax's attention: from one axis into two, and back."""
    h = jnp.tanh(jnp.einsum("ti,ihk->thk", e["x"], p["into"]))
    return labelled(jnp.sum(jnp.einsum("thk,hkj->tj", h, p["out"]), 0), e)


def attention(p, e):
    """Two heads, as flax projects onto them: kernels [i, heads, o] and [heads, o, i]."""
    q, k, v = (jnp.einsum("ti,iho->tho", e["x"], p[name]) for name in "qkv")
    shares = jax.nn.softmax(jnp.einsum("tho,sho->hts", q, k))
    return jnp.sum(jnp.einsum("hts,sho,hoi->ti", shares, v, p["out"]) ** 2)
