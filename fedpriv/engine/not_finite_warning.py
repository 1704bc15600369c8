"""A warning of what was NaN or infinite in a run, and so counted as 0, with the likely cause."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.callers import callers_frame
from fedpriv.core.leaves import is_finite
from fedpriv.core.random_losses import Keyed, of_one, seen_losses, takes_key, with_keys
from fedpriv.core.types import Example, LossFn, Params
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices import distributed
from fedpriv.engine.compiled_rounds import Training, of_seed
from fedpriv.engine.history import SHARES
from fedpriv.rounds.one_round import Carried, round_in_run

WHAT = {"messages": "of the clients' messages", "records": "of the records' gradients"}
LOOKED_AT = 1000
"""Records at most, for the likely cause."""
CAUSES = "Likely causes: a learning rate too high, or a log, root or division in the loss"


def warn(
    training: Training,
    carried: Carried | list[Carried],
    shares_by_name: Mapping[str, np.ndarray],
    start: int,
    seeds: Any,
) -> None:
    """Warns of the first round in which something was not finite.

    Args:
      carried: leaves [seeds, ...], or a list of what each seed carries, after these rounds.
      shares_by_name: name -> f32[seeds, every], shares above 0 in some of the rounds after round `start`.
    """
    name, shares = min(shares_by_name.items(), key=lambda item: int(np.argmax(np.any(item[1], 0))))
    t = int(np.argmax(np.any(shares, 0)))
    s = int(np.argmax(shares[:, t]))
    own = carried[s] if isinstance(carried, list) else jax.tree.map(lambda x: x[s], carried)
    try:
        cause = _cause(training, distributed.local(own), s)
    except Exception:  # it is a guess, for which no run may end
        cause = CAUSES
    at = callers_frame() or sys._getframe()
    # Python's own record of what was said is left alone: another run has not been told, were it in the same words.
    warnings.warn_explicit(
        f"{100 * shares[s, t]:.3g} % {WHAT[SHARES[name]]} were NaN or infinite in round {start + t + 1} (seed "
        f"{seeds[s]}) and counted as 0; what is left is trained on, with noise where there is any. "
        f"{cause}. The history goes on recording the share, as {name!r}",
        RuntimeWarning,
        at.f_code.co_filename,
        at.f_lineno,
        module=__name__,
    )


def _cause(training: Training, carried: Carried, s: int) -> str:
    """What the losses of a round are for some records of seed `s`, at the model as it is after the round."""
    federation, records = _with_records(training.federations, s)
    with seen_losses() as losses:
        run = round_in_run(training.algorithm)
        jax.eval_shape(run, training.roots[s], carried, federation, carried.state.round)
    if not losses:
        return CAUSES
    count = len(jax.tree.leaves(records)[0])
    fine = np.array(
        [_fine(loss, carried.state.params, records) for loss in losses]
    )  # [losses, 2, records]
    of_values, of_gradients = (~fine.all(0)).sum(1)
    floats = [x for x in jax.tree.leaves(records) if jnp.issubdtype(x.dtype, jnp.floating)]
    largest = max((float(np.abs(x).max()) for x in floats), default=0.0)
    spoilt = np.zeros(count, bool)
    for x in floats:
        spoilt |= ~np.isfinite(x).reshape(count, -1).all(1)
    if spoilt.any():
        return (
            f"{spoilt.sum()} of {count} records hold NaN or infinite numbers: remove or repair them"
        )
    if of_values:
        return (
            f"The loss itself is NaN or infinite for {of_values} of {count} records, whatever the learning rate: "
            f"likely a log, root or division in it, or extreme values of the data (here up to {largest:.3g})"
        )
    if of_gradients:
        return (
            f"The gradient of the loss is NaN or infinite for {of_gradients} of {count} records where the loss is "
            "not, whatever the learning rate: likely a log, root or division at 0, such as in the branch that "
            "`jnp.where` does not take"
        )
    return (
        f"Loss and gradient are finite for {count} records at the model: likely a learning rate too high for the "
        "clients' training"
    )


def _with_records(
    federations: Federation | list[StreamedFederation], s: int
) -> tuple[Any, Example]:
    """(the federation of one seed as a round sees it, some of its records on the host, leaves [n, ...])."""
    federation = of_seed(federations, s)
    if isinstance(federation, Federation):
        used_rows = federation.client_rows.on_host().rows
        some = used_rows[
            np.linspace(0, len(used_rows) - 1, min(len(used_rows), LOOKED_AT)).astype(int)
        ]
        return federation, jax.tree.map(lambda leaf: np.asarray(leaf[some]), federation.examples)
    streamed = federations[s]  # type: ignore[index]
    clients = min(streamed.num_clients, 1 + LOOKED_AT // streamed.capacity)
    holders, read = streamed.read(np.arange(clients))
    there = min(LOOKED_AT, int(streamed.offsets[clients]))
    records = jax.tree.map(lambda leaf: leaf[:there], read)
    return replace(federation, holders=holders, holder_records=read), records


def _fine(loss: LossFn, params: Params, records: Example) -> np.ndarray:
    """bool[2, n]: whether a record's loss is finite, and its gradient."""
    gradient = jax.value_and_grad(of_one(loss))
    batch = with_keys(jax.random.key(0), records) if takes_key(loss) else records

    def one(record: Example | Keyed) -> tuple[jax.Array, jax.Array]:
        value, slope = gradient(params, record)
        return jnp.isfinite(value), is_finite(slope)

    return np.array(jax.jit(lambda batch: lax.map(one, batch, batch_size=50))(batch))
