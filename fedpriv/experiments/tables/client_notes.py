"""Means over clients in words, and what has to be known of the clients behind them."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.engine.client_metric_names import MEAN_OF_TRAINED, TRAINED, parsed
from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.base.formats import ABSENT, mean_and_std, number
from fedpriv.experiments.tables.frame import Row
from fedpriv.experiments.tables.over_clients import CONDITIONAL, OverClients


def over_clients_text(of: OverClients | None, metric: str, sign: str = "") -> str:
    if of is None:
        return ABSENT
    said = of.text(100, 2, sign) if in_percent(metric) else of.text(1, 4, sign)
    return said + f", {of.undefined} undefined" * (of.undefined > 0)


def _trained(row: Row) -> list[str]:
    """Of means over personal models, how many of the clients have trained their own, and the mean over these."""
    numbers, said = row.summary.per_client_not_private.get(row.algorithm, {}), []
    for name, of in row.clients.items():
        stem = name.removesuffix("mean")
        if (count := numbers.get(f"{stem}{TRAINED}")) is None:
            continue
        mean = numbers.get(f"{stem}{MEAN_OF_TRAINED}") if count.mean else None
        own = f"; their mean is {mean_and_std(mean, name)}" if mean else ""
        so_far = (
            f"{number(count.mean)} of {len(of.clients)} clients have trained models of their own"
        )
        said.append(f"{row.who}: {name}: {so_far}{own}")
    return said


def _of_how_many(row: Row) -> list[str]:
    """Where not all clients were evaluated: how many of how many."""
    kinds = {name: of for name in row.clients if (of := parsed(name)) and not of.by_group}
    evaluated = {len(of.clients) + of.without for name, of in row.clients.items() if name in kinds}
    return [
        f"{row.who}: {number} of the federation's {row.num_clients} clients were evaluated (per_client)"
        for number in evaluated
        if number < row.num_clients
    ]


def on_clients(found: Sequence[Row]) -> list[str]:
    """Notes of a grid: what the intervals over clients are, and of how many; which have none, or never trained."""
    lost = [f"{r.who}: {r.lost}" for r in found if r.lost]
    lost += dict.fromkeys(said for r in found for said in _of_how_many(r))
    lost += [
        f"{r.who}: {name}, {of.without} without such records"
        for r in found
        for name, of in r.clients.items()
        if of.without
    ]
    lost += [said for r in found for said in _trained(r)]
    each = [of for r in found for of in r.over_clients.values()]
    if not each:
        return lost
    number = " or ".join(map(str, sorted({of.clients for of in each})))
    undefined = (
        f"{number} clients; undefined: clients without the metric, such as a recall without a positive record, which "
        "are left out, of a difference where either lacks it"
    )
    said = [*lost, CONDITIONAL, undefined]
    if differences := sum(len(r.leads_over_clients) for r in found):
        said.append(
            f"differences over clients: {differences}, of which one in twenty misses by chance"
        )
    return said
