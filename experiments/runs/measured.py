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


def measured_on(metric: str) -> str:
    """On which records a metric is measured, in words."""
    of = parsed(metric)
    if of is None:
        return "on the test set"
    groups = f", group {of.group}" if of.group else ", over groups" * of.by_group
    where = "on the test set" if of.records == TEST else f"{OF_CLIENTS[of.records]} (not private)"
    return where + groups


def chosen_on(metric: str, own_test: bool = False) -> str:
    """Where this metric chooses, on which records it is measured, in words; see `Summary` for `own_test`."""
    of = parsed(metric)
    if of and of.records != TEST:
        return _RECORDS[of.records]
    return "clients' own test records" if own_test else "test set"


def is_of_clients(metric: str, own_test: bool) -> bool:
    """Whether a metric is measured on records of clients, so that no epsilon covers a choice by them."""
    of = parsed(metric)
    return own_test or (of is not None and of.records != TEST)


def best_note(metrics: Iterable[str] = (), own_test: bool = False) -> str:
    """What a "best" by these metrics is, and on which records it was chosen, in words."""
    named, records = [*metrics] or ["accuracy"], dict[str, None]()
    for metric in named:
        own = chosen_on(metric, own_test)
        records["the test records" if own == "test set" else own] = None
    unsure = not all(is_of_clients(metric, own_test) for metric in named)
    return (
        f"best: each seed's best evaluation, chosen on {' or '.join(records)}; no epsilon covers the choice"
        f"{' if these are private' * unsure}, and the number is no estimate of the score on a new record"
    )
