"""Asynchronous rounds: clients answer for the model that they were given, the server moves once a buffer is full.

FedBuff: J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, "Federated Learning with Buffered
Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import CountOrZero, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, Metrics, Params, PyTree, State
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.algorithm import Algorithm, check_state, start
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.delays import DelayLaw
from fedpriv.rounds.late_samplers import FreeClients, Staleness, late
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.weighting import EQUALLY, Weighting


class BufferedState(NamedTuple):
    """What the server holds.

    Attributes:
      inner: its own state, which has the model after the last step.
      models: leaves [most_late + 1, ...], the last models, that after t steps in row t modulo their number; () where no
        answer is late.
    """

    inner: State
    models: Params

    @property
    def params(self) -> Params:
        """The model."""
        return self.inner.params

    @property
    def round(self) -> jax.Array:
        """i32[], server steps done."""
        return self.inner.round

    @property
    def server(self) -> PyTree:
        """What the server's optimiser remembers, as in a `ServedState`."""
        return getattr(self.inner, "server", ())


def round_given(shard: Shard) -> jax.Array:
    """i32[], server steps done when the client was given its model."""
    return jnp.maximum(shard.round - shard.delay, 0)


def buffered(
    client_update: Callable[[Key, Params, Shard], PyTree | Sent],
    server_step: Callable[[State, PyTree], State],
    *,
    sampler: AnySampler | FreeClients,
    delay: DelayLaw,
    staleness: Staleness = None,
    most_late: CountOrZero | None = None,
    init: Callable[[Params, Federation], State] = start,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedBuff: a round is one server step, which takes a buffer of answers for models that clients were given before.

    Formal guarantees: those of the mechanism, with the draw of the sampler, for whatever a client does with the model
    that it was given, and whatever the server's steps make of the noisy means.

    *Proof.* A message is a function of the client's records, of randomness of its own, and of a model that was
    released before, whichever: so given all that was released, the sum of a buffer is that of clipped messages which
    are fixed beforehand, weighted by at most 1, plus fresh noise. That is adaptive composition, as of rounds in which
    all are given the last model. Delays are drawn without looking at data, and may be known (see `late_samplers.late`).
    A client may have several answers out: it is in a buffer once at most, and every buffer that it may be in counts.
    Weights are taken over the largest that a delay can have, by which the noisy mean is multiplied, which is
    post-processing: so a multiplier is that of the noise over what one answer can move.

    What is simulated is who answers in which step, and for which model, by laws that are given: not the clock. Who is
    given a model is as secret as who answers. In a system whose clients answer as fast as they can, and are slow
    because of their records, that they are says something of the records, which no noise hides.

    Args:
      client_update: (key, the model that the client was given, its shard) -> what it sends, or a `Sent`.
      server_step: (state, mean of the buffer's answers) -> the state a step later, whose `round` is one more.
      sampler: whose answers fill a buffer. `fp.FreeClients(clients, buffer=K)`: K of those that have no answer out, by
        turns that are known. Any other: as it draws, a client may have several answers out; who answers stays as secret
        as it is there.
      delay: how many server steps ago they were given their models; before the first step they were given the first.
      staleness: delay -> weight of an answer, or a weight for each delay; by default all count 1. The mean divides by
        the buffer's expected size, whatever the weights.
      most_late: largest delay that may be, for so many models are kept; by default that of the law.
      init: (params, federation) -> the server's first state, with fields `params` and `round`.
      mechanism: bounds an answer, before it is weighted, and perturbs the buffer's sum; by default neither.
      codec, weighting: as `Cohort.sum`.

    Raises:
      ValueError: a delay that can exceed `most_late`; no weight for a delay, or one below 0; a sampler for another
        number of clients than the law, or of so few that buffers would not be full; a function of other arguments.
    """
    check_parts(mechanism=mechanism, codec=codec, weighting=weighting)
    for name, part in {"client_update": client_update, "server_step": server_step}.items():
        require(callable(part), name, part, "give a function, see `fp.buffered`")
    most_late = checked("most_late", most_late, CountOrZero | None)
    require(isinstance(delay, DelayLaw), "delay", delay, "give one such as fp.delays.constant(2)")
    most = delay.most_late if most_late is None else most_late
    remedy = f"it can be {delay.most_late} steps, more than most_late={most}; cut the law or raise most_late"
    require(delay.most_late <= most, "delay", delay, remedy)
    drawn, largest = late(sampler, delay, staleness)
    rows = most + 1

    def begin(params: Params, federation: Federation) -> BufferedState:
        inner = asked("init", init, "(params, federation)", params, federation)
        check_state("init", init, inner)
        copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * rows), params) if most else ()
        return BufferedState(inner, copies)

    def round(key: Key, state: BufferedState, cohort: Cohort) -> tuple[BufferedState, Metrics]:
        t, models = cohort.round, state.models

        def client(key: Key, shard: Shard) -> PyTree | Sent:
            row = (t - shard.delay) % rows
            given = jax.tree.map(lambda leaf: leaf[row], models) if most else state.params
            wants = "(key, params, shard)"
            return asked("client_update", client_update, wants, key, given, shard)

        total, metrics, _ = cohort.sum(
            client, key, mechanism=mechanism, codec=codec, weighting=weighting
        )
        divisor = cohort.expected_size / largest
        mean = jax.tree.map(lambda s: s / divisor, total)
        inner = asked("server_step", server_step, "(state, mean)", state.inner, mean)
        check_state("server_step", server_step, inner)
        if most:
            models = jax.tree.map(
                lambda kept, new: kept.at[(t + 1) % rows].set(new), models, inner.params
            )
        return BufferedState(inner, models), metrics

    return Algorithm(begin, round, drawn)
