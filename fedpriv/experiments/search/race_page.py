"""Tables and pictures of a race: who is best at which budget, by how much, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.files import save_figure
from fedpriv.core.json_values import flat
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.contents import Line
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.leads import FEWEST, Lead, lead
from fedpriv.experiments.tables.plots import look, scale, sheet
from fedpriv.privacy.epsilon_words import hyphenated

SHORT = {"local.learning_rate": "client", "server.learning_rate": "server", "clip_norm": "C"}
"""What is chosen: learning rates of clients and server, clip norm."""
EDGE = "*: at the edge of three or more values tried"
UNCOVERED = (
    "Every epsilon is of one training, and so of the model of one seed. Not covered: the settings were chosen by "
    "accuracy on parts of the private training records."
)
LEADS = (
    "leads: mean and 95 % interval of the differences seed by seed (Student's t); not told apart: the interval holds "
    f"0, or there are fewer than {FEWEST} seeds",
    "entrants share their seeds (clients, initial model, random numbers), so that leads at several budgets are no "
    "independent results; the best is chosen by the accuracies that it is compared by",
)
NOT_PRIVATE = {"color": "0.5", "marker": "|", "linestyle": "none"}


class Result(NamedTuple):
    """A race's result: an entrant on a data set at a budget.

    Attributes:
      budget: epsilon as text; "" for what is not private.
      final: the run with the chosen settings.
      chosen: field -> value.
      trials: the runs that were compared.
    """

    dataset: str
    entrant: str
    budget: str
    final: RunFolder
    chosen: Mapping[str, Any]
    trials: Sequence[RunFolder]

    @property
    def last(self) -> Line:
        (lines,) = self.final.lines.values()
        return lines[-1]

    @property
    def accuracy(self) -> Spread:
        """On the test records, after the last round."""
        return self.last.of_score["accuracy"]

    @property
    def seconds(self) -> float:
        """Of training and evaluation, trials included, without compilation."""
        runs = [*self.trials, self.final]
        return sum(line.seconds for run in runs for of in run.lines.values() for line in of)


def setting(run: RunFolder, field: str) -> Any:
    """The value of an entrant's field, nested ones by dots."""
    return flat(run.settings)[field]


def write(found: Sequence[Result], folder: Path) -> None:
    """race.md and the pictures, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = comparable(found)
    datasets = list(dict.fromkeys(r.dataset for r in found))
    parts = [UNCOVERED, "## Who wins", winners(found)]
    for dataset in datasets:
        parts += [f"## {dataset}", table([r for r in found if r.dataset == dataset])]
    write_text(folder / "race.md", "\n\n".join(parts) + "\n")
    by_epsilon(found, folder / "race_epsilon.png")
    by_uplink(found, folder / "race_uplink.png")


def comparable(found: Sequence[Result]) -> list[Result]:
    """Of a race's data sets those where somebody private has ended."""
    private = {r.dataset for r in found if r.budget}
    return [r for r in found if r.dataset in private]


def budgets(found: Sequence[Result]) -> list[str]:
    return sorted({r.budget for r in found} - {""}, key=float)


def winners(found: Sequence[Result]) -> str:
    """A line per data set and budget: the best, those that are not told apart from it, its lead over DP-FedAvg."""
    rows = [
        [
            *["data", "epsilon", "best", "accuracy", "seeds"],
            *["not told apart from it", "lead over DP-FedAvg (95 %)"],
        ]
    ]
    for dataset in dict.fromkeys(r.dataset for r in found):
        for budget in budgets(found):
            ranked = sorted(
                (r for r in found if (r.dataset, r.budget) == (dataset, budget)),
                key=lambda r: -r.accuracy.mean,
            )
            if not ranked:
                continue
            first, *others = ranked
            near = [r.entrant for r in others if not ahead(first, r).is_told_apart]
            base = [r for r in others if r.entrant == "DP-FedAvg"]
            said = ahead(first, base[0]).text(100, 1) if base else "-"
            seeds = str(len(first.accuracy.per_seed))
            cells = [dataset, budget, first.entrant, _percent(first.accuracy), seeds]
            rows.append([*cells, ", ".join(near) or "nobody", said])
    return markdown_table(rows, LEADS)


def ahead(first: Result, second: Result) -> Lead:
    """How far an entrant's accuracies are ahead of another's, seed by seed."""
    return lead(first.accuracy.per_seed, second.accuracy.per_seed)


def table(found: Sequence[Result]) -> str:
    """A race's table of a data set: accuracies by budget, uplink, what was tried and chosen, and how long it took."""
    steps = budgets(found)
    head = ["entrant", *(f"epsilon {b}" for b in steps), *(f"chosen at {b}" for b in steps)]
    rows = [[*head, "tried", f"MB up at {steps[-1]}", "seconds"]]
    for entrant in dict.fromkeys(r.entrant for r in found):
        own = {r.budget: r for r in found if r.entrant == entrant}
        each = [own.get(budget, own.get("")) for budget in steps]
        last = next(r for r in reversed(each) if r)
        cells = [_percent(r.accuracy) if r else "-" for r in each]
        cells += [_chosen(r) if r else "-" for r in each]
        cells += [_tried(last), f"{last.last.uplink_mb_per_client:.3g}"]
        rows.append([entrant, *cells, f"{sum(r.seconds for r in own.values()):.0f}"])
    return markdown_table(rows, [EDGE, *_meaning(found)])


def _meaning(found: Sequence[Result]) -> list[str]:
    """Of the epsilons."""
    said: dict[str, list[str]] = {}
    for r in found:
        (privacy,) = r.final.results.privacy.values()
        c = privacy.certified[r.final.settings["view"]]
        if r.budget:
            view, adjacency = c.view.replace("_", " "), hyphenated(c.relation)
            text = f"{c.unit} level, {view}, {adjacency} adjacency, delta {c.delta:.3g}, {c.basis}"
            said.setdefault(text, []).append(r.entrant)
    return [f"epsilon of {', '.join(dict.fromkeys(of))}: {text}" for text, of in said.items()]


def _chosen(result: Result) -> str:
    marked = {f: "*" if _at_edge(v, _values(result, f)) else "" for f, v in result.chosen.items()}
    return "; ".join(f"{SHORT.get(f, f)} {v:g}{marked[f]}" for f, v in result.chosen.items())


def _at_edge(value: float, values: Sequence[float]) -> bool:
    return len(values) > 2 and value in (values[0], values[-1])


def _tried(result: Result) -> str:
    """The values of what was tuned for this entrant itself."""
    each = {field: _values(result, field) for field in result.chosen}
    said = [
        f"{SHORT.get(f, f)} {' '.join(f'{v:g}' for v in values)}"
        for f, values in each.items()
        if len(values) > 1
    ]
    return "; ".join(said)


def _values(result: Result, field: str) -> list[float]:
    return sorted({setting(trial, field) for trial in result.trials})


def _percent(s: Spread) -> str:
    return f"{100 * s.mean:.1f} ± {100 * (s.std or 0.0):.1f}"


def by_epsilon(found: Sequence[Result], path: Path) -> None:
    """Accuracy of every entrant of a race, a mark for each budget, a panel per data set; not private in grey."""
    entrants, steps = _entrants(found), budgets(found)
    with _panels(found, path, 0.19 * len(entrants) + 0.9) as panels:
        for dataset, axes in panels.items():
            for number, budget in enumerate(["", *steps]):
                own = [r for r in found if (r.dataset, r.budget) == (dataset, budget)]
                style = {**look(number - 1, 0), "linestyle": "none"} if budget else NOT_PRIVATE
                axes.errorbar(
                    [100 * r.accuracy.mean for r in own],
                    [entrants.index(r.entrant) for r in own],
                    xerr=[100 * (r.accuracy.std or 0.0) for r in own],
                    label=f"epsilon {budget}" if budget else "not private",
                    **style,
                )
            axes.set(
                yticks=range(len(entrants)),
                xlabel="test accuracy (%)",
                ylim=(len(entrants) - 0.5, -0.5),
            )
            axes.set_yticklabels(entrants if axes is next(iter(panels.values())) else [])
            scale(axes, "x", False)


def by_uplink(found: Sequence[Result], path: Path) -> None:
    """A race's accuracy at the largest budget against the uplink, a panel per data set."""
    entrants, most = _entrants(found), budgets(found)[-1]
    with _panels(found, path, 3.0) as panels:
        for dataset, axes in panels.items():
            for r in found:
                if r.dataset != dataset or r.budget not in ("", most):
                    continue
                number = entrants.index(r.entrant)
                style = {**look(number, number // 7), "linestyle": "none", "label": r.entrant}
                y, spread = r.accuracy.mean, r.accuracy.std or 0.0
                axes.errorbar(
                    r.last.uplink_mb_per_client, 100 * y, 100 * spread, capsize=2, **style
                )
            scale(axes, "x", True)
            axes.set_xlabel(f"uplink per client (MB), epsilon {most}")
        next(iter(panels.values())).set_ylabel("test accuracy (%)")


def _entrants(found: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(r.entrant for r in found))


@contextmanager
def _panels(found: Sequence[Result], path: Path, height: float) -> Iterator[dict[str, Any]]:
    """Axes by data set, with one legend, written to a file."""
    datasets = list(dict.fromkeys(r.dataset for r in found))
    with sheet(2.2 * len(datasets) + 1.8, height) as figure:
        panels = dict(
            zip(datasets, figure.subplots(1, len(datasets), squeeze=False)[0], strict=True)
        )
        yield panels
        every: dict[str, Any] = {}
        for dataset, axes in panels.items():
            axes.set_title(dataset)
            handles, names = axes.get_legend_handles_labels()
            every |= dict(zip(names, handles, strict=True))
        figure.legend(every.values(), every, loc="outside right center")
        save_figure(figure, path, dpi=150)
