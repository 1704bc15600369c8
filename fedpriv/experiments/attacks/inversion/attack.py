"""iDLG on what a server sees of clients with one image each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from fedpriv.attacks.image_scores import mse, psnr, ssim
from fedpriv.attacks.server_views import View, infer_labels, invert_view, local_update, server_view
from fedpriv.experiments.attacks.inversion.views import RATE, Seen, Victims
from fedpriv.privacy import Certificate


class Attacked(NamedTuple):
    """What an attack by iDLG made of one view.

    Attributes:
      name: of the view.
      images: f32[victims, height, width, channels], clipped to [0, 1].
      labels: bool[victims], whether they were inferred.
      cosine: f32[victims], of the angle between what was seen and the client's update, on the coordinates sent.
      seconds: that the attack took, without compilation where another view had the same shape.
      certificate: of one round towards the server.
    """

    images: jax.Array
    labels: np.ndarray
    cosine: np.ndarray
    seconds: float
    name: str = ""
    certificate: Certificate | None = None

    def scores(self, true: jax.Array) -> dict[str, np.ndarray]:
        """Name -> f32[victims]; images of less than 11 pixels have no SSIM."""
        large = min(true.shape[1:3]) >= 11
        found = {"mse": mse(self.images, true), "psnr": psnr(self.images, true)}
        return {
            name: np.asarray(x)
            for name, x in (found | ({"ssim": ssim(self.images, true)} if large else {})).items()
        }


def views(victims: Victims, seen: Seen, seed: int) -> View:
    """What the server that is to attack sees in the first round."""
    state = seen.algorithm.init(victims.params, victims.federation)
    key = jax.random.fold_in(jax.random.key(seed), 1)

    def view(key: jax.Array, state: Any, federation: fp.Federation) -> View:
        return server_view(seen.algorithm, key, state, federation)

    return jax.jit(view)(key, state, victims.federation)


def attacker(victims: Victims, steps: int, seed: int) -> Callable[..., Attacked]:
    """(view, the clients' local steps = 1) -> what iDLG makes of it; compiled once for each number of steps."""
    loss, (height, width, channels) = victims.model.loss, victims.images.shape[1:]
    given = (victims.params, victims.images, victims.labels)
    key = jax.random.fold_in(jax.random.key(seed), 2)

    def attack(view: View, given: tuple, key: jax.Array, local_steps: int) -> tuple[jax.Array, ...]:
        params, images, true_labels = given
        labels = infer_labels(view, params, lambda p: p["params"]["Dense_0"])
        observe = local_update(loss, params, optax.sgd(RATE), local_steps)
        found = invert_view(view, observe, labels, (height, width, channels), key, steps=steps)
        true = jax.vmap(observe)(images, true_labels) * view.sent
        lengths = jnp.linalg.norm(true, axis=1) * jnp.linalg.norm(view.update, axis=1)
        cosine = jnp.sum(true * view.update, 1) / jnp.maximum(lengths, 1e-30)
        return found.image.clip(0, 1), labels == true_labels, cosine

    compiled = jax.jit(attack, static_argnums=3)

    def run(view: View, local_steps: int = 1) -> Attacked:
        began = time.perf_counter()
        # Everyone takes part: slot i is client i.
        bare = view._replace(transcript=None)
        images, labels, cosine = jax.device_get(compiled(bare, given, key, local_steps))
        return Attacked(images, labels, cosine, time.perf_counter() - began)

    return run
