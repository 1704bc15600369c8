"""SCAFFOLD and DP-SCAFFOLD, with record-level privacy.

M. Noble, A. Bellet, A. Dieuleveut, "Differentially Private Federated Learning on Heterogeneous Data", AISTATS 2022,
arXiv:2111.09278; line numbers are those of its Algorithm 1. Its Algorithm 2, DP-FedAvg, is `dp_sgd`.
SCAFFOLD: S. P. Karimireddy et al., ICML 2020, arXiv:1910.06378.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.compression.codecs import UNCODED, Codec, Wire
from fedpriv.core import random_streams
from fedpriv.core.arguments import CountOrZero, checked
from fedpriv.core.trees import dimension, unflatten
from fedpriv.core.types import Key, Metrics, Params
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.mechanisms.per_example import MedianClipping
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.privacy import Claim
from fedpriv.privacy.claims import dp_scaffold_claim
from fedpriv.rounds.algorithm import Algorithm, claim_if_sampled, unclaimed
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_dp_sgd import LocalSteps, check_steps
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.samplers import Opening, Sampler, everyone
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.server_step import MEAN, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


class ScaffoldState(NamedTuple):
    """Model and control variates.

    Attributes:
      params: x.
      round: i32[], rounds done, those of the warm start included.
      server: the server's optimiser's.
      control: f32[d], the server's c.
      controls: f32[clients, d], the clients' c_i.
    """

    params: Params
    round: jax.Array
    server: optax.OptState
    control: jax.Array
    controls: jax.Array


def dp_scaffold(
    local: LocalSteps,
    *,
    sampler: Sampler,
    warm_start: CountOrZero = 0,
    everyone_first: bool = False,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """DP-SCAFFOLD(-warm), Algorithm 1; with an infinite clip norm and no noise it is SCAFFOLD.

    The paper's sigma_g is noise over the sensitivity to a replaced record, so its local steps (lines 8-15) have the
    mechanism `gaussian(C, 2 sigma_g)`, and SGD of rate eta_l = eta_0 / (s K).

    Formal guarantees: of a unit every view sees at most the K noisy gradients of each round in which its client takes
    part, see `LocalSteps`.

    Args:
      sampler: draws the cohort of clients.
      warm_start: number of rounds that set the control variates and leave the initial model unchanged; about 4 / l are
        enough for all clients to take part. They count as rounds, for uplink (one message each) and for privacy.
      everyone_first: everyone takes part in the first round of the warm start, as in the authors' code.
      codec: codes each of the two messages, see `dp_sgd`; clients keep the control variates that the server decodes.
      server: optimiser of the model alone, after the warm start, see `fed_avg`; the paper's is `optax.sgd(eta_g)`.
      weighting: as `dp_sgd`, of both messages, so that c is the weighted mean of the c_i.

    Raises:
      ValueError: `warm_start` below 0, `everyone_first` without a warm start, cohorts drawn with replacement, or a
        field of `LocalSteps` out of range.
    """
    check_steps(local)
    check_parts(sampler=sampler, codec=codec, server=server, weighting=weighting)
    warm_start = checked("warm_start", warm_start, CountOrZero)
    everyone_first = checked("everyone_first", everyone_first, bool)
    if sampler.accounting.of_a_round.repeats > 1:
        raise ValueError(
            "sampler: a client drawn twice counts twice in c, but has one c_i; draw without replacement"
        )
    if everyone_first and warm_start == 0:
        raise ValueError("everyone_first: there is no warm start; give warm_start at least 1")
    cohorts: Sampler | Opening = sampler
    if everyone_first:
        cohorts = Opening(everyone(sampler.accounting.population), 1, sampler)

    def init(params: Params, federation: Federation) -> ScaffoldState:
        d = dimension(params)
        controls = jnp.zeros((federation.num_clients, d))
        return ScaffoldState(*server_init(server, params, federation), jnp.zeros(d), controls)

    def round(key: Key, state: ScaffoldState, cohort: Cohort) -> tuple[ScaffoldState, Metrics]:
        x, t, _, c, controls = state
        moving = t >= warm_start

        def client(key: Key, shard: Shard, c_i: jax.Array) -> Sent:
            correction = unflatten(c - c_i, x)
            y, mean, drift = local.run(key, x, shard, correction, moving=moving)
            dy = jax.tree.map(jnp.subtract, y, x)
            # Line 16: c_i - c + (x - y_K) / (K eta_l) is the mean of the K noisy gradients.
            coded, of_dy = codec.code(key, dy)
            dy = jax.tree.map(lambda q: jnp.where(moving, q, 0.0), coded)  # else it is not sent
            control_key = jax.random.fold_in(key, random_streams.CONTROL_VARIATE)
            dc, of_dc = codec.code(control_key, mean - c_i)
            sent = jax.tree.map(lambda a, b: jnp.where(moving, (a + b) / 2, b), of_dy, of_dc)
            # The client keeps what the server decodes, so that c stays the mean of the c_i.
            own = c_i + dc if codec.lossy else mean
            return Sent((dy, dc), {"user_drift": drift} | sent, own)

        total, metrics, controls = cohort.sum(
            client, key, mechanism=ALREADY_PRIVATE, own=controls, weighting=weighting
        )
        dy, dc = jax.tree.map(lambda leaf: leaf / cohort.expected_size, total)
        moved = server_update(server, state, dy)  # line 19
        before, after = (x, state.server), (moved.params, moved.server)
        x, remembered = jax.tree.map(partial(jnp.where, moving), after, before)
        c = c + cohort.expected_size / cohort.num_clients * dc  # line 20
        messages = jnp.where(moving, 2, 1)  # model and control variate
        wire = codec.wire(dimension(x))
        both = wire._replace(values=messages * wire.values, overhead=messages * wire.overhead)
        metrics |= {"uplink": both, "downlink": Wire(messages * dimension(x))}
        return ScaffoldState(x, t + 1, remembered, c, controls), metrics

    claim = claim_if_sampled(sampler, partial(claimed, local))
    return Algorithm(init, round, cohorts, local.unit, claim)


def claimed(local: LocalSteps, sampler: Sampler) -> Callable[[int, float], Claim | None]:
    """The paper's epsilon of these local steps towards a third party, which is the same for DP-FedAvg (Claim 4.1)."""
    used = local.mechanism
    if (
        isinstance(used, Dynamic)
        or used.noise != "gaussian"
        or used.noise_multiplier == 0
        or local.unit == "client"
    ):
        return unclaimed  # of whole clients the paper prints no number
    median = isinstance(used, MedianClipping)
    uneven = (
        used.tensors > 1
        if isinstance(used, MedianClipping)
        else used.certified_multiplier != used.noise_multiplier
    )
    sigma = used.noise_multiplier / 2  # relative to 2 C
    lots = local.records.accounting
    unlike = (
        (
            uneven,
            "A record moves the sum further, in units of the noise, than the formula supposes: every tensor has noise "
            "of its own, or the noise has another shape.",
        ),
        (
            not (lots.everyone or lots.uniform),
            "The formula is for records without replacement.",
        ),
        (
            local.records.public_sizes is not None,
            "The formula is for clients of equal size; here it is that of the smallest.",
        ),
        (
            sampler.accounting.of_a_round.vanish > 0,
            "The formula is for cohorts of which nobody vanishes.",
        ),
    )

    drawn = sampler.accounting
    turns = drawn.turns is not None
    inclusion = drawn.most / drawn.population if turns else drawn.of_a_round.inclusion

    def claim(rounds: int, delta: float) -> Claim:
        claimed = dp_scaffold_claim(
            sigma,
            max(1, round(sampler.expected_size)),
            inclusion,
            local.records.accounting.inclusion,
            local.steps,
            rounds,
            delta,
            median_clip=median,
        )
        reasons = tuple(text for differs, text in unlike if differs)
        return (
            replace(claimed, sound=False, reasons=(*reasons, *claimed.reasons))
            if reasons
            else claimed
        )

    return claim
