"""The race: every entrant is tuned on each data set for each budget, what was best is trained and tested.

Its few settings (`ENTRANTS`, at most 9 trials) are trained on all but a part of the training records and tested on that
part. What was best is trained on all of them, with several seeds, and tested on the test records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.complaints import require
from fedpriv.experiments.runs.run_folder import RunFolder, read, read_all
from fedpriv.experiments.search import race_page
from fedpriv.experiments.search.race_page import Result, setting
from fedpriv.experiments.search.sweep import sweep
from fedpriv.experiments.training.train import train_or_resume

BUDGETS = ("2", "8")
SEEDS = 3


class Entrant(NamedTuple):
    """An entrant of the race: what is trained.

    Attributes:
      algorithm: of the config `race`.
      grid: field -> the values tried; those of `local.learning_rate` are the data set's.
      settings: further ones.
      as_chosen: field -> the entrant, among those before, whose choice it takes.
    """

    algorithm: str
    grid: Mapping[str, Sequence[float]]
    settings: Mapping[str, Any] = {}
    as_chosen: Mapping[str, str] = {}

    @property
    def budgets(self) -> tuple[str, ...]:
        """Epsilons; "" for what is not private."""
        return ("",) if self.algorithm.startswith("fed_") else BUDGETS


RATE, CLIP, STEP = "local.learning_rate", "clip_norm", "server.learning_rate"
ADAM = {"server.optimizer": "adam"}
ENTRANTS = {
    "FedAvg": Entrant("fed_avg", {RATE: ()}),
    "FedAdam": Entrant("fed_adam", {RATE: (), STEP: (0.01, 0.03, 0.1)}),
    "DP-FedAvg": Entrant("dp_fed_avg", {RATE: (), CLIP: (0.1, 0.3, 1, 3)}),
    "DP-FedAvgM": Entrant("dp_fed_avg_m", {RATE: (), CLIP: (0.03, 0.1, 0.3, 1)}),
    "DP-FedAdam": Entrant("dp_fed_adam", {RATE: (), STEP: (0.01, 0.03, 0.1)}, {CLIP: 0.3}),
    "adaptive clipping": Entrant("dp_fed_avg_adaptive", {RATE: (), "quantile": (0.2, 0.5, 0.8)}),
    "adaptive clipping + Adam": Entrant(
        "dp_fed_avg_adaptive", {RATE: (), STEP: (0.01, 0.03, 0.1)}, ADAM
    ),
    "rand_k": Entrant(
        "rand_k", {"p": (0.05, 0.2, 0.5), CLIP: (0.3, 1, 3)}, as_chosen={RATE: "DP-FedAvg"}
    ),
    "rand_k + Adam": Entrant(
        "rand_k",
        {"p": (0.05, 0.2, 0.5), STEP: (0.01, 0.03)},
        ADAM,
        {RATE: "DP-FedAvg", CLIP: "rand_k"},
    ),
    "top_k": Entrant(
        "top_k", {"p": (0.05, 0.2, 0.5), CLIP: (0.1, 0.3, 1)}, as_chosen={RATE: "DP-FedAvg"}
    ),
    "top_k + Adam": Entrant(
        "top_k",
        {"p": (0.05, 0.2, 0.5), STEP: (0.01, 0.03)},
        ADAM,
        {RATE: "DP-FedAvg", CLIP: "top_k"},
    ),
    "DP-SCAFFOLD": Entrant("dp_scaffold", {RATE: (), CLIP: (0.01, 0.1, 1)}),
    "calibrated WAV": Entrant("dp_fed_avg_wav_sound", {RATE: (), CLIP: (0.1, 0.3, 1, 3)}),
    "LDP": Entrant("ldp_fed_avg", {RATE: (), CLIP: (0.03, 0.1, 0.3)}, {"view": "server"}),
}
"""The first two are not private. LDP's budget is for what the server sees of a client, as that is what it is for; the
others' is for a third party."""


class Course(NamedTuple):
    """A course of the race: how a data set is run.

    Attributes:
      rates: of the clients' learning, to try.
      settings: further ones.
      without: entrants that do not take part.
      folds: into which the training records are divided for tuning.
    """

    rates: tuple[float, ...]
    rounds: int
    settings: Mapping[str, Any]
    without: tuple[str, ...] = ()
    folds: int = 5


def _course(
    rates: tuple[float, ...],
    rounds: int,
    clients: int,
    cohort: int,
    public: int,
    local: Mapping[str, int],
    **more: Any,
) -> Course:
    settings = {"clients": clients, "cohort": cohort, "public_examples": public, "local": local}
    return Course(rates, rounds, settings, **more)


TWO_STEPS = {"epochs": 1, "batch_size": 5}
COURSES = {
    "digits": _course((0.1, 0.3), 60, 479, 48, 100, {"epochs": 5, "batch_size": 5}, folds=3),
    "synthetic": _course((0.3, 1), 60, 100, 25, 400, {"epochs": 2, "batch_size": 10}),
    "fashion_mnist": _course((0.1, 0.3), 40, 6000, 100, 1000, TWO_STEPS),
    "cifar10": _course((0.1, 0.3), 40, 5000, 100, 1000, TWO_STEPS),
    "shakespeare": _course(
        (1, 4), 40, 1138, 57, 1000, {"steps": 4, "batch_size": 4}, without=("DP-SCAFFOLD",)
    ),
}
"""Of the digits a third is tested on, so that what is left comes out even."""


def race(
    folder: str | Path = "runs/race",
    *,
    datasets: Sequence[str] = tuple(COURSES),
    entrants: Sequence[str] = tuple(ENTRANTS),
    rounds: int | None = None,
    seeds: int = SEEDS,
    data_dir: Path | None = None,
    progress: bool = True,
) -> list[Result]:
    """Runs what is not done yet; tables and pictures of all that is done go to the folder.

    Args:
      rounds: of every training, in place of the data set's.
      seeds: of what was chosen.
      progress: whether to show it on standard error.

    Raises:
      ValueError: there is no such data set or entrant, none of the entrants is private, or every trial of one diverged.
      KeyboardInterrupt: it was stopped; asked again, it goes on.
    """
    folder = Path(folder)
    for field, chosen, known in (("datasets", datasets, COURSES), ("entrants", entrants, ENTRANTS)):
        require(len(chosen) > 0, field, [], f"choose among {', '.join(known)}")
        for name in chosen:
            require(name in known, field, name, f"choose among {', '.join(known)}")
    if not any(ENTRANTS[name].budgets[0] for name in entrants):
        raise ValueError(f"entrants: {', '.join(entrants)} is not private; add DP-FedAvg, say")
    common: dict[str, Any] = {"layout.devices": 1} | ({"data_dir": data_dir} if data_dir else {})
    for dataset in datasets:
        for name in entrants:
            if name not in COURSES[dataset].without:
                own = common | {"rounds": rounds or COURSES[dataset].rounds}
                Contest(folder / dataset, dataset, own, progress).run(name, seeds)
    found = results(folder)
    race_page.write(found, folder)
    return found


class Contest(NamedTuple):
    """A data set's trainings in a race, in a folder of its own, with settings that all have."""

    folder: Path
    dataset: str
    settings: Mapping[str, Any]
    progress: bool = True

    def run(self, name: str, seeds: int) -> None:
        """Tunes an entrant and trains what was chosen, where that is not done."""
        entrant = ENTRANTS[name]
        for budget in entrant.budgets:
            course: dict[str, Any] = {"dataset": self.dataset, "algorithms": (entrant.algorithm,)}
            course |= {**COURSES[self.dataset].settings, **entrant.settings, **self.settings}
            course |= {"target_epsilon": float(budget)} if budget else {}
            course |= self.taken(name, budget)
            self._tune(name, budget, course)
            self._train(name, budget, course, seeds)

    def _tune(self, name: str, budget: str, course: Mapping[str, Any]) -> None:
        grid = {f: v or COURSES[self.dataset].rates for f, v in ENTRANTS[name].grid.items()}
        tuning = {"fold": (1, COURSES[self.dataset].folds), "keep_model": False, "every": 1_000_000}
        settings = {"progress": self.progress, **course, **tuning}
        if not sweep("race", grid, folder=self.trials(name, budget), **settings).complete:
            raise KeyboardInterrupt

    def _train(self, name: str, budget: str, course: Mapping[str, Any], seeds: int) -> None:
        best = self.best_trial(name, budget)
        chosen = {field: setting(best, field) for field in ENTRANTS[name].grid}
        chosen |= {"seeds": seeds, "every": 10, "keep_model": False}
        settings = {"progress": self.progress, **course, **chosen}
        ended = train_or_resume("race", self.final(name, budget), **settings)
        if ended.status == "interrupted":
            raise KeyboardInterrupt

    def taken(self, name: str, budget: str) -> dict[str, Any]:
        """Field -> what was chosen for another entrant."""
        others = ENTRANTS[name].as_chosen.items()
        return {field: setting(self.best_trial(other, budget), field) for field, other in others}

    def chosen(self, name: str, budget: str) -> dict[str, Any]:
        """Field -> value, of all that an entrant is tuned in or takes from another."""
        best = self.best_trial(name, budget)
        own = {field: setting(best, field) for field in ENTRANTS[name].grid}
        return own | self.taken(name, budget)

    def trials(self, name: str, budget: str) -> Path:
        """A sweep's folder, another one for other settings that are taken."""
        return self.folder / "trials" / _file(name, budget, self.taken(name, budget))

    def final(self, name: str, budget: str) -> Path:
        """A run's folder, another one for another choice."""
        return self.folder / _file(name, budget, self.chosen(name, budget))

    def best_trial(self, name: str, budget: str) -> RunFolder:
        """At the last round.

        Raises:
          ValueError: there is none.
        """
        trials, _ = read_all([self.trials(name, budget)])
        ended = [trial for trial in trials if trial.lines and not trial.results.diverged]
        if not ended:
            raise ValueError(f"{self.trials(name, budget)}: every trial diverged; try other values")
        return max(ended, key=_accuracy)


def results(folder: Path) -> list[Result]:
    """What was trained so far of a race."""
    found = []
    for dataset in COURSES:
        contest = Contest(folder / dataset, dataset, {})
        for name, entrant in ENTRANTS.items():
            for budget in entrant.budgets:
                if not _begun(contest, name, budget):
                    continue
                final = contest.final(name, budget)
                if (final / "summary.json").exists():
                    trials, _ = read_all([contest.trials(name, budget)])
                    chosen = contest.chosen(name, budget)
                    found.append(Result(dataset, name, budget, read(final), chosen, trials))
    return found


def _begun(contest: Contest, name: str, budget: str) -> bool:
    """Whether an entrant, and those whose choice it takes, have trials."""
    others = ENTRANTS[name].as_chosen.values()
    return (
        all(_begun(contest, other, budget) for other in others)
        and (contest.trials(name, budget) / "table.csv").exists()
    )


def _accuracy(run: RunFolder) -> float:
    (lines,) = run.lines.values()
    return lines[-1].of_score["accuracy"].mean


def _file(name: str, budget: str, settings: Mapping[str, Any]) -> str:
    plain = name.replace(" + ", "-").replace(" ", "-")
    return ",".join(
        [f"{plain}-{budget}" if budget else plain, *(f"{k}={v}" for k, v in settings.items())]
    )
