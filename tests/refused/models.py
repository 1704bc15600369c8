"""Models: networks of every library, of tokens and prompts, in bfloat16, their parameters and inputs."""

from functools import cache, partial

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

IMAGE = models.classifier(models.LogisticRegression(3), (2, 2, 1))
TOKENS, WORDLESS = Transformer(11, width=8, heads=2, layers=2), {"text": np.zeros(8, int)}
KERNEL = {"kernel": np.zeros((4, 3), np.float32)}
LAYER = {**KERNEL, "bias": np.zeros(3, np.float32)}
PARAMS = {"params": {"Dense_0": LAYER}}
SEEDS = jax.tree.map(lambda leaf: leaf[None], PARAMS)
OTHER = {"params": {"Dense_0": {"kernel": np.zeros((5, 3)), "bias": np.zeros(3)}}}
SHORT = {"params": {"Dense_0": KERNEL}}
IMAGES, WIDE = np.zeros((5, 2, 2, 1), np.uint8), np.zeros((5, 3, 2, 1), np.uint8)


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
        self.calls = nnx.Variable(jnp.zeros(()))


class Means(nn.Module):
    """Embeddings, their mean, and a head."""

    @nn.compact
    def __call__(self, text):
        return nn.Dense(7)(nn.Embed(7, 4, name="tokens")(text.astype(jnp.int32)).mean(0))


def of_linen():
    model = models.classifier(Normed(), np.zeros(4, np.float32))
    return jax.eval_shape(model.init, jax.random.key(0))


def made():
    return models.from_nnx(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))


def prompted(*given):
    """The start of the network of next characters with that prompt."""
    model = models.next_character(models.Prompted(Means(), *given))
    return jax.eval_shape(model.init, jax.random.key(0))


def closed_form(loss):
    return partial(fp.per_example, loss, closed_form=True)


@cache
def half():
    return models.in_bfloat16(IMAGE)


def odd_layers():
    gradients = fp.per_example(IMAGE.loss, closed_form=True)
    batch = {"image": np.zeros((1, 2, 2, 1), np.float32), "label": np.zeros(1, np.int32)}
    return gradients({"params": {"Conv_0": LAYER}}, batch)


def fed_sgd():
    return fp.fed_sgd(IMAGE, sampler=fp.everyone(3), learning_rate=0.1)


def even():
    return conv_same(np.zeros((1, 5, 5, 2)), np.zeros((2, 3, 2, 4)))


BARE = models.Model(None, None, None)
ELSEWHERE = models.classifier(models.LogisticRegression(4), (3, 1, 1), inputs="x")
CONVOLVED = models.classifier(models.CNN((), (), 4), (3, 1, 1))
NO_NORM, OF_SEEDS = (
    ("batch normalisation", "GroupNorm"),
    ("an axis of seeds", "history.params(seed"),
)
ROWS = [
    ("batch normalisation of linen", of_linen, "module", NO_NORM),
    ("batch normalisation of nnx", lambda: models.from_nnx(NormedNnx), "module", NO_NORM),
    ("a module that is made", made, "make", "Linear"),
    ("what makes no module", lambda: models.from_nnx(lambda rngs: 3), "make", "3"),
    ("what takes no rngs", lambda: models.from_nnx(lambda: 0), "make", "()"),
    ("state of nnx", lambda: models.from_nnx(lambda rngs: Counting(rngs)), "module", "Variable"),
    ("an even kernel", even, "w", "(2, 3)"),
    ("a number for a network", lambda: next_token(3, 8), "network", "3"),
    ("a model without outputs", lambda: next_token(BARE), "network", "Model"),
    ("no length", lambda: next_token(TOKENS), "length", "None"),
    ("a length of a model", lambda: next_token(next_token(TOKENS, 8), 8), "length", "8"),
    ("an odd width", lambda: Transformer(11, 6, 2, 1), "width", "6"),
    (
        "tokens without labels",
        lambda: next_token(TOKENS, 8).loss({}, WORDLESS),
        "example",
        '"label"',
        ExampleError,
    ),
    ("a prompt of another layer", lambda: prompted(2, 4), "embedding", "'Embed_0'"),
    ("a prompt of another width", lambda: prompted(2, 5, "tokens"), "width", "5"),
    ("bfloat16 twice", lambda: models.in_bfloat16(half()), "model", "'bfloat16'"),
    ("a loss for a model", lambda: models.in_bfloat16(IMAGE.loss), "model", "function loss"),
    ("bfloat16 in closed form", lambda: closed_form(half().loss)(), "closed_form", "True"),
    ("any loss in closed form", closed_form(squared), "closed_form", "True"),
    ("convolutions in closed form", closed_form(CONVOLVED.loss), "closed_form", "True"),
    ("other inputs in closed form", closed_form(ELSEWHERE.loss), "closed_form", "True"),
    ("other layers in closed form", odd_layers, "layers", "Conv_0"),
    ("parameters of all seeds", partial(IMAGE.predict, SEEDS, IMAGES), "params", OF_SEEDS),
    ("those of another shape", partial(IMAGE.predict, OTHER, IMAGES), "params", "[5, 3]"),
    ("those without a leaf", partial(IMAGE.predict, SHORT, IMAGES), "params", "Dense_0.bias"),
    ("wide images", partial(IMAGE.predict, PARAMS, WIDE), "image", "[3, 2, 1]", ExampleError),
    ("gradients of records of a model", lambda: fp.per_example(IMAGE), "loss", "Model"),
    ("gradients of a model", lambda: fp.mean_grad(IMAGE), "loss", "Model"),
    ("FedSGD of a model", fed_sgd, "loss", "Model"),
    ("text for a loss", lambda: fp.mean_grad("loss"), "loss", "'loss'"),
]
