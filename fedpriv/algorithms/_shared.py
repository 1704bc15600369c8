"""What the algorithms have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.codecs import UNCODED, Codec, Wire
from fedpriv.cohort import Cohort, Sampler
from fedpriv.dynamic import Dynamic
from fedpriv.federation import Federation
from fedpriv.mechanisms import Mechanism
from fedpriv.privacy import Claim, Release, WithReplacement, fed_smp_claim
from fedpriv.types import Metrics, ModelState, Params


def starting_from(
    sampler: Sampler, records: Sampler | None = None
) -> Callable[[Params, Federation], ModelState]:
    """`Algorithm.init` for a state that is the model alone.

    Args:
      records: what clients draw their records by, where these are drawn one by one.

    Raises:
      ValueError: the sampler was made for another number of clients, or `records` for another number of records.
    """

    def init(params: Params, federation: Federation) -> ModelState:
        population = sampler.accounting.population
        if population != federation.num_clients:
            raise ValueError(
                f"sampler: made for {population} clients, but the federation has "
                f"{federation.num_clients}; give both the same number"
            )
        if records is not None:
            _check_records(records.accounting.population, np.asarray(federation.size))
        return ModelState(params, jnp.int32(0))

    return init


def _check_records(expected: int, sizes: np.ndarray) -> None:
    if (sizes != expected).any():
        odd = int(np.argmax(sizes != expected))
        raise ValueError(
            f"records: drawn among {expected} of each client, but client {odd} holds {sizes[odd]}; give every client "
            f"{expected}"
        )


def client_releases(
    mechanism: Mechanism | Dynamic, sampler: Sampler, codec: Codec = UNCODED
) -> Callable[[int], tuple[Release, ...]]:
    """`Algorithm.releases` of a perturbed sum of bounded client updates, one sum per round.

    The s members of a cohort each add 1 / s of the noise's variance. A server that sees their messages in clear sees
    each with its own share only: at worst 1 / s of it for the largest s. Messages that a codec
    rounds carry no noise, which the server adds to their sum: nothing hides them from it. A client that is drawn with
    replacement may fill all places of a round, and moves the sum by as many clip norms.

    Args:
        mechanism: bounds each member's contribution and is asked once a round for noise on their sum.
        sampler: draws the cohorts.
        codec: of the clients' messages.
    """
    most = sampler.accounting.most
    copies = most if isinstance(sampler.accounting, WithReplacement) else 1

    def release(view: str, steps: int, multiplier: float, in_shares: bool, reason: str) -> Release:
        return Release(
            view,
            "client",
            multiplier,
            sampler.accounting,
            steps,
            noise=mechanism.noise,
            in_shares=in_shares,
            reason=reason,
        )

    def part(steps: int, multiplier: float) -> tuple[Release, ...]:
        multiplier /= copies
        whole = (steps, multiplier, True, mechanism.reason)
        share = (steps, multiplier / math.sqrt(most), False, mechanism.reason)
        if codec.lossy and multiplier > 0:
            bare = (steps, 0.0, False, "the server adds the noise, after it has decoded messages")
            by_server = release("third_party", steps, multiplier, False, mechanism.reason)
            by_server = replace(by_server, by_server=True)
            return (by_server, release("server", *bare), release("server_secagg", *bare))
        if mechanism.noise == "laplace" and multiplier > 0:
            share = (steps, 0.0, False, "a client's share of Laplace noise is not Laplace")
        return (
            release("third_party", *whole),
            release("server", *share),
            release("server_secagg", *whole),
        )

    def releases(rounds: int) -> tuple[Release, ...]:
        found, begun = [], 0
        for steps, multiplier in mechanism.stages(rounds):
            used = mechanism.in_round(begun)
            found += [replace(r, mechanism=used) for r in part(steps, multiplier)]
            begun += steps
        return tuple(found)

    return releases


def claimed_by_fed_smp(
    mechanism: Mechanism, sampler: Sampler
) -> Callable[[int, float], Claim | None]:
    """`Algorithm.claim`: the epsilon of Fed-SMP's Section 6.2."""
    return lambda rounds, delta: fed_smp_claim(
        mechanism.multiplier, sampler.accounting, rounds, delta
    )


def measured(
    cohort: Cohort, uplink: Wire, seen: dict[str, jax.Array], downlink: Wire | None = None
) -> Metrics:
    """The metrics of a round; its diagnostics are means over the cohort of what clients saw, name -> f32[slots].

    `mean_update_norm` is of what is to be clipped: the updates, after coding if they are coded.
    """
    size = jnp.sum(cohort.mask)
    wires = {"uplink": uplink} if downlink is None else {"uplink": uplink, "downlink": downlink}
    return {
        "cohort_size": size.astype(jnp.int32),
        "diagnostics": {name: jnp.sum(x) / jnp.maximum(size, 1) for name, x in seen.items()},
    } | jax.tree.map(jnp.int32, wires)
