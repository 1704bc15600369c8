"""On which records a metric is measured, and what a choice by it means, in words."""

from __future__ import annotations

from collections.abc import Iterable

from fedpriv.engine.client_metric_names import (
    HELD_OUT,
    PER_CLIENT,
    PERSONAL,
    PERSONAL_PER_CLIENT,
    TEST,
    parsed,
)
from fedpriv.engine.metric_words import with_unit
from fedpriv.experiments.config.public import Public

OF_CLIENTS = {
    PER_CLIENT: "of the shared model on the training records of single clients",
    HELD_OUT: "of the shared model on the records that single clients hold out",
    PERSONAL: "of each client's own model, the shared one where it has none, on the records that it holds out",
    PERSONAL_PER_CLIENT: "of each client's own model, the shared one where it has none, on its training records",
}
"""By kind, what is measured on clients."""
_TRAINED_ON, _HELD_OUT = "clients' training records", "clients' held-out records"
_RECORDS = {
    PER_CLIENT: _TRAINED_ON,
    PERSONAL_PER_CLIENT: _TRAINED_ON,
    HELD_OUT: _HELD_OUT,
    PERSONAL: _HELD_OUT,
}


def measured_on(metric: str, public: Public) -> str:
    """On which records a metric is measured, in words."""
    of = parsed(metric)
    if of is None and metric in public.of_score:
        return (
            "on clients' own test records (not private)" if public.own_test else "on the test set"
        )
    if of is None:
        return "on private records (not private)"
    groups = f", group {of.group}" if of.group else ", over groups" * of.by_group
    if of.records == TEST:
        where = "on clients' own test records" if public.own_test else "on the test set"
    else:
        where = OF_CLIENTS[of.records]
    return where + " (not private)" * (metric not in public) + groups


def chosen_on(metric: str, public: Public) -> str:
    """Where this metric chooses, on which records it is measured, in words."""
    of = parsed(metric)
    if of and of.records != TEST:
        declared = ", declared public" * (metric in public)
        return _RECORDS[of.records] + declared
    if of is None and metric not in public.of_score:
        return "private records"
    return "clients' own test records" if public.own_test else "test set"


def heading(metric: str, public: Public) -> str:
    """A metric with its unit, and whether it is private."""
    return with_unit(metric) + ", not private" * (metric not in public)


def best_note(metrics: Iterable[str], public: Public) -> str:
    """What a "best" by these metrics is, and on which records it was chosen, in words."""
    records, named = dict[str, None](), [*metrics]
    if not named:
        return (
            "no best: the metrics are of private records, and not_covered names none to choose by"
        )
    for metric in named:
        own = chosen_on(metric, public)
        records["the test records" if own == "test set" else own] = None
    unsure = all(metric in public for metric in named)
    return (
        f"best: each seed's best evaluation, chosen on {' or '.join(records)}; no epsilon covers the choice"
        f"{' if these are private' * unsure}, and the number is no estimate of the score on a new record"
    )


def together(each: Iterable[Public]) -> Public:
    """Of several runs: what is public in all of them."""
    every = [*each]
    names = dict.fromkeys(name for one in every for name in one.of_score)
    own_test = any(one.own_test for one in every)
    return Public(tuple(names), own_test, bool(every) and all(one.held_out for one in every))
