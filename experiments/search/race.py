"""The command `race`: who is best at one certified budget?

Every entrant is tuned on each data set for each budget: its few settings (`ENTRANTS`, at most 9 trials) are trained on
all but a part of the training records and tested on that part. What was best is trained on all of them, with three
seeds, and tested on the test records. Everything goes through experiments.sweep and experiments.run with the config
`race`, so that the same command with the same DIR goes on where it was stopped.

Tables go to DIR/race.md, with pictures beside it, of what there is so far. Tuning looks at private records: no epsilon
here covers it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.base.command import Parser, command
from experiments.config.fields import Number, check_each
from experiments.runs.run_folder import RunFolder, read, read_all
from experiments.search import race_page, sweep
from experiments.search.race_page import Result, setting
from experiments.training import run

BUDGETS = ("2", "8")
SEEDS = 3


class Entrant(NamedTuple):
    """What is trained.

    Attributes:
      algorithm: of the config `race`.
      grid: field -> the values tried; those of `local.learning_rate` are the data set's.
      options: further settings.
      as_chosen: field -> the entrant, among those before, whose choice it takes.
    """

    algorithm: str
    grid: Mapping[str, str]
    options: tuple[str, ...] = ()
    as_chosen: Mapping[str, str] = {}

    @property
    def budgets(self) -> tuple[str, ...]:
        """Epsilons; "" for what is not private."""
        return ("",) if self.algorithm.startswith("fed_") else BUDGETS


RATE, CLIP, STEP = "local.learning_rate", "clip_norm", "server.learning_rate"
ADAM = ("--server.optimizer", "adam")
ENTRANTS = {
    "FedAvg": Entrant("fed_avg", {RATE: ""}),
    "FedAdam": Entrant("fed_adam", {RATE: "", STEP: "0.01,0.03,0.1"}),
    "DP-FedAvg": Entrant("dp_fed_avg", {RATE: "", CLIP: "0.1,0.3,1,3"}),
    "DP-FedAvgM": Entrant("dp_fed_avg_m", {RATE: "", CLIP: "0.03,0.1,0.3,1"}),
    "DP-FedAdam": Entrant("dp_fed_adam", {RATE: "", STEP: "0.01,0.03,0.1"}, ("--clip-norm", "0.3")),
    "adaptive clipping": Entrant("dp_fed_avg_adaptive", {RATE: "", "quantile": "0.2,0.5,0.8"}),
    "adaptive clipping + Adam": Entrant(
        "dp_fed_avg_adaptive", {RATE: "", STEP: "0.01,0.03,0.1"}, ADAM
    ),
    "rand_k": Entrant(
        "rand_k", {"p": "0.05,0.2,0.5", CLIP: "0.3,1,3"}, as_chosen={RATE: "DP-FedAvg"}
    ),
    "rand_k + Adam": Entrant(
        "rand_k",
        {"p": "0.05,0.2,0.5", STEP: "0.01,0.03"},
        ADAM,
        {RATE: "DP-FedAvg", CLIP: "rand_k"},
    ),
    "top_k": Entrant(
        "top_k", {"p": "0.05,0.2,0.5", CLIP: "0.1,0.3,1"}, as_chosen={RATE: "DP-FedAvg"}
    ),
    "top_k + Adam": Entrant(
        "top_k", {"p": "0.05,0.2,0.5", STEP: "0.01,0.03"}, ADAM, {RATE: "DP-FedAvg", CLIP: "top_k"}
    ),
    "DP-SCAFFOLD": Entrant("dp_scaffold", {RATE: "", CLIP: "0.01,0.1,1"}),
    "calibrated WAV": Entrant("dp_fed_avg_wav_sound", {RATE: "", CLIP: "0.1,0.3,1,3"}),
    "LDP": Entrant("ldp_fed_avg", {RATE: "", CLIP: "0.03,0.1,0.3"}, ("--view", "server")),
}
"""The first two are not private. LDP's budget is for what the server sees of a client, as that is what it is for; the
others' is for a third party."""


class Course(NamedTuple):
    """How a data set is run: client learning rates to try, rounds, and further settings."""

    rates: str
    rounds: int
    settings: str
    without: tuple[str, ...] = ()


def _course(
    rates: str, rounds: int, clients: int, cohort: int, public: int, local: str, *without: str
) -> Course:
    settings = f"--clients {clients} --cohort {cohort} --public-examples {public} {local}"
    return Course(rates, rounds, settings, without)


TWO_STEPS = "--local.epochs 1 --local.batch-size 5"
COURSES = {
    "digits": _course("0.1,0.3", 60, 479, 48, 100, "--local.epochs 5 --local.batch-size 5"),
    "synthetic": _course("0.3,1", 60, 100, 25, 400, "--local.epochs 2 --local.batch-size 10"),
    "fashion_mnist": _course("0.1,0.3", 40, 6000, 100, 1000, TWO_STEPS),
    "cifar10": _course("0.1,0.3", 40, 5000, 100, 1000, TWO_STEPS),
    "shakespeare": _course(
        "1,4", 40, 1138, 57, 1000, "--local.steps 4 --local.batch-size 4", "DP-SCAFFOLD"
    ),
}
FOLDS = {"digits": "3"}  # so that what is left comes out even; else 5


@command
def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m experiments.race", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--datasets", nargs="+", default=list(COURSES), choices=list(COURSES))
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=list(ENTRANTS))
    parser.add_argument("--rounds", type=int, help="of every training, in place of the data set's")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of what was chosen ({SEEDS})")
    parser.add_argument("--data-dir", type=Path, help="prepared data sets, as for experiments.run")
    parser.add_argument("--output", type=Path, default=Path("runs/race"), metavar="DIR")
    options = parser.parse_args(argv)
    check_each(Number, **{"--rounds": options.rounds, "--seeds": options.seeds})
    if not any(ENTRANTS[name].budgets[0] for name in options.entrants):
        raise ValueError(
            f"--entrants: {', '.join(options.entrants)} is not private; add DP-FedAvg, say"
        )
    given = ["--layout.devices", "1"]
    given += ["--data-dir", str(options.data_dir)] if options.data_dir else []
    for dataset in options.datasets:
        for name in options.entrants:
            if name in COURSES[dataset].without:
                continue
            rounds = ["--rounds", str(options.rounds or COURSES[dataset].rounds)]
            contest = Contest(options.output / dataset, dataset, [*given, *rounds])
            code = contest.run(name, options.seeds)
            if code:
                return code
    race_page.write(results(options.output), options.output)
    print(f"tables and pictures: {options.output}")
    return 0


class Contest(NamedTuple):
    """A data set's trainings, in a folder of its own."""

    folder: Path
    dataset: str
    given: list[str]

    def run(self, name: str, seeds: int) -> int:
        """Tunes an entrant and trains what was chosen, where that is not done; returns the exit code."""
        entrant = ENTRANTS[name]
        for budget in entrant.budgets:
            course = ["race", "--dataset", self.dataset, *COURSES[self.dataset].settings.split()]
            course += ["--algorithms", entrant.algorithm, *entrant.options, *self.given]
            course += ["--target-epsilon", budget] if budget else []
            for field, value in self.taken(name, budget).items():
                course += [_flag(field), str(value)]
            code = self._tune(name, budget, course)
            code = code or self._train(name, budget, course, seeds)
            if code:
                return code
        return 0

    def _tune(self, name: str, budget: str, course: list[str]) -> int:
        grid = {f: v or COURSES[self.dataset].rates for f, v in ENTRANTS[name].grid.items()}
        tuning = [*course, "--folds", FOLDS.get(self.dataset, "5"), "--keep-model", "false"]
        tuning += ["--every", "1000000", "--output", str(self.trials(name, budget)), "--grid"]
        with contextlib.redirect_stdout(io.StringIO()):
            return sweep.main([*tuning, *(f"{field}={values}" for field, values in grid.items())])

    def _train(self, name: str, budget: str, course: list[str], seeds: int) -> int:
        chosen = self.best_trial(name, budget)
        for field in ENTRANTS[name].grid:
            course = [*course, _flag(field), str(setting(chosen, field))]
        course += ["--seeds", str(seeds), "--every", "10", "--keep-model", "false"]
        with contextlib.redirect_stdout(io.StringIO()):
            return run.resume_or_start(self.final(name, budget), course)

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
    """What was trained so far."""
    found = []
    for dataset in COURSES:
        contest = Contest(folder / dataset, dataset, [])
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
    return lines[-1].metrics["accuracy"].mean


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _file(name: str, budget: str, settings: Mapping[str, Any]) -> str:
    plain = name.replace(" + ", "-").replace(" ", "-")
    return ",".join(
        [f"{plain}-{budget}" if budget else plain, *(f"{k}={v}" for k, v in settings.items())]
    )
