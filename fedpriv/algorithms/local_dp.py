"""Federated averaging of messages that clients perturb themselves: local differential privacy.

FedAvg + LDP: K. Wei et al., "Federated Learning with Differential Privacy: Algorithms and Performance Analysis", IEEE
TIFS 2020, arXiv:1911.00222, with noise on the uploaded model; here on the clipped update, which is the model up to what
everyone knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from fedpriv import streams
from fedpriv.algorithms.fed_avg import fed_avg
from fedpriv.codecs import UNCODED, Codec, Coded
from fedpriv.cohort import Sampler
from fedpriv.mechanisms import Mechanism
from fedpriv.privacy import VIEWS, Everyone, FixedSize, Poisson, Release
from fedpriv.types import Algorithm, Key, LossFn, PyTree


def ldp_fed_avg(
    loss: LossFn,
    *,
    sampler: Sampler,
    mechanism: Mechanism,
    codec: Codec = UNCODED,
    **options: Any,
) -> Algorithm:
    """FedAvg + LDP (Wei et al. 2020): each client clips its update, adds all of `mechanism`'s noise, and sends that.

    Formal guarantees: a message is `mechanism` on one contribution, of its multiplier, whoever sees it; coding it is
    post-processing of that message. A view of the sum alone sees sqrt(M) times as much Gaussian noise, of M clients,
    where the sum is not one of messages that were rounded. Of Poisson cohorts no secrecy is used: a client that stays
    away takes its noise along.

    Args:
      mechanism: such as `laplace(C, b / C)`, (C / b)-private per message for one client zeroed out, or `gaussian`.
      codec: of the noisy messages.
      options: `optimizer` and `batches`, as `fed_avg`.

    Raises:
      ValueError: a mechanism whose noise changes over the rounds; at `init`, as `fed_avg`.
    """
    if not isinstance(mechanism, Mechanism):
        raise ValueError("mechanism: one whose noise changes over the rounds cannot be used here")

    def code(key: Key, update: PyTree) -> Coded:
        bounded = mechanism.clip(update)[0]
        noisy = mechanism.perturb(jax.random.fold_in(key, streams.OWN_NOISE), bounded)
        return codec.code(key, noisy)

    noisy = Codec(code, codec.wire, True)
    made = fed_avg(loss, sampler=sampler, codec=noisy, **options)
    return made._replace(releases=_local_releases(mechanism, sampler, codec))


def _local_releases(
    mechanism: Mechanism, sampler: Sampler, codec: Codec
) -> Callable[[int], tuple[Release, ...]]:
    cohorts = sampler.accounting
    shown = isinstance(cohorts, Poisson)  # as if the view knew who takes part
    full = isinstance(cohorts, FixedSize | Everyone)
    together = mechanism.noise == "gaussian" and full and not codec.lossy

    def release(view: str, rounds: int) -> Release:
        summed = together and view != "server"
        return Release(
            view,
            "client",
            mechanism.multiplier * math.sqrt(cohorts.most) if summed else mechanism.multiplier,
            Everyone(cohorts.population) if shown else cohorts,
            rounds,
            participation=cohorts if shown else None,
            noise=mechanism.noise,
            in_shares=summed,
            reason=mechanism.reason,
            mechanism=mechanism,
        )

    return lambda rounds: tuple(release(view, rounds) for view in VIEWS)
