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

from fedpriv.algorithms.fed_avg import fed_avg
from fedpriv.codecs import UNCODED, Codec
from fedpriv.cohort import Sampler
from fedpriv.mechanisms import Mechanism
from fedpriv.privacy import VIEWS, Everyone, FixedSize, Release
from fedpriv.types import Algorithm, Key, LossFn, PyTree

_STREAM = 0x1D9  # separates the noise from what else a client draws with its key


def ldp_fed_avg(
    loss: LossFn,
    *,
    sampler: Sampler,
    mechanism: Mechanism,
    codec: Codec = UNCODED,
    **options: Any,
) -> Algorithm:
    """FedAvg + LDP: each client clips its update, adds all of `mechanism`'s noise itself, and sends that.

    Formal guarantees: a message is `mechanism` on one contribution, of its multiplier, whoever sees it; what is sent of
    it is post-processing. Of Gaussian noise a view of the sum alone sees sqrt(M) times as much, for M clients.

    Args:
      mechanism: such as `laplace(C, b / C)`, (C / b)-private per message for one client zeroed out, or `gaussian`.
      codec: of the noisy messages.
      options: `optimizer` and `batches`, as `fed_avg`.

    Raises:
      ValueError: as `fed_avg`.
    """

    def code(key: Key, update: PyTree) -> PyTree:
        bounded = mechanism.clip(update)[0]
        noisy = mechanism.perturb(jax.random.fold_in(key, _STREAM), bounded)
        return codec.code(key, noisy)

    noisy = Codec(code, codec.wire, True)
    made = fed_avg(loss, sampler=sampler, codec=noisy, **options)
    return made._replace(releases=_local_releases(mechanism, sampler))


def _local_releases(mechanism: Mechanism, sampler: Sampler) -> Callable[[int], tuple[Release, ...]]:
    together = mechanism.noise == "gaussian" and isinstance(
        sampler.accounting, FixedSize | Everyone
    )

    def release(view: str, rounds: int) -> Release:
        summed = together and view != "server"
        return Release(
            view,
            "client",
            mechanism.multiplier * math.sqrt(sampler.slots) if summed else mechanism.multiplier,
            sampler.accounting,
            rounds,
            noise=mechanism.noise,
            in_shares=summed,
            reason=mechanism.reason,
        )

    return lambda rounds: tuple(release(view, rounds) for view in VIEWS)
