"""Models: networks of every library, of tokens and prompts, in bfloat16, their parameters and inputs."""

from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from small import squared

import fedpriv as fp
from fedpriv import models
from fedpriv.models import Transformer, next_token
from fedpriv.models.conv import conv_same
from fedpriv.models.example_checks import ExampleError
from refused.row import Refusal

KEY = jax.random.key(0)
IMAGE = models.classifier(models.LogisticRegression(3), (2, 2, 1))
TOKENS = Transformer(11, width=8, heads=2, layers=2)
KERNEL = {"kernel": np.zeros((4, 3), np.float32)}
PARAMS = {"params": {"Dense_0": {**KERNEL, "bias": np.zeros(3, np.float32)}}}
OTHER = {"params": {"Dense_0": {"kernel": np.zeros((5, 3)), "bias": np.zeros(3)}}}
IMAGES = np.zeros((5, 2, 2, 1), np.uint8)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x))


class NormedNnx(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(4, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class Counting(nnx.Module):
    def __init__(self, rngs):
        self.dense, self.calls = nnx.Linear(3, 2, rngs=rngs), nnx.Variable(jnp.zeros(()))


class Means(nn.Module):
    """Embeddings, their mean, and a head."""

    @nn.compact
    def __call__(self, text):
        return nn.Dense(7)(nn.Embed(7, 4, name="tokens")(text.astype(jnp.int32)).mean(0))


def of_linen():
    model = models.classifier(Normed(), np.zeros(4, np.float32))
    return jax.eval_shape(model.init, KEY)


def prompted(*given):
    """The start of the network of next characters with that prompt."""
    model = models.next_character(models.Prompted(Means(), *given))
    return jax.eval_shape(model.init, KEY)


def closed_form(loss):
    return lambda: fp.per_example(loss, closed_form=True)


@cache
def half():
    return models.in_bfloat16(IMAGE)


def odd_layers():
    gradients = fp.per_example(IMAGE.loss, closed_form=True)
    layer = PARAMS["params"]["Dense_0"]
    batch = {"image": np.zeros((1, 2, 2, 1), np.float32), "label": np.zeros(1, np.int32)}
    return gradients({"params": {"Conv_0": layer}}, batch)


ELSEWHERE = models.classifier(models.LogisticRegression(4), (3, 1, 1), inputs="x")
ROWS = [
    Refusal("batch normalisation of linen", of_linen, "module", "batch norm", remedy="GroupNorm"),
    Refusal(
        "batch normalisation of nnx",
        lambda: models.from_nnx(NormedNnx),
        "module",
        "batch norm",
        remedy="GroupNorm",
    ),
    Refusal(
        "a module that is made",
        lambda: models.from_nnx(nnx.Linear(3, 2, rngs=nnx.Rngs(0))),
        "make:",
        "Linear",
    ),
    Refusal("what makes no module", lambda: models.from_nnx(lambda rngs: 3), "make:", "3"),
    Refusal("what takes no rngs", lambda: models.from_nnx(lambda: 0), "make:", "()"),
    Refusal(
        "other state of nnx",
        lambda: models.from_nnx(lambda rngs: Counting(rngs)),
        "module:",
        "Variable",
    ),
    Refusal(
        "an even kernel",
        lambda: conv_same(jnp.zeros((1, 5, 5, 2)), np.zeros((2, 3, 2, 4))),
        "w:",
        "(2, 3)",
    ),
    Refusal("a number for a network", lambda: next_token(3, 8), "network:", "3"),
    Refusal(
        "a model without outputs",
        lambda: next_token(models.Model(None, None, None)),
        "network:",
        "",
    ),
    Refusal("no length", lambda: next_token(TOKENS), "length:", "None"),
    Refusal("a length of 0", lambda: next_token(TOKENS, 0), "length:", "0"),
    Refusal("a length of a model", lambda: next_token(next_token(TOKENS, 8), 8), "length:", "8"),
    Refusal("an odd width", lambda: Transformer(11, 6, 2, 1), "width:", "6"),
    Refusal("a width of 0", lambda: Transformer(11, 0, 2, 1), "width:", "0"),
    Refusal(
        "tokens without labels",
        lambda: next_token(TOKENS, 8).loss({}, {"text": np.zeros(8, int)}),
        "label",
        "",
        ExampleError,
    ),
    Refusal("a prompt of no vector", lambda: models.Prompted(Means(), 0, 4), "vectors:", "0"),
    Refusal("a prompt of another layer", lambda: prompted(2, 4), "embedding:", "'Embed_0'"),
    Refusal("a prompt of another width", lambda: prompted(2, 5, "tokens"), "width:", "5"),
    Refusal("bfloat16 twice", lambda: models.in_bfloat16(half()), "model:", "'bfloat16'"),
    Refusal("a loss for a model", lambda: models.in_bfloat16(IMAGE.loss), "model:", ""),
    Refusal("the closed form in bfloat16", closed_form(half().loss), "closed_form:", "True"),
    Refusal("the closed form of any loss", closed_form(squared), "closed_form:", "True"),
    Refusal(
        "the closed form of convolutions",
        closed_form(models.classifier(models.CNN((), (), 4), (3, 1, 1)).loss),
        "closed_form:",
        "True",
    ),
    Refusal("the closed form of other inputs", closed_form(ELSEWHERE.loss), "closed_form:", "True"),
    Refusal("the closed form of other layers", odd_layers, "layers", "Conv_0"),
    Refusal(
        "parameters of all seeds",
        lambda: IMAGE.predict(jax.tree.map(lambda leaf: leaf[None], PARAMS), IMAGES),
        "params:",
        "an axis of seeds",
        remedy="history.params(seed",
    ),
    Refusal(
        "parameters of another shape", lambda: IMAGE.predict(OTHER, IMAGES), "params:", "[5, 3]"
    ),
    Refusal(
        "parameters without a leaf",
        lambda: IMAGE.predict({"params": {"Dense_0": KERNEL}}, IMAGES),
        "params:",
        "Dense_0.bias",
    ),
    Refusal(
        "images of another shape",
        lambda: IMAGE.predict(PARAMS, np.zeros((5, 3, 2, 1), np.uint8)),
        "image:",
        "[3, 2, 1]",
        ExampleError,
    ),
    *(
        Refusal(f"{name} of a model", lambda make=make: make(IMAGE), "loss:", "Model")
        for name, make in {
            "gradients of records": fp.per_example,
            "gradients": fp.mean_grad,
            "FedSGD": lambda loss: fp.fed_sgd(loss, sampler=fp.everyone(3), learning_rate=0.1),
        }.items()
    ),
    Refusal("text for a loss", lambda: fp.mean_grad("loss"), "loss:", "'loss'"),
]
