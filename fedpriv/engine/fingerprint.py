"""Fingerprint of a run: what must not change between a checkpoint and the run that continues from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Key
from fedpriv.data.federation import Federation
from fedpriv.data.mapped_files import check_not_cut
from fedpriv.devices import distributed
from fedpriv.devices.layout import Strategy
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.pairs.written import in_short
from fedpriv.privacy.sampling import Why
from fedpriv.proof.stream import STREAMS, schedule_key
from fedpriv.rounds.samplers import Answer, parts_of
from fedpriv.rounds.scheduled_samplers import (
    AnySampler,
    answers_drawn,
    cohort_drawn,
    first_memories,
)

if TYPE_CHECKING:
    from fedpriv.certification.traced_round import TracedRound
    from fedpriv.data.streaming import StreamedFederation
    from fedpriv.engine.compiled_rounds import Training
    from fedpriv.proof.seen import Seen

_LONGEST = 200  # words of what a view sees
_COMPARED = 64  # rounds at most, of correlated noise; draws, of members' answers
SAMPLED = 1_000
"""Records of a streamed federation that are compared. If a share f of its records are others, the chance that none of
these is among them is (1 - f)^1000."""


def identity(
    training: Training,
    traced: TracedRound,
    seeds: Sequence[int],
    strategy: Strategy,
    secret_check: str | None = None,
) -> Callable[[int], dict[str, Any]]:
    """rounds -> the fingerprint of so many, as JSON: what `simulate` itself knows; `Checkpoints.settings` say more.

    A run of more rounds goes on from one of fewer where theirs are the same in those of the shorter one.

    Args:
      secret_check: what tells a secret seed from others, where there is one.
    """
    records = records_of(training.federations, seeds)
    data = distributed.digest(jax.tree.leaves((records, training.test)))
    of_any = {
        "streams": STREAMS,
        "every": training.every,
        "seeds": list(seeds),
        **({"secret_seed_check": secret_check} if secret_check else {}),
        "layout": strategy.order,
        "data": bytes(data).hex()[:16],
        "program": _program(traced),
        **({"groups": repr(traced.grouping)} if traced.grouping else {}),
        **_persons(training),
    }

    def of(rounds: int) -> dict[str, Any]:
        # A certificate counts every round at the noise and the cohorts of the algorithm that is given here.
        seen = [each for kind in traced.kinds for each in traced.seen(rounds, kind)]
        return of_any | {
            "rounds": rounds,
            "seen": _told(seen),
            **_bounds(traced, rounds),
            **_schedules(training, rounds),
            **_answers(training, rounds),
            **_noise(traced, rounds),
        }

    return of


def _program(traced: TracedRound) -> dict[str, Any]:
    """What runs; digests are of one version of JAX, calls of any."""
    calls = repr([program.calls for program in traced.programs])
    return {
        "jax": jax.__version__,
        "digests": list(traced.digests),
        "calls": hashlib.sha256(calls.encode()).hexdigest()[:16],
    }


def _bounds(traced: TracedRound, rounds: int) -> dict[str, list[str]]:
    """Clip norms that change over the rounds, which no certificate depends on."""
    steps = [release.step.mechanism for stage in traced.stages for release in stage.releases]
    changing = [used for used in steps if isinstance(used, Dynamic)]
    some = sorted({0, *np.linspace(0, rounds - 1, _COMPARED).astype(int).tolist()})
    each = [[float(used.in_round(t).clip_norm) for t in some] for used in changing]
    return (
        {"clip_norms": [" ".join(f"{c:.6g}" for c in dict.fromkeys(all)) for all in each]}
        if each
        else {}
    )


def _noise(traced: TracedRound, rounds: int) -> dict[str, str]:
    """The matrices of correlated noise, whose sensitivities and words may be the same where they are not."""
    matrices = [f.noising(min(rounds, _COMPARED)) for f in traced.factorizations]
    digits = [np.round(matrix, 5).astype(np.float32) + 0.0 for matrix in matrices]
    return {"noise": bytes(distributed.digest(digits)).hex()[:16]} if digits else {}


def _persons(training: Training) -> dict[str, list[str]]:
    """Whose clients are drawn together, where persons are drawn."""
    drawn = (sampler.accounting for _, sampler in parts_of(training.algorithm.sampler, 2))
    whose = [each.persons for each in drawn if each.persons]
    return {"persons": whose} if whose else {}


def _schedules(training: Training, rounds: int) -> dict[str, str]:
    """Who takes part when, where that is fixed for the run: cohorts of another schedule may come too soon."""
    samplers = [sampler for _, sampler in parts_of(training.algorithm.sampler, 2)]
    scheduled = {i: each for i, each in enumerate(samplers) if each.accounting.turns is not None}
    if not scheduled:
        return {}
    root, draws = training.roots[0], []
    for part, sampler in scheduled.items():
        schedule = schedule_key(root, part)
        (memory,) = first_memories(sampler)
        for t in sorted({0, 1, rounds - 1}):
            drawn, memory = cohort_drawn(sampler, root, schedule, jnp.int32(t), memory)
            draws.append(jnp.where(drawn.mask, drawn.ids, -1))
    schemas = "; ".join(str(sampler.accounting) for sampler in scheduled.values())
    return {"schedule": f"{schemas}, {bytes(distributed.digest(draws)).hex()[:16]}"}


def _answers(training: Training, rounds: int) -> dict[str, str]:
    """How much members count and how late they answer, in some draws, where that is said."""
    keys, answers = jax.random.split(training.roots[0], _COMPARED), []
    for _, sampler in parts_of(training.algorithm.sampler, 2):
        (memory,) = first_memories(sampler)
        given = jnp.int32(rounds - 1), memory

        def answer(key: Key, sampler: AnySampler = sampler, given: tuple = given) -> Answer:
            return cohort_drawn(sampler, key, key, *given)[0].answer

        if jax.tree.leaves(answers_drawn(sampler)):
            answers.append(jax.vmap(answer)(keys))
    return {"answers": bytes(distributed.digest(answers)).hex()[:16]} if answers else {}


def records_of(federations: Federation | Sequence[StreamedFederation], seeds: Sequence[int]) -> Any:
    """Arrays by which federations are told apart.

    Streamed ones may be larger than one wants to read: of these, who holds which rows, and `SAMPLED` records, drawn
    uniformly by the seeds.
    """
    if isinstance(federations, Federation):
        return federations
    draws = np.random.default_rng(seeds)
    each = {id(f): f for f in federations}
    sampled = {key: _sampled(f, draws) for key, f in each.items()}
    return [(f.offsets, f.public, f.order, f.held_out_rows, sampled[id(f)]) for f in federations]


def _sampled(f: StreamedFederation, draws: np.random.Generator) -> list[np.ndarray]:
    """Of all that clients train on, that they hold out, and that the server has."""
    check_not_cut(f.examples)
    held_out = () if f.held_out_rows is None else f.held_out_rows.rows
    others = np.concatenate([np.asarray(held_out, np.int64), f.public])
    held = int(f.offsets[-1])
    total = held + len(others)
    places = np.sort(draws.choice(total, min(SAMPLED, total), replace=False))
    first, last = places[places < held], places[places >= held] - held
    rows = np.concatenate([first if f.order is None else f.order[first], others[last]])
    return [_plain(leaf[np.sort(rows)]) for leaf in jax.tree.leaves(f.examples)]


def _plain(array: np.ndarray) -> np.ndarray:
    """In place of objects, whose bytes are addresses, their text."""
    if array.dtype != object:
        return array
    return np.frombuffer(repr(array.tolist()).encode(), np.uint8)


def _told(seen: Sequence[Seen]) -> dict[str, str]:
    """View -> the pairs that it sees, to the digits that another machine computes, too."""
    of_view: dict[str, list[str]] = {}
    for each in seen:
        pairs = dict.fromkeys(in_short(p) for p in each.pairs if not isinstance(p, Why))
        of_view.setdefault(each.view, []).append(f"{each.unit}, {' or '.join(pairs)}")
    return {view: _shortened("; ".join(each)) for view, each in of_view.items()}


def _shortened(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... {digest}"
