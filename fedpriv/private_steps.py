"""The private local steps of a client: K noisy gradients of clipped records, and what they release."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.codecs import dimension, flatten
from fedpriv.cohort import Sampler, Shard
from fedpriv.per_example import ClipNorm, Gradients, check_clip, private_mean
from fedpriv.privacy import Poisson
from fedpriv.types import Example, Key, Params


class LocalSteps(NamedTuple):
    """The private local steps of a client, the same for DP-SCAFFOLD and DP-FedAvg.

    Formal guarantees: for a fixed C and in exact arithmetic, each step's sum is a Gaussian mechanism of `multiplier()`
    for a unit that becomes zero, half of it for one that is replaced. A record is bounded for replacement where
    `records` draws exact subsets, for addition and removal where it draws by Poisson, and for zero-out where it takes
    all; a whole client always for zero-out.

    Attributes:
      gradients: of single records, `per_example(loss)` or a closed form.
      records: draws a step's records among a client's R; every client has to hold exactly R.
      steps: K.
      learning_rate: eta_l; the paper's is eta_0 / (s K).
      clip_norm: C, the bound on a record's gradient; "median" is the paper's heuristic, which is not private.
      noise_multiplier: sigma_g, relative to S = 2 C / (s R), the distance of a replaced record.
      unit: what is protected; for a "client" the paper's S is 2 C / s (end of Section 3.3), 1 / s times the distance of
        a replaced client.
      tensors: above 1, the number of the model's parameter tensors, each clipped to C (or its own median) and perturbed
        with sigma_g by itself, as the authors' code does; all together that is a multiplier of sigma_g / sqrt(tensors).
      weight_decay: times y, added to the noisy gradients: l2 regularisation that is not clipped, as in the authors'
        code, instead of one in the loss.
    """

    gradients: Gradients
    records: Sampler
    steps: int
    learning_rate: float
    clip_norm: ClipNorm = math.inf
    noise_multiplier: float = 0.0
    unit: Literal["record", "client"] = "record"
    tensors: int = 1
    weight_decay: float = 0.0

    @property
    def gradient(self) -> Callable[[Key, Params, Example, jax.Array], Params]:
        """(key, y, batch, mask) -> H~, lines 10-13."""
        records = self.records.accounting.population if self.unit == "client" else 1
        return private_mean(
            self.gradients,
            self.clip_norm,
            self.noise_multiplier * records,
            self.records.expected_size,
            per_tensor=self.tensors > 1,
        )

    def run(
        self, key: Key, x: Params, shard: Shard, correction: Params, moving: jax.Array | bool
    ) -> tuple[Params, jax.Array, jax.Array]:
        """K steps from x along the noisy gradients plus `correction` (eq. 1); where not `moving`, all at x.

        Returns:
          (y_K, the mean of the K noisy gradients f32[d], the user drift: the mean of ||y_k - x||^2, Appendix C).
        """
        gradient, decay = self.gradient, self.weight_decay
        rate = self.learning_rate * jnp.float32(moving)

        def step(k: jax.Array, carry: tuple) -> tuple:
            y, total, drift = carry
            draw_key, noise_key = jax.random.split(jax.random.fold_in(key, k))
            drawn = self.records.draw(draw_key)  # line 9
            batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), shard.examples)
            h = gradient(noise_key, y, batch, drawn.mask)  # lines 10-13
            if decay:
                h = jax.tree.map(lambda h, y: h + decay * y, h, y)
            y = jax.tree.map(lambda y, h, c: y - rate * (h + c), y, h, correction)  # line 14
            moved = jax.tree.map(jnp.subtract, y, x)
            return y, total + flatten(h), drift + optax.tree.norm(moved, squared=True)

        start = (x, jnp.zeros(dimension(x)), jnp.zeros(()))
        y, total, drift = lax.fori_loop(0, self.steps, step, start)
        return y, total / self.steps, drift / self.steps

    def multiplier(self) -> tuple[float, str]:
        """Of a step's noise, relative to a unit whose contribution becomes zero; why, if it is 0."""
        if self.noise_multiplier == 0:
            return 0.0, "no noise is added"
        if self.clip_norm == "median":
            return 0.0, "the clip norm is the median of private gradients' norms"
        multiplier = 2 * self.noise_multiplier / math.sqrt(self.tensors)
        if self.unit == "client":  # its records together move the sum by one C each
            population, most = self.records.accounting.population, self.records.slots
            if not isinstance(self.records.accounting, Poisson):
                most = round(self.records.expected_size)  # the other slots are masked
            multiplier *= population / most
        return multiplier, ""

    def check(self) -> None:
        """Raises ValueError naming the field, its value and the remedy."""
        if self.steps < 1:
            raise ValueError(f"steps: {self.steps} is not at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: {self.learning_rate} is not positive")
        if self.unit not in ("record", "client"):
            raise ValueError(f"unit: {self.unit!r} is neither 'record' nor 'client'")
        if self.tensors < 1:
            raise ValueError(f"tensors: {self.tensors} is not at least 1")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: {self.weight_decay} is not 0 or more")
        check_clip(self.clip_norm, self.noise_multiplier)
