"""Federated averaging of clients that train by DP-SGD, so that every record is protected.

DP-SGD: M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133, Algorithm 1; in
federated learning as in Algorithm 2 of M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278 (DP-FedAvg by noisy local
steps), and the baseline of K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced
Approach".
With `optax.adam` or `optax.adagrad` as the clients' optimiser it is DP-Adam and DP-AdaGrad.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.algorithms._shared import measured, starting_from
from fedpriv.codecs import UNCODED, Codec, dimension
from fedpriv.cohort import Sampler, Shard, for_each_client
from fedpriv.federation import Federation
from fedpriv.privacy import VIEWS, Everyone, FixedSize, Release
from fedpriv.private_steps import LocalSteps
from fedpriv.types import Algorithm, Key, Metrics, ModelState, Params


def dp_sgd(
    local: LocalSteps, *, sampler: Sampler, global_rate: float = 1.0, codec: Codec = UNCODED
) -> Algorithm:
    """Each client of the cohort takes the K noisy steps of `local`; the model follows their mean.

    Formal guarantees: every view sees no more of a unit than the K noisy gradients of each round that its client takes
    part in, see `LocalSteps`; for one `linear` step on cohorts that are not Poisson, third parties and servers behind
    secure aggregation see a record in the cohort's sum only, with the noise of all.

    Args:
      local: the clients' steps.
      sampler: draws the cohort of clients.
      global_rate: what their mean update is multiplied by.
      codec: of the clients' messages, which are noisy already; where they are rounded, a sum of them is not taken to
        have the noise of all.

    Raises:
      ValueError: what `local` holds is out of range; at `init`, clients of another size.
    """
    local.check()

    def init(params: Params, federation: Federation) -> ModelState:
        return starting(local, sampler, params, federation)

    def round(key: Key, state: ModelState, federation: Federation) -> tuple[ModelState, Metrics]:
        x, t = state
        cohort_key, local_key = jax.random.split(key)
        cohort = sampler.draw(cohort_key)

        def client(key: Key, shard: Shard) -> tuple:
            y, _, drift = local.run(key, x, shard, t=t)
            coded = codec.code(key, jax.tree.map(jnp.subtract, y, x))
            return coded.message, {"user_drift": drift} | coded.diagnostics

        total, seen = for_each_client(client, local_key, cohort, federation)
        x = jax.tree.map(lambda x, s: x + global_rate * (s / sampler.expected_size), x, total)
        return ModelState(x, t + 1), measured(cohort, codec.wire(dimension(x)), seen)

    summed = local.steps == 1 and local.linear and local.unit == "record" and not codec.lossy
    return Algorithm(
        init, round, local_releases(local, sampler, summed=summed), lambda rounds, delta: None
    )


def starting(
    local: LocalSteps, sampler: Sampler, params: Params, federation: Federation
) -> ModelState:
    """`Algorithm.init` of algorithms whose clients take `LocalSteps`."""
    size = local.records.accounting.population
    sizes = np.asarray(federation.size)
    if (sizes != size).any():
        odd = int(np.argmax(sizes != size))
        raise ValueError(
            f"records: drawn among {size} of each client, but client {odd} holds {sizes[odd]}; give every client {size}"
        )
    return starting_from(sampler)(params, federation)


def local_releases(
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
    records = local.records.accounting
    if local.unit == "client":
        records = Everyone(local.records.accounting.population)
    fixed = isinstance(sampler.accounting, FixedSize | Everyone)

    def release(view: str, sampler: Sampler, steps: int, own: float) -> Release:
        shared = summed and fixed and view != "server" and local.mechanism.noise == "gaussian"
        return Release(
            view,
            local.unit,
            own * math.sqrt(sampler.expected_size) if shared else own,
            records,
            steps,
            noise=local.mechanism.noise,
            in_shares=shared,
            repeats=local.steps,
            participation=sampler.accounting,
            reason="" if own > 0 else local.mechanism.reason,
        )

    def releases(rounds: int) -> tuple[Release, ...]:
        found = []
        for view in VIEWS:
            opening = min(rounds, 1) if first is not None else 0
            for steps, own in local.multipliers(rounds):
                begun = min(opening, steps)
                if first is not None:
                    found.append(release(view, first, begun, own))
                found.append(release(view, sampler, steps - begun, own))
                opening -= begun
        return tuple(r for r in found if r.steps) or tuple(found)

    return releases
