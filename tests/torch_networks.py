"""Networks in PyTorch and here: entries of the state, and what PyTorch documents that it computes of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy.signal import correlate
from scipy.special import erf, softmax

from fedpriv import models

RNG = np.random.default_rng(0)


class Network(NamedTuple):
    """One network, twice.

    Attributes:
      model: ours.
      inputs: [n, ...] as PyTorch takes them, channels first.
      entries: entry of the state -> its shape.
      layers, options: arguments of `pytorch_weights`.
      documented: (state, one input) -> logits, in float64.
      torch: the package -> the module.
    """

    model: models.Model
    inputs: np.ndarray
    entries: dict[str, tuple[int, ...]]
    layers: dict[str, str] | None
    options: dict[str, Any]
    documented: Callable[[Any, np.ndarray], np.ndarray]
    torch: Callable[[Any], Any]

    @property
    def as_ours(self):
        return np.moveaxis(self.inputs, 1, -1) if self.inputs.ndim > 2 else self.inputs


def linear(state, name, x):
    bias = state.get(f"{name}.bias", 0.0)
    return x @ state[f"{name}.weight"].astype(np.float64).T + bias


def conv(state, name, x, padding, groups=1):
    """Of one input [channels, ...]."""
    w = state[f"{name}.weight"].astype(np.float64)
    x = np.pad(x, [(0, 0), *[(padding, padding)] * (x.ndim - 1)])
    each, out = len(x) // groups, len(w) // groups
    of = [correlate(x[i // out * each :][:each], w[i], "valid", "direct")[0] for i in range(len(w))]
    return np.stack(of) + state[f"{name}.bias"].reshape(-1, *[1] * (x.ndim - 1))


def layer_norm(state, name, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def group_norm(state, name, x, groups):
    """Of one input [channels, height, width]."""
    of = x.reshape(groups, -1)
    of = (of - of.mean(-1, keepdims=True)) / np.sqrt(of.var(-1, keepdims=True) + 1e-5)
    scale, bias = (state[f"{name}.{n}"][:, None, None] for n in ("weight", "bias"))
    return of.reshape(x.shape) * scale + bias


def attention(state, name, x, heads):
    """Of one text [length, width], each position of all."""
    w, b = state[f"{name}.in_proj_weight"].astype(np.float64), state[f"{name}.in_proj_bias"]
    query, key, value = (
        each.reshape(len(x), heads, -1).swapaxes(0, 1) for each in np.split(x @ w.T + b, 3, -1)
    )
    weights = softmax(query @ key.swapaxes(1, 2) / query.shape[-1] ** 0.5, -1)
    return linear(state, f"{name}.out_proj", (weights @ value).swapaxes(0, 1).reshape(x.shape))


def pooled(x):
    c, h, w = x.shape
    return x.reshape(c, h // 2, 2, w // 2, 2).max((2, 4))


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x * (1 + erf(x / 2**0.5)) / 2


def mlp(state, x):
    return linear(state, "3", relu(linear(state, "1", x.reshape(-1))))


def mlp_torch(torch):
    n = torch.nn
    return n.Sequential(n.Flatten(), n.Linear(12, 5), n.ReLU(), n.Linear(5, 3))


MLP = Network(
    models.classifier(models.MLP((5,), 3), np.zeros((4, 3, 1), np.float32)),
    RNG.random((4, 1, 4, 3), np.float32),
    {"1.weight": (5, 12), "1.bias": (5,), "3.weight": (3, 5), "3.bias": (3,)},
    {"1": "Dense_0", "3": "Dense_1"},
    {},
    mlp,
    mlp_torch,
)

LOGISTIC = Network(  # of pixels of three channels
    models.classifier(models.LogisticRegression(3), np.zeros((2, 5, 3), np.float32)),
    RNG.random((4, 3, 2, 5), np.float32),
    {"1.weight": (3, 30), "1.bias": (3,)},
    {"1": "Dense_0"},
    {"flattened": {"1": 3}},
    lambda state, x: linear(state, "1", x.reshape(-1)),
    lambda torch: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(30, 3)),
)


def cnn(state, x):
    for name in ("0", "3"):
        x = relu(pooled(conv(state, name, x, 2)))
    return linear(state, "9", relu(linear(state, "7", x.reshape(-1))))


def cnn_torch(torch):
    n = torch.nn
    return n.Sequential(
        n.Conv2d(3, 4, 5, padding=2), n.MaxPool2d(2), n.ReLU(),
        n.Conv2d(4, 6, 5, padding=2), n.MaxPool2d(2), n.ReLU(),
        n.Flatten(), n.Linear(36, 5), n.ReLU(), n.Linear(5, 3),
    )  # fmt: skip


CNN = Network(
    models.classifier(models.CNN((4, 6), (5,), 3), np.zeros((8, 12, 3), np.float32)),
    RNG.random((2, 3, 8, 12), np.float32),
    {
        "0.weight": (4, 3, 5, 5), "0.bias": (4,), "3.weight": (6, 4, 5, 5), "3.bias": (6,),
        "7.weight": (5, 36), "7.bias": (5,), "9.weight": (3, 5), "9.bias": (3,),
    },
    {"0": "Conv_0", "3": "Conv_1", "7": "Dense_0", "9": "Dense_1"},
    {"flattened": {"7": 6}},
    cnn,
    cnn_torch,
)  # fmt: skip


class Normed(nn.Module):
    """A strided convolution, one in groups, GroupNorm, a mean over pixels, LayerNorm and a head without bias."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3, 3), strides=2, padding=1, name="conv")(x[None])
        x = nn.relu(nn.GroupNorm(4, epsilon=1e-5, name="norm")(x))
        x = nn.relu(nn.Conv(6, (3, 3), padding=1, feature_group_count=2, name="grouped")(x))
        x = nn.LayerNorm(epsilon=1e-5, name="mean_norm")(x[0].mean((0, 1)))
        return nn.Dense(3, use_bias=False, name="head")(x)


def normed_cnn(state, x):
    x = np.stack([row[::2, ::2] for row in conv(state, "conv", x, 1)])
    x = relu(group_norm(state, "norm", x, 4))
    x = relu(conv(state, "grouped", x, 1, groups=2))
    return linear(state, "head", layer_norm(state, "mean_norm", x.mean((1, 2))))


def normed_torch(torch):
    n = torch.nn

    class Module(n.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = n.Conv2d(3, 8, 3, stride=2, padding=1), n.GroupNorm(4, 8)
            self.grouped = n.Conv2d(8, 6, 3, padding=1, groups=2)
            self.mean_norm, self.head = n.LayerNorm(6), n.Linear(6, 3, bias=False)

        def forward(self, x):
            x = self.grouped(self.norm(self.conv(x)).relu()).relu()
            return self.head(self.mean_norm(x.mean((2, 3))))

    return Module()


NORMED = Network(
    models.classifier(Normed(), np.zeros((6, 8, 3), np.float32)),
    RNG.random((2, 3, 6, 8), np.float32),
    {
        "conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "norm.weight": (8,), "norm.bias": (8,),
        "grouped.weight": (6, 4, 3, 3), "grouped.bias": (6,), "mean_norm.weight": (6,),
        "mean_norm.bias": (6,), "head.weight": (3, 6),
    },
    None,
    {},
    normed_cnn,
    normed_torch,
)  # fmt: skip


class Block(nn.Module):
    """Embeddings, positions, a block with layer normalisation first, and a head at the mean."""

    @nn.compact
    def __call__(self, text):
        x = nn.Embed(7, 8, name="tokens")(text) + self.param("positions", nn.zeros, (5, 8))
        y = nn.LayerNorm(epsilon=1e-5, name="norm1")(x)
        x = x + nn.MultiHeadDotProductAttention(2, name="attention")(y)
        y = nn.Dense(16, name="up")(nn.LayerNorm(epsilon=1e-5, name="norm2")(x))
        x = x + nn.Dense(8, name="down")(nn.gelu(y, approximate=False))
        return nn.Dense(3, name="head")(x.mean(0))


def block(state, text):
    x = state["embed.weight"].astype(np.float64)[text] + state["place"]
    x = x + attention(state, "block.self_attn", layer_norm(state, "block.norm1", x), 2)
    y = linear(state, "block.linear1", layer_norm(state, "block.norm2", x))
    x = x + linear(state, "block.linear2", gelu(y))
    return linear(state, "head", x.mean(0))


def block_torch(torch):
    n = torch.nn

    class Module(n.Module):
        def __init__(self):
            super().__init__()
            self.place = n.Parameter(torch.zeros(5, 8))
            self.embed, self.head = n.Embedding(7, 8), n.Linear(8, 3)
            self.block = n.TransformerEncoderLayer(
                8, 2, 16, activation="gelu", batch_first=True, norm_first=True
            )

        def forward(self, text):
            return self.head(self.block(self.embed(text) + self.place).mean(1))

    return Module()


BLOCK = Network(
    models.classifier(Block(), np.zeros(5, np.int32), inputs="text"),
    RNG.integers(0, 7, (3, 5)),
    {
        "place": (5, 8), "embed.weight": (7, 8), "head.weight": (3, 8), "head.bias": (3,),
        "block.self_attn.in_proj_weight": (24, 8), "block.self_attn.in_proj_bias": (24,),
        "block.self_attn.out_proj.weight": (8, 8), "block.self_attn.out_proj.bias": (8,),
        "block.linear1.weight": (16, 8), "block.linear1.bias": (16,),
        "block.linear2.weight": (8, 16), "block.linear2.bias": (8,),
        "block.norm1.weight": (8,), "block.norm1.bias": (8,),
        "block.norm2.weight": (8,), "block.norm2.bias": (8,),
    },
    {
        "place": "positions", "embed": "tokens", "block": "", "block.self_attn": "attention",
        "block.linear1": "up", "block.linear2": "down",
    },
    {},
    block,
    block_torch,
)  # fmt: skip


class Series(nnx.Module):
    """Of nnx: a convolution over time, its mean, a head; names are PyTorch's."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3,), padding=1, rngs=rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.mean(jax.nn.relu(self.conv(x[None]))[0], 0))


def series(state, x):
    return linear(state, "head", relu(conv(state, "conv", x, 1)).mean(1))


def series_torch(torch):
    n = torch.nn

    class Module(n.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = n.Conv1d(3, 4, 3, padding=1), n.Linear(4, 2)

        def forward(self, x):
            return self.head(self.conv(x).relu().mean(2))

    return Module()


SERIES = Network(
    models.from_nnx(lambda rngs: Series(rngs)),
    RNG.random((3, 3, 9), np.float32),
    {"conv.weight": (4, 3, 3), "conv.bias": (4,), "head.weight": (2, 4), "head.bias": (2,)},
    None,
    {},
    series,
    series_torch,
)


class Flat(nn.Module):
    """LayerNorm between what is flattened and the head."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), padding=1, name="conv")(x[None]).reshape(-1)
        return nn.Dense(3, name="head")(nn.LayerNorm(epsilon=1e-5, name="norm")(x))


def flat(state, x):
    return linear(state, "2.1", layer_norm(state, "2.0", conv(state, "0", x, 1).reshape(-1)))


def flat_torch(torch):
    n = torch.nn
    inner = n.Sequential(n.LayerNorm(24), n.Linear(24, 3))
    return n.Sequential(n.Conv2d(2, 4, 3, padding=1), n.Flatten(), inner)


FLAT = Network(
    models.classifier(Flat(), np.zeros((2, 3, 2), np.float32)),
    RNG.random((3, 2, 2, 3), np.float32),
    {
        "0.weight": (4, 2, 3, 3), "0.bias": (4,), "2.0.weight": (24,), "2.0.bias": (24,),
        "2.1.weight": (3, 24), "2.1.bias": (3,),
    },
    {"0": "conv", "2.0": "norm", "2.1": "head"},
    {"flattened": {"2.0": 4, "2.1": 4}},
    flat,
    flat_torch,
)  # fmt: skip


class Volume(nn.Module):
    """A convolution over three axes, RMSNorm and a head at the mean."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3, 3), padding=1, name="conv")(x[None])[0].mean((0, 1, 2)))
        return nn.Dense(3, name="head")(nn.RMSNorm(epsilon=1e-5, name="norm")(x))


def volume(state, x):
    x = relu(conv(state, "conv", x, 1).mean((1, 2, 3)))
    return linear(state, "head", x / np.sqrt((x**2).mean() + 1e-5) * state["norm.weight"])


def volume_torch(torch):
    n = torch.nn

    class Module(n.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = n.Conv3d(2, 4, 3, padding=1), n.RMSNorm(4, eps=1e-5)
            self.head = n.Linear(4, 3)

        def forward(self, x):
            return self.head(self.norm(self.conv(x).mean((2, 3, 4)).relu()))

    return Module()


VOLUME = Network(
    models.classifier(Volume(), np.zeros((3, 4, 5, 2), np.float32), inputs="scan"),
    RNG.random((2, 2, 3, 4, 5), np.float32),
    {
        "conv.weight": (4, 2, 3, 3, 3), "conv.bias": (4,), "norm.weight": (4,),
        "head.weight": (3, 4), "head.bias": (3,),
    },
    None,
    {},
    volume,
    volume_torch,
)  # fmt: skip

NETWORKS = {
    "mlp": MLP,
    "logistic regression of colours": LOGISTIC,
    "cnn": CNN,
    "a norm of what is flattened": FLAT,
    "norms and groups": NORMED,
    "transformer": BLOCK,
    "nnx, one axis": SERIES,
    "three axes": VOLUME,
}
