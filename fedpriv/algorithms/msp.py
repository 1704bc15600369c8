"""MSP-FL and MSPDQ-FL: federated learning with model splitting, and with dynamic quantization.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning"; line numbers of Algorithm 1, equation numbers from there.

With unequal m_i the cohort agrees on the mean of its models weighted by 1 + m_i, which the paper's proofs, for m_i = 1,
do not speak of. The width of the dynamic interval is made of the invisible submodels of the whole cohort, which nobody
in the protocol knows; here it is computed, and 32 bits are counted for telling it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.algorithms.consensus import (
    TRANSMISSION,
    Consensus,
    Coupling,
    Exchanges,
    Norm,
    Transmission,
    agree,
    check_coupling,
    dynamic,
    full_precision,
)
from fedpriv.algorithms.splitting import Splitting, Submodels, Weights, equal, invisible
from fedpriv.compression.codecs import Wire
from fedpriv.compression.quantization import Levels, Quantized, quantize
from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import flatten, unflatten
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.data.federation import Federation
from fedpriv.privacy.claims import mspdq_claim
from fedpriv.rounds.algorithm import Algorithm, start
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import Batches, Schedule, mean_grad, optimizer_of, train_locally
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler, has_full_cohorts
from fedpriv.rounds.sent import Sent

_REASON = (
    "nothing bounds a client's model, and splitting only rearranges it: the visible and invisible submodels keep its "
    "sum, and every exchange shows the server a linear combination of them without fresh noise"
)
_SOLVED = (
    "as weights fall in a public way, least squares on a client's visible submodels give its weights, m_i and the "
    "trained model where it has fewer different weights than there are exchanges, up to rounding "
    "(fedpriv.attacks.transcript)"
)
_NEARLY_SOLVED = (
    "the sum of its visible ones points along the client's update, the closer the more bits and exchanges and the "
    "narrower the intervals (fedpriv.attacks.transcript), which nobody has bounded"
)


class MspState(NamedTuple):
    """Model, and the clients' secrets.

    Attributes:
      params: theta.
      round: i32[], rounds done.
      weights: f32[clients, m_max], as in `Submodels`, m_i of them above 0; each client's own, the same in every round.
    """

    params: Params
    round: jax.Array
    weights: jax.Array


class Agreed(NamedTuple):
    """What the exchanges of a cohort of MSP-FL came to.

    Attributes:
      model: f32[d].
      measured: name -> f32[], meanwhile.
    """

    model: jax.Array
    measured: dict[str, jax.Array]


def msp_fl(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    splitting: Splitting,
    coupling: Coupling,
    exchanges: Exchanges,
    submodels: tuple[Count, Count] = (1, 1),
    weights: Weights = equal,
    transmission: Transmission | None = None,
    secret: Seed = 0,
    unstable: bool = False,
) -> Algorithm:
    """MSP-FL: clients split their models and show the server one submodel each; K_t exchanges lead these to the mean.

    Formal guarantees: none; every view certifies to infinity (see `msp_laplace_claim` for the paper's own claim of the
    Laplace splitting). Clients count equally, because the exchanges lead to the plain mean of the submodels.

    Args:
      loss: loss of one example.
      sampler: draws the cohort; the paper's is `with_replacement(sizes, M)`.
      optimizer: round -> the clients' optimiser.
      batches: a client's batches.
      splitting: how the visible submodel is drawn.
      coupling: the weights of an exchange.
      exchanges: K_t.
      submodels: least and largest number m_i of invisible submodels; each client draws its m_i once, from `secret`.
      weights: weights of each client's submodels, as parts of the coupling's gamma, likewise drawn once:
        `splitting.equal`, `per_client` or `per_submodel`.
      transmission: what reaches the server; by default `full_precision()`.
      unstable: allow a gamma beyond the condition of Lemma 7, as in the paper's Figure 7.

    Raises:
      ValueError: a cohort of varying size; a range of m_i that is empty or begins below 1; e or gamma that violate
        their conditions; from `init`, weights of another shape.
    """
    check_parts(sampler=sampler, optimizer=optimizer, batches=batches)
    transmission = full_precision() if transmission is None else transmission
    _check_protocol(splitting, exchanges, weights, transmission)
    low, high = submodels = checked("submodels", submodels, tuple[Count, Count])
    require(low <= high, "submodels", submodels, "give the least number first")
    secret = checked("secret", secret, Seed)
    unstable = checked("unstable", unstable, bool)
    if not has_full_cohorts(sampler):
        raise ValueError(
            "sampler: cohorts vary in size or have empty slots; use fixed_size or with_replacement"
        )
    check_coupling(coupling, sampler.slots, high, stable=not unstable)
    grad = mean_grad(loss)

    def init(params: Params, federation: Federation) -> MspState:
        key = jax.random.fold_in(jax.random.key(secret), random_streams.SUBMODELS)
        clients = federation.num_clients
        numbers = jax.random.randint(key, (clients,), low, high + 1)
        drawn = weights(jax.random.fold_in(key, 1), (clients, high))
        if jnp.shape(drawn) != (clients, high):
            raise ValueError(
                f"weights: gave {jnp.shape(drawn)}, not (clients, m_max) = {(clients, high)}"
            )
        own = jnp.where(jnp.arange(high)[None] < numbers[:, None], drawn, 0.0)
        return MspState(*start(params, federation), own.astype(jnp.float32))

    def round(key: Key, state: MspState, cohort: Cohort) -> tuple[MspState, Metrics]:
        theta, t, secrets = state
        count = jnp.minimum(exchanges.at(t), exchanges.most)

        def client(key: Key, shard: Shard, own: jax.Array) -> Sent:
            trained = train_locally(
                key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
            )
            return Sent((flatten(trained), own), own=own)  # (2), line 12

        def exchange(key: Key, messages: tuple) -> tuple[Agreed, jax.Array]:
            models, parts = messages
            split_key, send_key = jax.random.split(key)
            begun, sent = _split(split_key, models, parts, splitting, transmission)
            agreed = agree(
                send_key, begun, sent, coupling, transmission, count, exchanges.most
            )  # lines 18 to 31
            return _outcome(agreed, models, jnp.sum(begun.real, 1)), agreed.messages

        agreed, _, secrets = cohort.unprotected(client, key, exchange, reason=reason, own=secrets)
        after = MspState(unflatten(agreed.model, theta), t + 1, secrets)
        return after, _metrics(agreed, count, transmission)

    exact = transmission.bits == 32 and exchanges.most > 1
    reason = f"{_REASON}; {_SOLVED if exact else _NEARLY_SOLVED}"
    return Algorithm(init, round, sampler, claim=lambda rounds, delta: splitting.claim)


def _check_protocol(splitting: Any, exchanges: Any, weights: Any, transmission: Any) -> None:
    """Raises ValueError naming the part that is of another kind."""
    remedy = "give one such as fp.papers.splitting.uniform(0.1)"
    require(isinstance(splitting, Splitting), "splitting", splitting, remedy)
    remedy = "give one such as fp.papers.consensus.constant(30)"
    require(isinstance(exchanges, Exchanges), "exchanges", exchanges, remedy)
    remedy = "give one such as fp.papers.splitting.per_client(0.5)"
    require(callable(weights), "weights", weights, remedy)
    fits = isinstance(transmission, Transmission)
    require(fits, "transmission", transmission, f"give {TRANSMISSION}")


def mspdq_fl(loss: LossFn, *, bits: Levels, norm: Norm = "frobenius", **options: Any) -> Algorithm:
    """MSPDQ-FL: `msp_fl` with visible submodels of `bits` per value, quantized on a shrinking interval.

    Formal guarantees: none; the claim is Proposition 4, (0, delta) for one value of one message, with delta = 1.
    Clients count equally, because the exchanges lead to the plain mean of the submodels.

    Args:
      norm: the norm that sets the interval's width, see `consensus.dynamic`.
      options: as `msp_fl`.

    Raises:
      ValueError: as `msp_fl` and `consensus.dynamic`.
    """
    bits = checked("bits", bits, Levels)
    norm = checked("norm", norm, Norm)
    algorithm = msp_fl(loss, transmission=dynamic(bits, norm), **options)
    # All 2^B levels are in use, so that the second term is 1; the paper names no C4 that would make the first smaller.
    claim = mspdq_claim(2**bits, bits, interval=1.0, difference=1.0)
    return algorithm._replace(claim=lambda rounds, delta: claim)


def _split(
    key: Key,
    models: jax.Array,
    weights: jax.Array,
    splitting: Splitting,
    transmission: Transmission,
) -> tuple[Submodels, Quantized]:
    """The cohort's submodels, and what of the visible ones is sent first (lines 13 to 17)."""
    visible_key, invisible_key, grid_key = jax.random.split(key, 3)
    slots, most = weights.shape
    m = jnp.sum(weights > 0, 1)
    visible = jax.vmap(splitting.draw)(jax.random.split(visible_key, slots), models, m)
    if transmission.common:
        # Line 16: the server sends one client's first message, which is on the grid, to all others.
        largest = jnp.max(jnp.abs(visible[0]))
        first = quantize(grid_key, visible[0], -largest, largest, transmission.bits).values
        visible = jnp.broadcast_to(first, visible.shape)
        nothing = jnp.zeros(visible.shape, jnp.int32)
        sent = Quantized(visible, nothing, nothing.astype(bool))
    else:
        sent = transmission.send(grid_key, visible, visible, jnp.float32(0))
    hidden = jax.vmap(lambda k, w, a, m: invisible(k, w, a, m, most))(
        jax.random.split(invisible_key, slots), models, visible, m
    )
    return Submodels(visible, hidden, weights), sent


def _outcome(agreed: Consensus, models: jax.Array, m: jax.Array) -> Agreed:
    weights = (1 + m) / jnp.sum(1 + m)
    measured = {
        "saturated": agreed.saturated,
        "interval": agreed.width,
        "distance_to_mean": jnp.linalg.norm(agreed.model - models.mean(0)),
        "distance_to_weighted_mean": jnp.linalg.norm(agreed.model - weights @ models),
    }
    return Agreed(agreed.model, measured)


def _metrics(agreed: Agreed, count: jax.Array, transmission: Transmission) -> Metrics:
    d = len(agreed.model)
    sent, extra = count + 1, transmission.overhead
    # Counted with the bits: times d it would soon leave 32 bits.
    uplink = Wire(d, sent * transmission.bits, overhead=sent * extra)
    downlink = Wire(d, sent * 32, overhead=sent * extra)
    diagnostics = {"exchanges": count.astype(jnp.float32)} | agreed.measured
    return {"uplink": uplink, "downlink": downlink, "diagnostics": diagnostics}


def uploads_bound(size: int, rounds: int, convexity: float, shift: float) -> float:
    """Proposition 3 (eq. 25): M I (1 + mu theta + mu (1 + I) / 2) for I rounds, K_t by Theorem 3.

    The proof puts mu (theta + t) - 1 in the place of K_t by log(1 + x) <= x, which drops the logarithm of lambda: it
    bounds M sum_t (K_t + 1) (eq. 27) where exchanges contract by 1 / e or faster.

    Args:
      size: M.
      rounds: I, the rounds that the accuracy needs; the paper counts them from 1, a schedule here from 0.
      convexity: mu.
      shift: theta.
    """
    return size * rounds * (1 + convexity * shift + convexity / 2 * (1 + rounds))
