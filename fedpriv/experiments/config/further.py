"""What every evaluation measures on records of clients, beside the score on the test records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from numpy.typing import ArrayLike

from fedpriv.data.federation import Federation
from fedpriv.engine import measures
from fedpriv.engine.client_metric_names import parsed
from fedpriv.engine.client_metrics import Personal
from fedpriv.engine.compiled_rounds import ScoreFn
from fedpriv.engine.simulate import Measure
from fedpriv.experiments.config.settings import Settings
from fedpriv.models.score import main_metric
from fedpriv.rounds.algorithm import Algorithm


def of_clients(
    score: ScoreFn,
    federation: Federation,
    models: Sequence[Personal | None],
    clients: int,
    bound: Mapping[str, float],
) -> list[Measure]:
    """Of single clients, a measure for each of `models`, by whose model a client is served.

    Args:
      clients, bound: as `measures.per_client`.
    """
    on = _own_records(federation)
    return [
        measures.per_client(score, clients, bound, on=on, personal=personal) for personal in models
    ]


def of_groups(
    score: ScoreFn,
    federation: Federation,
    models: Sequence[Personal | None],
    groups: Sequence[str] | ArrayLike,
) -> list[Measure]:
    """Likewise of groups of clients."""
    on = _own_records(federation)
    return [measures.per_group(score, groups, on=on, personal=personal) for personal in models]


def bound(settings: Settings, metrics: Sequence[str]) -> dict[str, float]:
    """By metric, as `measures.per_client` takes it."""
    if settings.bound is None:
        return {}
    of = parsed(settings.metric or "")
    metric = of.metric if of else settings.metric
    return {main_metric(metrics, metric if metric in metrics else None): settings.bound}


def whose_models(algorithm: Algorithm, every: Sequence[Algorithm]) -> list[Personal | None]:
    """The shared one (None); where any of the algorithms has models of single clients, these, or the shared one."""
    if not any(one.personal for one in every):
        return [None]
    return [None, algorithm.personal or (lambda state, client: state.params)]


def _own_records(federation: Federation) -> Literal["train", "held_out"]:
    """On which records clients are evaluated: what they hold out, where they do."""
    return "train" if federation.held_out_rows is None else "held_out"
