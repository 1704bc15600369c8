"""SCAFFOLD and DP-SCAFFOLD, and DP-FedAvg with record-level privacy.

M. Noble, A. Bellet, A. Dieuleveut, "Differentially Private Federated Learning on Heterogeneous Data", AISTATS 2022,
arXiv:2111.09278; equation and line numbers are those of its Algorithm 1 (DP-SCAFFOLD) and Algorithm 2 (DP-FedAvg).
SCAFFOLD: S. P. Karimireddy et al., ICML 2020, arXiv:1910.06378.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.algorithms._shared import measured, starting_from
from fedpriv.codecs import Wire, dimension, flatten, unflatten
from fedpriv.cohort import Sampler, Shard, for_each_client, put, take
from fedpriv.federation import Federation
from fedpriv.per_example import ClipNorm, Gradients, private_mean
from fedpriv.privacy import VIEWS, Claim, Everyone, FixedSize, Release, dp_scaffold_claim
from fedpriv.types import Algorithm, Key, Metrics, ModelState, Params


class ScaffoldState(NamedTuple):
    """Model and control variates.

    Attributes:
      params: x.
      round: i32[], rounds done, those of the warm start included.
      control: f32[d], the server's c.
      controls: f32[clients, d], the clients' c_i.
    """

    params: Params
    round: jax.Array
    control: jax.Array
    controls: jax.Array


class LocalSteps(NamedTuple):
    """The private local steps of a client, the same for DP-SCAFFOLD and DP-FedAvg.

    Attributes:
      gradients: of single records, `per_example(loss)` or a closed form.
      records: draws a step's records among a client's R; every client has to hold exactly R.
      steps: K.
      learning_rate: eta_l; the paper's is eta_0 / (s K).
      clip_norm: C, the bound on a record's gradient; "median" is the paper's heuristic, which is not private.
      noise_multiplier: sigma_g, relative to the distance 2 C / (s R) of a replaced record.
    """

    gradients: Gradients
    records: Sampler
    steps: int
    learning_rate: float
    clip_norm: ClipNorm = math.inf
    noise_multiplier: float = 0.0

    def run(
        self, key: Key, x: Params, shard: Shard, correction: Params, moving: jax.Array | bool
    ) -> tuple[Params, jax.Array]:
        """K steps from x along the noisy gradients plus `correction` (eq. 1); where not `moving`, all at x.

        Returns:
          (y_K, the mean of the K noisy gradients f32[d]).
        """
        gradient = private_mean(
            self.gradients, self.clip_norm, self.noise_multiplier, self.records.expected_size
        )
        rate = self.learning_rate * jnp.float32(moving)

        def step(k: jax.Array, carry: tuple) -> tuple:
            y, total = carry
            draw_key, noise_key = jax.random.split(jax.random.fold_in(key, k))
            drawn = self.records.draw(draw_key)  # line 9
            batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), shard.examples)
            h = gradient(noise_key, y, batch, drawn.mask)  # lines 10-13
            y = jax.tree.map(lambda y, h, c: y - rate * (h + c), y, h, correction)  # line 14
            return y, total + flatten(h)

        start = (x, jnp.zeros(dimension(x)))
        y, total = lax.fori_loop(0, self.steps, step, start)
        return y, total / self.steps


def dp_scaffold(
    local: LocalSteps, *, sampler: Sampler, global_rate: float = 1.0, warm_start: int = 0
) -> Algorithm:
    """DP-SCAFFOLD(-warm); SCAFFOLD with an infinite clip norm and no noise.

    Args:
      sampler: draws the cohort of clients.
      global_rate: eta_g.
      warm_start: rounds that set the control variates at the initial model, which stays as it is; about 4 / l for all
        clients to take part. They count as rounds, in uplink (one message each) and in privacy.

    Raises:
      ValueError: warm_start below 0, or what `LocalSteps` holds is out of range; at `init`, clients of another size.
    """
    _check(local)
    if warm_start < 0:
        raise ValueError(f"warm_start: {warm_start} is not 0 or more")

    def init(params: Params, federation: Federation) -> ScaffoldState:
        start = _starting(local, sampler, params, federation)
        d = dimension(params)
        return ScaffoldState(*start, jnp.zeros(d), jnp.zeros((federation.num_clients, d)))

    def round(
        key: Key, state: ScaffoldState, federation: Federation
    ) -> tuple[ScaffoldState, Metrics]:
        x, t, c, controls = state
        cohort_key, local_key = jax.random.split(key)
        cohort = sampler.draw(cohort_key)  # line 3
        moving = t >= warm_start

        def client(key: Key, shard: Shard, c_i: jax.Array) -> tuple:
            y, mean = local.run(key, x, shard, unflatten(c - c_i, x), moving)
            dy = jax.tree.map(jnp.subtract, y, x)
            # Line 16: c_i - c + (x - y_K) / (K eta_l) is the mean of the K noisy gradients.
            return (dy, mean - c_i), (mean, jnp.linalg.norm(mean - c_i))

        total, (new, drift) = for_each_client(
            client, local_key, cohort, federation, take(controls, cohort)
        )
        dy, dc = jax.tree.map(lambda leaf: leaf / sampler.expected_size, total)
        x = jax.tree.map(lambda x, dy: x + global_rate * dy, x, dy)  # line 19
        share = sampler.expected_size / federation.num_clients  # l
        values = jnp.where(moving, 2, 1) * dimension(x)  # model and control variate
        state = ScaffoldState(x, t + 1, c + share * dc, put(controls, cohort, new))  # line 20
        return state, measured(cohort, Wire(values), drift, "mean_control_change")

    return Algorithm(init, round, _releases(local, sampler, True), _claim(local, sampler))


def record_fed_avg(local: LocalSteps, *, sampler: Sampler, global_rate: float = 1.0) -> Algorithm:
    """DP-FedAvg with record-level privacy (Algorithm 2); DP-FedSGD for one step. DP-SCAFFOLD without control variates.

    Args:
      sampler: draws the cohort of clients.
      global_rate: eta_g.

    Raises:
      ValueError: as `dp_scaffold`.
    """
    _check(local)

    def init(params: Params, federation: Federation) -> ModelState:
        return _starting(local, sampler, params, federation)

    def round(key: Key, state: ModelState, federation: Federation) -> tuple[ModelState, Metrics]:
        x, t = state
        cohort_key, local_key = jax.random.split(key)
        cohort = sampler.draw(cohort_key)
        zero = jax.tree.map(jnp.zeros_like, x)

        def client(key: Key, shard: Shard) -> tuple:
            y, mean = local.run(key, x, shard, zero, True)
            return jax.tree.map(jnp.subtract, y, x), jnp.linalg.norm(mean)

        total, norms = for_each_client(client, local_key, cohort, federation)
        x = jax.tree.map(lambda x, s: x + global_rate * (s / sampler.expected_size), x, total)
        return ModelState(x, t + 1), measured(
            cohort, Wire(dimension(x)), norms, "mean_gradient_norm"
        )

    return Algorithm(init, round, _releases(local, sampler, False), _claim(local, sampler))


def _check(local: LocalSteps) -> None:
    if local.steps < 1:
        raise ValueError(f"steps: {local.steps} is not at least 1")
    if not local.learning_rate > 0:
        raise ValueError(f"learning_rate: {local.learning_rate} is not positive")
    private_mean(local.gradients, local.clip_norm, local.noise_multiplier, 1.0)


def _starting(
    local: LocalSteps, sampler: Sampler, params: Params, federation: Federation
) -> ModelState:
    size = local.records.accounting.population
    sizes = np.asarray(federation.size)
    if (sizes != size).any():
        odd = int(np.argmax(sizes != size))
        raise ValueError(
            f"records: drawn among {size} of each client, but client {odd} holds {sizes[odd]}; give every client {size}"
        )
    return starting_from(sampler)(params, federation)


def _releases(
    local: LocalSteps, sampler: Sampler, controls: bool
) -> Callable[[int], tuple[Release, ...]]:
    """What every view sees of a record: the K noisy gradients of each round that its client takes part in.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and control
    variates carry it over rounds; so each view is taken to see the noisy gradients themselves. Only for one step
    without control variates does a third party, or a server that sees sums, see no more than the cohort's sum, with the
    noise of all its members.
    """
    median = local.clip_norm == "median"
    bare = median or local.noise_multiplier == 0
    reason = "no noise is added"
    if median and local.noise_multiplier > 0:
        reason = "the clip norm is the median of private gradients' norms"
    own = 0.0 if bare else 2 * local.noise_multiplier
    summed = (
        not controls and local.steps == 1 and isinstance(sampler.accounting, FixedSize | Everyone)
    )

    def releases(rounds: int) -> tuple[Release, ...]:
        def release(view: str) -> Release:
            shared = summed and view != "server"
            return Release(
                view,
                "record",
                own * math.sqrt(sampler.slots) if shared else own,
                local.records.accounting,
                rounds,
                in_shares=shared,
                repeats=local.steps,
                participation=sampler.accounting,
                reason=reason if bare else "",
            )

        return tuple(release(view) for view in VIEWS)

    return releases


def _claim(local: LocalSteps, sampler: Sampler) -> Callable[[int, float], Claim | None]:
    """The paper's epsilon towards a third party, which is the same for DP-FedAvg (Claim 4.1)."""
    if local.noise_multiplier == 0:
        return lambda rounds, delta: None

    def claim(rounds: int, delta: float) -> Claim:
        return dp_scaffold_claim(
            local.noise_multiplier,
            round(sampler.expected_size),
            sampler.accounting.rate,
            local.records.accounting.rate,
            local.steps,
            rounds,
            delta,
            median_clip=local.clip_norm == "median",
        )

    return claim
