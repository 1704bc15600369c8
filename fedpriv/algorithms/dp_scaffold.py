"""SCAFFOLD and DP-SCAFFOLD, and DP-FedAvg with record-level privacy.

M. Noble, A. Bellet, A. Dieuleveut, "Differentially Private Federated Learning on Heterogeneous Data", AISTATS 2022,
arXiv:2111.09278; equation and line numbers are those of its Algorithm 1 (DP-SCAFFOLD) and Algorithm 2 (DP-FedAvg).
SCAFFOLD: S. P. Karimireddy et al., ICML 2020, arXiv:1910.06378.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.algorithms._shared import measured, starting_from
from fedpriv.codecs import Wire, dimension, unflatten
from fedpriv.cohort import Sampler, Shard, everyone, for_each_client, put, take
from fedpriv.federation import Federation
from fedpriv.privacy import VIEWS, Claim, Everyone, FixedSize, Poisson, Release, dp_scaffold_claim
from fedpriv.private_steps import LocalSteps
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


def dp_scaffold(
    local: LocalSteps,
    *,
    sampler: Sampler,
    global_rate: float = 1.0,
    warm_start: int = 0,
    everyone_first: bool = False,
) -> Algorithm:
    """DP-SCAFFOLD(-warm); SCAFFOLD with an infinite clip norm and no noise.

    Formal guarantees: every view sees no more of a unit than the K noisy gradients of each round that its client takes
    part in, see `LocalSteps`.

    Args:
      sampler: draws the cohort of clients.
      global_rate: eta_g.
      warm_start: rounds that set the control variates at the initial model, which stays as it is; about 4 / l for all
        clients to take part. They count as rounds, in uplink (one message each) and in privacy.
      everyone_first: in the first round of the warm start everyone takes part, as in the authors' code.

    Raises:
      ValueError: warm_start below 0, everyone_first without a warm start, or what `LocalSteps` holds is out of range;
        at `init`, clients of another size.
    """
    local.check()
    if warm_start < 0:
        raise ValueError(f"warm_start: {warm_start} is not 0 or more")
    if everyone_first and warm_start == 0:
        raise ValueError("everyone_first: there is no warm start; give warm_start at least 1")
    first = everyone(sampler.accounting.population) if everyone_first else None

    def init(params: Params, federation: Federation) -> ScaffoldState:
        start = _starting(local, sampler, params, federation)
        d = dimension(params)
        return ScaffoldState(*start, jnp.zeros(d), jnp.zeros((federation.num_clients, d)))

    def round_with(sampler: Sampler) -> Round:
        def round(
            key: Key, state: ScaffoldState, federation: Federation
        ) -> tuple[ScaffoldState, Metrics]:
            x, t, c, controls = state
            cohort_key, local_key = jax.random.split(key)
            cohort = sampler.draw(cohort_key)  # line 3
            moving = t >= warm_start

            def client(key: Key, shard: Shard, c_i: jax.Array) -> tuple:
                y, mean, drift = local.run(key, x, shard, unflatten(c - c_i, x), moving)
                dy = jax.tree.map(jnp.subtract, y, x)
                # Line 16: c_i - c + (x - y_K) / (K eta_l) is the mean of the K noisy gradients.
                return (dy, mean - c_i), (mean, drift)

            total, (new, drifts) = for_each_client(
                client, local_key, cohort, federation, take(controls, cohort)
            )
            dy, dc = jax.tree.map(lambda leaf: leaf / sampler.expected_size, total)
            x = jax.tree.map(lambda x, dy: x + global_rate * dy, x, dy)  # line 19
            share = sampler.expected_size / federation.num_clients  # l
            values = jnp.where(moving, 2, 1) * dimension(x)  # model and control variate
            state = ScaffoldState(x, t + 1, c + share * dc, put(controls, cohort, new))  # line 20
            return state, measured(cohort, Wire(values), drifts, "user_drift")

        return round

    usual = round_with(sampler)
    round = usual if first is None else _opened_by(round_with(first), usual)
    return Algorithm(init, round, _releases(local, sampler, first), _claim(local, sampler))


Round: TypeAlias = Callable[[Key, ScaffoldState, Federation], tuple[ScaffoldState, Metrics]]


def _opened_by(opening: Round, usual: Round) -> Round:
    """`opening` in the first round, `usual` in all others."""

    def round(
        key: Key, state: ScaffoldState, federation: Federation
    ) -> tuple[ScaffoldState, Metrics]:
        return lax.cond(state.round == 0, opening, usual, key, state, federation)

    return round


def record_fed_avg(local: LocalSteps, *, sampler: Sampler, global_rate: float = 1.0) -> Algorithm:
    """DP-FedAvg by noisy local steps (Algorithm 2); DP-FedSGD for one step. DP-SCAFFOLD without control variates.

    Formal guarantees: as `dp_scaffold`; for one step on cohorts that are not Poisson, third parties and servers behind
    secure aggregation see a record in the cohort's sum only, with the noise of all.

    Args:
      sampler: draws the cohort of clients.
      global_rate: eta_g.

    Raises:
      ValueError: as `dp_scaffold`.
    """
    local.check()

    def init(params: Params, federation: Federation) -> ModelState:
        return _starting(local, sampler, params, federation)

    def round(key: Key, state: ModelState, federation: Federation) -> tuple[ModelState, Metrics]:
        x, t = state
        cohort_key, local_key = jax.random.split(key)
        cohort = sampler.draw(cohort_key)
        zero = jax.tree.map(jnp.zeros_like, x)

        def client(key: Key, shard: Shard) -> tuple:
            y, _, drift = local.run(key, x, shard, zero, True)
            return jax.tree.map(jnp.subtract, y, x), drift

        total, drifts = for_each_client(client, local_key, cohort, federation)
        x = jax.tree.map(lambda x, s: x + global_rate * (s / sampler.expected_size), x, total)
        return ModelState(x, t + 1), measured(cohort, Wire(dimension(x)), drifts, "user_drift")

    summed = local.steps == 1 and local.unit == "record"
    return Algorithm(init, round, _releases(local, sampler, summed=summed), _claim(local, sampler))


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
    tensors = len(jax.tree.leaves(params))
    if local.tensors not in (1, tensors):
        raise ValueError(
            f"tensors: {local.tensors}, but the model has {tensors}; give {tensors} or 1"
        )
    return starting_from(sampler)(params, federation)


def _releases(
    local: LocalSteps, sampler: Sampler, first: Sampler | None = None, *, summed: bool = False
) -> Callable[[int], tuple[Release, ...]]:
    """What every view sees of a unit: the K noisy gradients of each round that its client takes part in.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and control
    variates carry it over rounds; so each view is taken to see the noisy gradients themselves. Only for one step
    without control variates (`summed`) does a third party, or a server that sees sums, see no more than the cohort's
    sum, with the noise of all its members. A whole client is in each of its own steps: no sampling of records hides it.

    Args:
      first: the sampler of the first round, if it is another one.
    """
    own, reason = local.multiplier()
    records: Everyone | FixedSize | Poisson = local.records.accounting
    if local.unit == "client":
        records = Everyone(local.records.accounting.population)
    fixed = isinstance(sampler.accounting, FixedSize | Everyone)

    def releases(rounds: int) -> tuple[Release, ...]:
        def release(view: str, sampler: Sampler, steps: int) -> Release:
            shared = summed and fixed and view != "server"
            return Release(
                view,
                local.unit,
                own * math.sqrt(sampler.expected_size) if shared else own,
                records,
                steps,
                in_shares=shared,
                repeats=local.steps,
                participation=sampler.accounting,
                reason=reason,
            )

        if first is None:
            return tuple(release(view, sampler, rounds) for view in VIEWS)
        begun = min(rounds, 1)
        parts = ((first, begun), (sampler, rounds - begun))
        return tuple(release(view, *part) for view in VIEWS for part in parts)

    return releases


def _claim(local: LocalSteps, sampler: Sampler) -> Callable[[int, float], Claim | None]:
    """The paper's epsilon towards a third party, which is the same for DP-FedAvg (Claim 4.1)."""
    if local.noise_multiplier == 0 or local.unit == "client":
        return lambda rounds, delta: None  # of whole clients the paper prints no number
    unlike = (
        (
            local.tensors > 1,
            "Every tensor has noise of sigma_g by itself, which the formula ignores.",
        ),
        (
            isinstance(local.records.accounting, Poisson),
            "The formula is for records without replacement.",
        ),
    )

    def claim(rounds: int, delta: float) -> Claim:
        found = dp_scaffold_claim(
            local.noise_multiplier,
            round(sampler.expected_size),
            sampler.accounting.rate,
            local.records.accounting.rate,
            local.steps,
            rounds,
            delta,
            median_clip=local.clip_norm == "median",
        )
        reasons = tuple(text for differs, text in unlike if differs)
        return replace(found, sound=False, reasons=(*reasons, *found.reasons)) if reasons else found

    return claim
