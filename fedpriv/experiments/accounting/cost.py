"""What a config costs: claimed and certified epsilons by view, as an object, a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.arguments import MeanRuns, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.files import save_figure
from fedpriv.core.json_values import plain
from fedpriv.devices.layout import split_cpu
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.accounting.found import noise_of
from fedpriv.experiments.accounting.solving import Sought, solve
from fedpriv.experiments.base.formats import (
    ClientEpsilons,
    GroupEpsilons,
    aligned,
    assumptions,
    epsilon,
    epsilons_by_group,
    name_of,
    spread_over_clients,
)
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings, View, changed
from fedpriv.privacy import VIEWS, Certificate, Claim
from fedpriv.privacy.epsilon_words import hyphenated


class Account(NamedTuple):
    """Epsilons of algorithms whose releases and claims are the same.

    Attributes:
      names: keys of the algorithms.
      labels: their names for people.
      rounds: number of rounds T.
      honest: fraction of each cohort that adds its share of the noise.
      best_of: mean number of runs, of which the best is released.
      claim: the paper's, if there is one.
      certificates: one for each view.
      client_epsilons: by view, if the clients' numbers of records are public.
      group_epsilons: by view, if units have public groups.
      statistics: by view, of the statistics that the certificates count, alone; empty without any.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    rounds: int
    honest: float
    best_of: float
    claim: Claim | None
    certificates: tuple[Certificate, ...]
    client_epsilons: dict[str, ClientEpsilons]
    group_epsilons: dict[str, GroupEpsilons]
    statistics: dict[str, Certificate]

    @property
    def private(self) -> bool:
        return any(math.isfinite(c.epsilon) for c in self.certificates)


def accounts(
    ledger: Ledger,
    rounds: int,
    views: Sequence[str] | None = None,
    honest: float = 1.0,
    best_of: float = 1.0,
) -> list[Account]:
    """One for each group of algorithms with equal releases and claims, those with noise first.

    Args:
      views: by default all; of the best of several runs the third party's, as a server sees every run.
    """
    views = views or (VIEWS if best_of == 1 else ("third_party",))
    groups: dict[Any, list[str]] = {}
    for name in ledger.entries:
        traced = ledger.trace(name)
        released = (ledger.seen(name, rounds), traced.basis, traced.public_sizes)
        said = (*released, ledger.claim(name, rounds))
        groups.setdefault(said, []).append(name)
    found = []
    for (*_, claim), names in groups.items():
        certificates = tuple(
            ledger.certify(names[0], rounds, view=view, honest=honest, best_of=best_of)
            for view in views
        )
        asked: Any = (names[0], rounds, views)
        options: Any = {"honest": honest, "best_of": best_of}
        clients = ledger.client_epsilons(*asked, **options)
        of_groups = ledger.group_epsilons(*asked, **options)
        of_one_run = _judged(claim, honest) if best_of == 1 else None
        statistics = {v: c for v in views if (c := ledger.of_statistics(names[0], v, honest))}
        labels = tuple(name_of(name, {name: ledger.entries[name].name or ""}) for name in names)
        found.append(
            Account(
                tuple(names),
                labels,
                rounds,
                honest,
                best_of,
                of_one_run,
                certificates,
                clients,
                of_groups,
                statistics,
            )
        )
    return sorted(found, key=lambda account: not account.private)


def privacy(
    config: str | Path | Config = "quickstart",
    *,
    view: View | None = None,
    honest: float = 1.0,
    best_of: float = 1.0,
    **settings: Any,
) -> list[Account]:
    """The claimed and certified cost of a run of a config; trains nothing.

    With `target_epsilon` it is the cost at the noise that reaches it, with `stop_at_epsilon` that of the rounds
    allowed.

    Args:
      config, settings: as for `run`.
      view: by default all.
      honest: fraction of each cohort that adds its share of the noise and does not collude, in (0, 1].
      best_of: if given, only the best of a secret number of runs is released; that number is geometric with this mean.
        What reaches `target_epsilon` is then the certificate of the best.

    Raises:
      ValueError: an argument is wrong.
    """
    split_cpu()
    _, module = modules.named(config)
    chosen = changed(module.settings, settings)
    honest, best_of = checked("honest", honest, Rate), checked("best_of", best_of, MeanRuns)
    return costs(module, chosen, view and [view], honest, best_of).accounts


class Costs(NamedTuple):
    """What a run of a config would cost.

    Attributes:
      ledger: of its algorithms, with the noise that was solved for.
      accounts: those with noise first.
      noise: of each algorithm, for the settings' `target_epsilon` or `groups.epsilons`.
      groups: of each algorithm, for `groups.epsilons`, what was found for each group.
      solved: what was asked to be solved for, see `solve`.
    """

    ledger: Ledger
    accounts: list[Account]
    noise: dict[str, float]
    solved: dict[str, Any] | None = None
    groups: Mapping[str, dict[str, Any]] = MappingProxyType({})


def costs(
    module: Config,
    settings: Settings,
    views: Sequence[str] | None = None,
    honest: float = 1.0,
    best_of: float = 1.0,
    sought: Sought | None = None,
    claimed: bool = False,
) -> Costs:
    """What a run would cost: `privacy`; with `sought`, after `solve`."""
    found = None
    if sought:
        ledger_of_settings = partial(ledger_of, module)
        settings, found = solve(ledger_of_settings, settings, sought, claimed, honest, best_of)
    require(not claimed or bool(sought), "claimed", claimed, "needs to know what to solve for")
    found_for = budget.solved(module, settings, best_of=best_of)
    ledger = budget.made(partial(ledger_of, module), settings, found_for)
    planned = budget.planned_rounds(ledger, settings)
    priced = []
    for rounds in dict.fromkeys(planned.values()):
        names = [name for name, own in planned.items() if own == rounds]
        part = replace(ledger, entries={name: ledger.entries[name] for name in names})
        priced += accounts(part, rounds, views, honest, best_of)
    priced = sorted(priced, key=lambda account: not account.private)
    noise = {name: noise_of(it) for name, it in found_for.items()}
    return Costs(ledger, priced, noise, found, _of_groups(ledger))


def _of_groups(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """What was found for the groups of each algorithm, by field."""
    each = {
        name: {field: x for field, x in entry.solved.items() if isinstance(x, dict)}
        for name, entry in ledger.entries.items()
    }
    return {name: fields for name, fields in each.items() if fields}


def _judged(claim: Claim | None, honest: float) -> Claim | None:
    """The papers' formulas count on everybody."""
    if claim is None or honest == 1 or not math.isfinite(claim.epsilon):
        return claim
    reason = f"The formula relies on every member of the cohort; here only {honest:.4g} of the noise is relied on."
    return replace(claim, sound=False, reasons=(reason, *claim.reasons))


def as_json(config: str, cost: Costs, notes: Sequence[str]) -> dict[str, Any]:
    """The object that `privacy --json` prints, of the first account; infinity is the string "inf"."""
    account = cost.accounts[0]
    return plain(
        {
            "config": config,
            "algorithms": account.names,
            "rounds": account.rounds,
            "delta": cost.ledger.delta,
            "honest": account.honest,
            "best_of": account.best_of,
            "claimed": account.claim,
            "certified": account.certificates,
            "client_epsilons": account.client_epsilons,
            "group_epsilons": account.group_epsilons,
            "statistics": account.statistics,
            "solved": cost.solved,
            "noise": cost.noise,
            "groups": dict(cost.groups),
            "notes": tuple(notes),
        }
    )


def table(account: Account, delta: float) -> str:
    """What a config costs: view x (claimed, certified by RDP, certified by PLD), and what the numbers mean."""
    unit = account.certificates[0].unit
    rows = [["view", "claimed", "certified for", "certified RDP", "certified PLD"]]
    for certificate in account.certificates:
        rows.append(_row(account, certificate))
        if statistics := account.statistics.get(certificate.view):
            rows.append(["  statistics alone", "-", *_certified(statistics)])
    head = f"{', '.join(account.labels)}: epsilon of {account.rounds} rounds at delta = {delta:.3g}, {unit} level"
    if account.honest < 1:
        head += f", relying on {account.honest:.4g} of the noise's shares"
    if account.best_of > 1:
        head += f", the best of {account.best_of:g} runs on average"
    return "\n".join([head, "", *aligned(rows), "", *_legend(account)])


def _row(account: Account, certificate: Certificate) -> list[str]:
    claim = claimed(account.claim, (certificate.view,))
    return [certificate.view, claim, *_certified(certificate)]


def _certified(certificate: Certificate) -> list[str]:
    nothing = epsilon(plain(certificate.epsilon))
    by = {name: epsilon(plain(value)) for name, value in certificate.epsilons.items()}
    return [
        hyphenated(certificate.relation),
        by.get("RDP", "-" if by else nothing),
        by.get("PLD", "-" if by else nothing),
    ]


def claimed(claim: Claim | None, views: Sequence[str]) -> str:
    """Of what a config costs: the claimed epsilon towards one of `views`; its adjacency may be another."""
    if claim is None or claim.view not in views:
        return "-"
    doubt = "" if claim.sound else " (*)" if claim.status == "claimed" else f" ({claim.status})"
    return f"{epsilon(plain(claim.epsilon))} {hyphenated(claim.relation)}{doubt}"


def _legend(account: Account) -> list[str]:
    lines = []
    if account.claim:
        claim = account.claim
        verdict = (
            "holds for this run"
            if claim.sound
            else f"{'(*) ' * (claim.status == 'claimed')}not proved for this run"
        )
        printed = "gives" if claim.reproduced else "does not give"
        compared = f"; as computed here it {printed} the epsilons that the paper prints"
        lines.append(
            f"{claim.status}: {claim.unit} level, {claim.view}, {hyphenated(claim.relation)} adjacency, delta = "
            f"{claim.delta:.3g}, by {claim.source}; {verdict}"
            + compared
            * (claim.status == "claimed")
        )
        lines += [f"  {reason}" for reason in claim.reasons]
    for c in account.certificates:
        lines.append(f"certified ({c.basis}), {c.view}: {c.bound}; composed: {c.event}")
        if c.view in account.client_epsilons:
            lines.append(f"  {spread_over_clients(account.client_epsilons[c.view])}")
        if c.view in account.group_epsilons:
            lines.append(f"  {epsilons_by_group(account.group_epsilons[c.view])}")
    assumed = assumptions(account.certificates)
    return [*lines, "certified on the assumption that", *(f"  {text}" for text in assumed)]


def picture(ledger: Ledger, account: Account, path: Path, points: int = 12) -> None:
    """What a config costs as a picture: epsilon over the rounds, certified for every view, and claimed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = account.names[0]
    rounds = np.unique(
        np.linspace(1, account.rounds, min(points, account.rounds)).round().astype(int)
    )
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for c in account.certificates:
        if math.isfinite(c.epsilon):
            options: Any = {"view": c.view, "honest": account.honest, "best_of": account.best_of}
            curve = [ledger.certify(name, int(t), **options).epsilon for t in rounds]
            label = f"certified, {c.view}, {hyphenated(c.relation)}"
            axes.plot(rounds, curve, label=label)
    if account.claim and math.isfinite(account.claim.epsilon):
        claims = [ledger.claim(name, int(t)) for t in rounds]
        label = (
            f"{account.claim.status}, {account.claim.view}, {hyphenated(account.claim.relation)}"
        )
        axes.plot(rounds, [c.epsilon for c in claims if c], "k--", label=label)
    axes.set(
        xlabel="round",
        ylabel=f"epsilon at delta = {ledger.delta:.3g}, {account.certificates[0].unit} level",
        yscale="log",
        title=", ".join(account.labels),
    )
    if axes.lines:
        axes.legend()
    save_figure(figure, path, dpi=100)
