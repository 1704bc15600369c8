"""FedAvg of a part of the model at a time, such as of one factor of low-rank adapters (LoRA).

FFA-LoRA: Y. Sun, Z. Li, Y. Li, B. Ding, "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024,
arXiv:2403.12313: A stays as it was drawn, B is trained.
RoLoRA: S. Chen, Y. Guo, Y. Ju, H. Dalal, Z. Zhu, A. Khisti, "Robust Federated Finetuning of LLMs via Alternating
Optimization of LoRA", NeurIPS 2025, arXiv:2502.01755: the factors take turns by rounds.
LA-LoRA: J. Liu, Y. Miao, N. Xi, J. Liu, "Rethinking LoRA for Privacy-Preserving Federated Learning in Large Models",
2026, arXiv:2602.19926: they take turns by a client's steps; its low-pass filter of the gradients is left out.
FedSVD: S. Lee et al., "FedSVD: Adaptive Orthogonalization for Private Federated Learning with LoRA", 2025,
arXiv:2505.12805: B is trained, and the server factors the product anew (`fp.models.refactored`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import jax
import optax

from fedpriv.algorithms.fed_avg import local_update
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import Batches, Schedule, mean_grad, optimizer_of
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, ServedState, server_init, server_update
from fedpriv.rounds.turns import Part, in_turns, packed, unpacked
from fedpriv.rounds.weighting import EQUALLY, Weighting


def fed_avg_alternating(
    loss: LossFn,
    *,
    turns: Sequence[str] = ("B$", "A$"),
    by: Literal["rounds", "steps"] = "rounds",
    after: Callable[[Params], Params] | None = None,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedAvg whose clients train one part of the model at a time; all other leaves stay as they are.

    Of the parameters of `fp.models.adapters`, turns=("B$",) is FFA-LoRA, the default RoLoRA, by="steps" LA-LoRA, and
    turns=("B$",) with after=fp.models.refactored FedSVD.

    Formal guarantees: those of `mechanism`, which bounds and perturbs what a round trains; `after` is post-processing.

    Args:
      turns: regular expressions for paths of leaves, such as "Dense_0"; the first part is trained first, and after the
        last one it is its turn again.
      by: "rounds": a round trains, and a message holds, one part, filled up with zeros to the size of the largest;
        "steps": a client trains the next part in each of its steps, and sends all of them.
      after: params -> params, what the server makes of the model after each round.
      loss, sampler, optimizer, batches, mechanism, codec, server, weighting: as `fed_avg`. Each part has an
        optimiser's state of its own, which waits while others are trained.

    Raises:
      ValueError: as `fed_avg`; no turns, or, from `init`, one that matches no leaf.
    """
    check_parts(sampler=sampler, optimizer=optimizer, batches=batches)
    check_parts(mechanism=mechanism, codec=codec, server=server, weighting=weighting)
    by = checked("by", by, Literal["rounds", "steps"])
    parts = _parts(turns)
    require(after is None or callable(after), "after", after, "give one as fp.models.refactored")
    grad = mean_grad(loss)
    of_round = parts if by == "rounds" else [Part("|".join(f"(?:{p.pattern})" for p in parts))]

    def init(params: Params, federation: Federation) -> ServedState:
        for part in parts:
            part.of(params)
        return server_init(in_turns(server, of_round), params, federation)

    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        theta, t = state.params, state.round
        turn = t if by == "rounds" else None

        def one_part(t: jax.Array) -> optax.GradientTransformation:
            return in_turns(optimizer_of(optimizer, t), parts, turn)

        def client(key: Key, shard: Shard) -> jax.Array:
            moved = local_update(key, theta, shard, t, grad, one_part, batches)
            return packed(moved, of_round, t)

        total, metrics, _ = cohort.sum(
            client, key, mechanism=mechanism, codec=codec, weighting=weighting
        )
        mean = unpacked(-total / cohort.expected_size, theta, of_round, t)
        state = server_update(in_turns(server, of_round, t), state, mean)
        params = state.params if after is None else after(state.params)
        return state._replace(params=params), metrics

    return Algorithm(init, round, sampler)


def _parts(turns: Sequence[str]) -> list[Part]:
    """Raises ValueError: they are not several texts."""
    several = isinstance(turns, list | tuple) and all(isinstance(each, str) for each in turns)
    remedy = 'give regular expressions for paths of leaves, such as ("B$", "A$")'
    require(several and len(turns) > 0, "turns", turns, remedy)
    return [Part(each) for each in turns]
