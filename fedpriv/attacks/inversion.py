"""Gradient inversion: the image behind a gradient, an update, or whatever else a server sees of a client.

L. Zhu, Z. Liu, S. Han, "Deep Leakage from Gradients", NeurIPS 2019 (DLG); B. Zhao, K. R. Mopuri, H. Bilen, "iDLG:
Improved Deep Leakage from Gradients", arXiv:2001.02610: the label is read off the last layer first, then a dummy image
is fitted whose gradient is the one observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.array_arguments import check_key, check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.rounds.optimizers import LOSS, ready


class Reconstruction(NamedTuple):
    """What an inversion made of its observations.

    Attributes:
      image: f32[victims, height, width, channels].
      distance: f32[victims], squared, between what the image would show and what was observed.
    """

    image: jax.Array
    distance: jax.Array


def infer_label(last_bias: jax.Array) -> jax.Array:
    """i32[...]: the label of the one example behind a cross-entropy gradient (iDLG, Section 2).

    The gradient by logit z_i is p_i - 1{i = label}: negative for the label alone. The last layer's bias has it as it
    is; noise may make others negative, so that the least is taken.

    Args:
      last_bias: f32[..., classes], gradient by the last layer's bias.
    """
    return jnp.argmin(last_bias, -1).astype(jnp.int32)


@names_user_code
def invert(
    observe: Callable[[jax.Array, jax.Array], PyTree],
    observed: PyTree,
    labels: jax.Array,
    image_shape: tuple[Count, Count, Count],
    key: Key,
    *,
    steps: Count = 300,
    optimizer: optax.GradientTransformationExtraArgs | None = None,
) -> Reconstruction:
    """Fits one image per victim: the least ||observe(image, label) - observed||^2 from a random start.

    So do Zhu et al. 2019, Zhao et al. 2020. All victims side by side. Best of the steps, by that distance.

    Args:
      observe: (image, label) -> what a client with that one example would show; differentiable in the image.
      observed: leaves [victims, ...].
      labels: i32[victims], for example from `infer_label`.
      image_shape: (height, width, channels); images lie about [0, 1].
      key: of the starts, N(0, 1) each pixel as in the paper.
      steps: of the optimiser.
      optimizer: by default L-BFGS with a line search, as in the paper; `optax.adam(0.1)` where gradients are noisy.

    Raises:
      ValueError: a shape or a number of steps that is none.
    """
    require(callable(observe), "observe", observe, "give such as fp.attacks.local_update(...)")
    check_numbers("labels", labels, 1)
    for leaf in jax.tree.leaves(observed) or [observed]:
        check_numbers("observed", leaf)
        fits = leaf.shape[:1] == labels.shape
        require(fits, "observed", observed, f"give leaves [{len(labels)}, ...], as of the labels")
    check_key("key", key)
    image_shape = checked("image_shape", image_shape, tuple[Count, Count, Count])
    steps = checked("steps", steps, Count)
    optimizer = optax.lbfgs() if optimizer is None else optimizer
    optimizer = optax.with_extra_args_support(ready("optimizer", optimizer, LOSS))

    def attack(key: Key, seen: PyTree, label: jax.Array) -> Reconstruction:
        def distance(image: jax.Array) -> jax.Array:
            off = jax.tree.map(jnp.subtract, observe(image, label), seen)
            return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(off)), jnp.float32(0))

        value_and_grad = jax.value_and_grad(distance)

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            image, state, best, least = carry
            value, grad = value_and_grad(image)
            better = value < least
            best, least = jnp.where(better, image, best), jnp.where(better, value, least)
            updates, state = optimizer.update(
                grad, state, image, value=value, grad=grad, value_fn=distance
            )
            return (image + updates, state, best, least), None

        start = jax.random.normal(key, image_shape)
        carry = (start, optimizer.init(start), start, jnp.float32(jnp.inf))
        (last, _, best, least), _ = lax.scan(step, carry, length=steps)
        value = distance(last)
        return Reconstruction(jnp.where(value < least, last, best), jnp.minimum(value, least))

    keys = jax.random.split(key, len(labels))
    return jax.vmap(attack)(keys, observed, labels)
