"""Checks of a traced round that look at a federation's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpriv.certification.closed_over import ClosedOver, check_closed_over
from fedpriv.certification.initial_state import INIT_CLOSED_OVER
from fedpriv.certification.stages import Stage
from fedpriv.core.complaints import require
from fedpriv.data.person_ids import DOCUMENT
from fedpriv.data.persons import assignment
from fedpriv.proof.initial_state import held_by
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.record_samplers import PublicGroups, may_hold_fewer
from fedpriv.rounds.samplers import parts_of
from fedpriv.rounds.weighting import ByPublicSizes

_CLOSED_OVER = (
    "round: it closes over {}; reach clients through the cohort, and the server's examples by "
    "`cohort.public`"
)
_PROTECTED = "federation: records are protected, but "


def check_data(
    stages: Sequence[Stage],
    init_arrays: Sequence[ClosedOver],
    algorithm: Algorithm,
    federation: Any,
) -> None:
    """The checks of a round that look at a federation's own arrays.

    Args:
      stages, init_arrays: as in `TracedRound`.
      algorithm: whose round it is.

    Raises:
      ValueError: clients hold another number of records than is drawn among; persons of another federation are drawn;
        records are protected, and rows of tokens are no single texts.
      LeakError: the round closes over the federation's arrays.
    """
    _check_persons(algorithm, federation)
    _check_texts(algorithm.unit, federation)
    check_closed_over([each.array for each in init_arrays], federation, INIT_CLOSED_OVER)
    for stage in stages:
        _check_sizes(stage, np.asarray(federation.size), algorithm.unit)
        check_closed_over(held_by(stage.program), federation, _CLOSED_OVER)


def _check_persons(algorithm: Algorithm, federation: Any) -> None:
    for _, sampler in parts_of(algorithm.sampler, 2):
        if sampler.accounting.persons:
            whose = assignment(federation)
            same = whose is not None and whose.digest == sampler.accounting.persons
            remedy = "it draws persons of another federation; give fp.by_person(sampler, federation) this one"
            require(same, "sampler", sampler.accounting, remedy)


def _check_texts(unit: str, federation: Any) -> None:
    """Raises ValueError: records are protected, but a row of `fp.datasets.from_tokens` is not all of one text.

    Its leaves are known by their names, wherever they are.
    """
    leaves = _names(federation.examples)
    if unit != "record" or not leaves & {"text", "mask"}:
        return
    if "segment" in leaves and assignment(federation) is None:  # persons: each client is one's
        remedy = "give from_tokens(..., packed=False), or say whose each client is, by person="
        raise ValueError(f"{_PROTECTED}a packed row holds several texts; {remedy}")
    if DOCUMENT in leaves and federation.persons is None:
        remedy = "give from_arrays(..., person='document'), or leave that leaf out to protect rows"
        raise ValueError(f"{_PROTECTED}a document may have several rows; {remedy}")


def _names(examples: Any) -> set[str]:
    """Of the leaves, without those of what they are in."""
    paths = (path for path, _ in jax.tree_util.tree_leaves_with_path(examples))
    return {str(getattr(path[-1], "key", path[-1])) for path in paths if path}


def _check_sizes(stage: Stage, sizes: np.ndarray, unit: str) -> None:
    """Raises ValueError: a client holds another number of records than is drawn among, or than its weight is made of.

    Args:
      sizes: [..., clients], number of records.
    """
    drawn, weights = ([features_of(each.step) for each in of] for of in (stage.means, stage.sums))
    asked = [step.sampling.public_sizes for step in drawn]
    public = [said for said in asked if said is not None]
    in_groups = any(isinstance(step.sampling, PublicGroups) for step in drawn)
    weightings = [step.weighting for step in weights if isinstance(step.weighting, ByPublicSizes)]
    for said in public:
        _check_public(said, sizes, in_groups)
    for each in weightings:
        _check_public(each.sizes, sizes)
    if weightings and unit != "record":
        raise ValueError(
            f"weighting: public sizes weight messages that protect records, but the unit is {unit!r}; protect "
            "records, or leave it out"
        )
    if weightings and (not public or len(public) < len(stage.means)):
        raise ValueError(
            "weighting: public sizes cannot weight messages that are not private means of records drawn by "
            "fp.PublicSizes; draw them so, or leave it out"
        )
    for mean in stage.means:
        records = mean.step.sampling
        if records.public_sizes is not None:
            continue
        places = records.accounting.population
        wrong = sizes > places if may_hold_fewer(records) else sizes != places
        if wrong.any():
            client, held = _first(wrong, sizes)
            raise ValueError(
                f"records: drawn among {places}, but client {client} holds {held}; if sizes are secret, give "
                f"fp.poisson({sizes.max()}, rate); if they are public, fp.PublicSizes(federation.size, batch=...)"
            )


def _check_public(said: Sequence[int], sizes: np.ndarray, in_groups: bool = False) -> None:
    """Raises ValueError: the clients, or records, are others than were said.

    Args:
      in_groups: they were said by the groups of each client's records.
    """
    clients, what = sizes.shape[-1], "groups" if in_groups else "sizes"
    require(len(said) == clients, what, len(said), f"give {clients}, one a client")
    wrong = sizes != np.asarray(said)
    if wrong.any():
        client, held = _first(wrong, sizes)
        remedy = "give the group of each of its records" if in_groups else "give federation.size"
        raise ValueError(f"{what}[{client}]: {said[client]}, but the client holds {held}; {remedy}")


def _first(wrong: np.ndarray, sizes: np.ndarray) -> tuple[int, int]:
    """(Number, records) of the first client that is wrong."""
    odd = int(np.argmax(wrong.reshape(-1)))
    return odd % sizes.shape[-1], int(sizes.reshape(-1)[odd])
