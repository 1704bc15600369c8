"""PyTorch's weights that have no place in a model, or more than one."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from fedpriv import models

IMAGE, MODEL = (4, 4, 1), models.classifier(models.MLP((5,), 3), (4, 4, 1))
STATE = {
    "a.weight": np.ones((5, 16)), "a.bias": np.ones(5), "b.weight": np.ones((3, 5)), "b.bias": np.ones(3),
}  # fmt: skip
LAYERS = {"a": "Dense_0", "b": "Dense_1"}


class Layers(nn.Module):
    """Convolutions of as many channels out as in, the second one transposed or not, and a head."""

    transposed: bool = False

    @nn.compact
    def __call__(self, x):
        second = nn.ConvTranspose if self.transposed else nn.Conv
        x = second(4, (3, 3), name="second")(nn.Conv(4, (3, 3), name="first")(x[None]))
        return nn.Dense(3, name="head")(x.reshape(-1))


CONVOLVED = {
    "first.weight": np.ones((4, 1, 3, 3)), "first.bias": np.ones(4), "second.weight": np.ones((4, 4, 3, 3)),
    "second.bias": np.ones(4), "head.weight": np.ones((3, 64)), "head.bias": np.ones(3),
}  # fmt: skip


def given(model=MODEL, state=STATE, layers=LAYERS, without=(), **options):
    """The parameters of a state in which some entries differ, or are left out."""
    if isinstance(state, dict):
        state = {name: array for name, array in state.items() if name not in without}
    return models.pytorch_weights(model, state, layers, **options)


def changed(**entries):
    return partial(given, state=STATE | {name.replace("__", "."): a for name, a in entries.items()})


def convolved(transposed=False, **options):
    model = models.classifier(Layers(transposed), np.zeros(IMAGE, np.float32))
    return given(model, CONVOLVED, None, **options)


class Flattened(nnx.Module):
    """Of nnx: a convolution, and a head that reads all its pixels."""

    def __init__(self, rngs):
        self.conv, self.head = nnx.Conv(1, 4, (3, 3), rngs=rngs), nnx.Linear(64, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.conv(x[None]).reshape(-1))


def of_nnx(*order):
    """Its entries sorted, as safetensors has them, or in another order."""
    state = {
        "conv.weight": np.ones((4, 1, 3, 3)),
        "conv.bias": np.ones(4),
        "head.weight": np.ones((3, 64)),
        "head.bias": np.ones(3),
    }
    return given(
        models.from_nnx(lambda rngs: Flattened(rngs)),
        {n: state[n] for n in order or sorted(state)},
        None,
    )


class Normed(nn.Module):
    """A norm over all three axes of an image that is as high and wide as it has channels."""

    @nn.compact
    def __call__(self, x):
        axes = (-3, -2, -1)
        return nn.LayerNorm(reduction_axes=axes, feature_axes=axes, name="norm")(x)[0, 0]


def normed():
    model = models.classifier(Normed(), np.zeros((4, 4, 4), np.float32))
    return given(model, {"norm.weight": np.ones((4, 4, 4)), "norm.bias": np.ones((4, 4, 4))}, None)


def coloured():
    return given(models.classifier(models.MLP((5,), 3), (2, 2, 4)))


def of_seeds():
    return given(rest=jax.tree.map(lambda x: x[None], MODEL.init(jax.random.key(0))))


ROWS = [
    ("a loss for a model", partial(given, MODEL.loss), "model", "function loss"),
    ("a module", partial(given, state=np.ones), "state", ("ones", "state_dict()")),
    ("nothing", partial(given, state={}), "state", "{}"),
    ("a checkpoint around it", partial(given, state={"model": STATE}), "state['model']", "dict"),
    ("integers", changed(a__bias=np.ones(5, np.int8)), "state['a.bias']", "int8[5]"),
    ("NaN", changed(b__bias=np.full(3, np.nan)), "state['b.bias']", "finite"),
    ("batch normalisation", changed(c__running_mean=np.ones(5)), "c.running_mean", "GroupNorm"),
    ("an entry too much", changed(c__weight=np.ones(5)), "state", ("c.weight", "Dense_0.bias")),
    ("of a recurrent layer", changed(a__weight_ih_l0=np.ones(5)), "state", "a.weight_ih_l0"),
    ("no layers", partial(given, layers=None), "state", ("a.weight", "layers=")),
    ("a number for layers", partial(given, layers=3), "layers", "3"),
    ("a number for a layer", partial(given, layers={"a": 3}), "layers", "{'a': 3}"),
    ("a layer of no entry", partial(given, layers=LAYERS | {"c": "Dense_2"}), "layers", "'c'"),
    (
        "two for one",
        partial(given, layers={"a": "Dense_0", "b": "Dense_0"}),
        "state",
        ("a.weight", "b.weight"),
    ),
    ("an entry too few", partial(given, without=["b.bias"]), "state", ("Dense_1.bias", "rest=")),
    (
        "another shape",
        changed(b__weight=np.ones((5, 3))),
        "state",
        ("b.weight", "[5, 3]", "Dense_1.kernel"),
    ),
    ("another bias", changed(b__bias=np.ones(4)), "state", ("b.bias", "[4]")),
    ("an image flattened", convolved, "flattened", ("'head': N", "such as 4,")),
    ("an image flattened in nnx", of_nnx, "flattened", ("'head': N", "such as 4,")),
    (
        "and its head first",
        partial(of_nnx, "head.weight", "head.bias", "conv.weight", "conv.bias"),
        "flattened",
        "'head': N",
    ),
    ("a norm over three axes", normed, "state", ("norm.weight", "[4, 4, 4]")),
    ("colours flattened", coloured, "flattened", ("'a': N", "such as 4,")),
    (
        "flattened, of no divisor",
        partial(convolved, flattened={"head": 7}),
        "flattened['head']",
        "7",
    ),
    ("flattened, of no Linear", partial(convolved, flattened={"first": 4}), "flattened", "'first'"),
    ("flattened, no channels", partial(convolved, flattened={"head": 0}), "flattened['head']", "0"),
    ("flattened, a layer", partial(given, flattened="a"), "flattened", "'a'"),
    (
        "a transposed convolution",
        partial(convolved, True, flattened={"head": 4}),
        "state",
        "second.weight",
    ),
    ("a rest of seeds", of_seeds, "rest", "an axis of seeds"),
    ("a rest of another model", partial(given, rest={"w": jnp.ones(3)}), "rest", "Dense_0.bias"),
]
