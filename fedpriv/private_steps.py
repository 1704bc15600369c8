"""The private local steps of a client: K noisy gradients of clipped records, and what they release."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv import probe
from fedpriv.cohort import Sampler, Shard
from fedpriv.dynamic import Dynamic
from fedpriv.local import Schedule, check_schedule
from fedpriv.mechanisms import Mechanism
from fedpriv.per_example import Gradients, MedianClipping, private_mean
from fedpriv.privacy import VIEWS, Everyone, FixedSize, Release, WithReplacement
from fedpriv.types import Key, Params
from fedpriv.vectors import dimension, flatten

RecordMechanism: TypeAlias = Mechanism | MedianClipping | Dynamic


class LocalSteps(NamedTuple):
    """DP-SGD on a client's records, or any other optimiser of optax on noisy gradients.

    Formal guarantees: each step's sum is released by `mechanism`, of a multiplier `multipliers` says, for a unit that
    becomes zero; half of it for one that is replaced. A record is bounded for replacement where `records` draws exact
    subsets, for addition and removal where it draws by Poisson, and for zero-out where it takes all or draws with
    replacement, which may draw one record alone; a whole client always for zero-out.

    Attributes:
      gradients: of single records, `per_example(loss)` or a closed form.
      records: draws a step's records among a client's R; every client has to hold exactly R. Its expected size is the
        lot size L (s R), which a step's sum is divided by.
      steps: K.
      optimizer: round -> what takes the noisy gradients; its state (momentum) starts afresh in every round.
      mechanism: what bounds a record's gradient and perturbs the sum.
      unit: what is protected.
      weight_decay: times y, added to the noisy gradients: l2 regularisation that is not clipped.
      linear: whether the optimiser's first step is a fixed multiple of the gradient, as SGD's is and Adam's is not:
        only then do sums of clients' single steps hide one of them behind the noise of all.
    """

    gradients: Gradients
    records: Sampler
    steps: int
    optimizer: Schedule
    mechanism: RecordMechanism
    unit: Literal["record", "client"] = "record"
    weight_decay: float = 0.0
    linear: bool = False

    def run(
        self,
        key: Key,
        x: Params,
        shard: Shard,
        correction: Params | None = None,
        *,
        t: jax.Array | int,
        moving: jax.Array | bool = True,
    ) -> tuple[Params, jax.Array, jax.Array]:
        """K steps from x along the noisy gradients plus `correction`; where not `moving`, all at x.

        Args:
          t: round, for optimisers and mechanisms that follow a schedule.

        Returns:
          (y_K, the mean of the K noisy gradients f32[d], the user drift: the mean of ||y_k - x||^2).
        """
        mechanism, optimizer = self.mechanism.in_round(t), self.optimizer(jnp.asarray(t))
        gradient = private_mean(self.gradients, mechanism, self.records.expected_size)
        decay = self.weight_decay
        if correction is None:
            correction = jax.tree.map(jnp.zeros_like, x)

        def at(y: Params) -> Params:
            return jax.tree.map(lambda y, x: jnp.where(moving, y, x), y, x)

        def step(k: jax.Array, carry: tuple) -> tuple:
            y, state, total, drift = carry
            draw_key, noise_key = jax.random.split(jax.random.fold_in(key, k))
            drawn = self.records.draw(draw_key)
            batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), shard.examples)
            mask, canaries = probe.records(drawn.ids, drawn.mask, mechanism, x)
            h = gradient(noise_key, at(y), batch, mask)
            if canaries is not None:
                lot = self.records.expected_size
                h = jax.tree.map(lambda h, u: h + u / lot, h, canaries)
            if decay:
                h = jax.tree.map(lambda h, y: h + decay * y, h, at(y))
            # The barrier keeps constants from being folded across it, so that a correction of 0 changes no bit.
            direction = lax.optimization_barrier(jax.tree.map(jnp.add, h, correction))
            updates, state = optimizer.update(direction, state, y)
            y = optax.apply_updates(y, updates)
            moved = jax.tree.map(jnp.subtract, at(y), x)
            return y, state, total + flatten(h), drift + optax.tree.norm(moved, squared=True)

        start = (x, optimizer.init(x), jnp.zeros(dimension(x)), jnp.zeros(()))
        y, _, total, drift = lax.fori_loop(0, self.steps, step, start)
        return at(y), total / self.steps, drift / self.steps

    def multipliers(self, rounds: int) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier of a step) of each part of a run, for a unit that becomes zero."""
        accounting, most = self.records.accounting, 1
        if self.unit == "client" or isinstance(accounting, WithReplacement):
            most = (
                accounting.most
            )  # a client's records together, or one record as often as it is drawn
        return tuple((n, m / most) for n, m in self.mechanism.stages(rounds))

    def releases(
        self, sampler: Sampler, first: Sampler | None = None, *, summed: bool = False
    ) -> Callable[[int], tuple[Release, ...]]:
        """`Algorithm.releases`: every view sees the K noisy gradients of each round that its client takes part in.

        The noise of others hides nothing of the steps before the last, which are seen through later ones, and
        control variates carry it over rounds; so each view is taken to see the noisy gradients themselves. Only
        for one step without control variates (`summed`) does a third party, or a server that sees sums, see no
        more than the cohort's sum, with the noise of all its members. A whole client is in each of its own
        steps: no sampling of records hides it.

        Args:
          first: the sampler of the first round, if it is another one.
        """
        records = self.records.accounting
        if self.unit == "client":
            records = Everyone(self.records.accounting.population)
        fixed = isinstance(sampler.accounting, FixedSize | Everyone)

        def release(view: str, sampler: Sampler, begun: int, steps: int, own: float) -> Release:
            used = self.mechanism.in_round(begun)
            shared = summed and fixed and view != "server" and self.mechanism.noise == "gaussian"
            return Release(
                view,
                self.unit,
                own * math.sqrt(sampler.expected_size) if shared else own,
                records,
                steps,
                noise=self.mechanism.noise,
                in_shares=shared,
                repeats=self.steps,
                participation=sampler.accounting,
                reason="" if own > 0 else self.mechanism.reason,
                mechanism=used if isinstance(used, Mechanism) else None,
            )

        def releases(rounds: int) -> tuple[Release, ...]:
            found = []
            for view in VIEWS:
                begun, opening = 0, min(rounds, 1) if first is not None else 0
                for steps, own in self.multipliers(rounds):
                    opened = min(opening, steps)
                    if first is not None:
                        found.append(release(view, first, begun, opened, own))
                    found.append(release(view, sampler, begun, steps - opened, own))
                    opening -= opened
                    begun += steps
            return tuple(r for r in found if r.steps) or tuple(found)

        return releases

    def check(self) -> None:
        """Raises ValueError naming the field, its value and the remedy."""
        check_schedule(self.optimizer)
        if self.steps < 1:
            raise ValueError(f"steps: {self.steps} is not at least 1")
        if self.unit not in ("record", "client"):
            raise ValueError(f"unit: {self.unit!r} is neither 'record' nor 'client'")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: {self.weight_decay} is not 0 or more")
