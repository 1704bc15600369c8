"""Writing a run's folder. What is in there, and who writes it:

config.json            the settings, environment and noise       `Recorder`, when the run begins or goes on
code/                  copies of the user's own modules          `user_modules.keep`, before training
secret_seed            the seed of a run with --secret-seed      `secret_seed.draw`, before config.json
checkpoints/ALGORITHM  from which the run goes on                `simulate`; removed once the results are recorded
clients.jsonl          an evaluation's values per client         `Recorder.evaluation`, as the run goes
metrics.jsonl          a line for each evaluation                `Recorder.evaluation`, as the run goes
model/ALGORITHM/seed-S trained models (`fedpriv.models.load_model`)     `Recorder.models`, after each algorithm
tensorboard/           what --record tensorboard asks for        `TensorBoard`, as the run goes
summary.json           results, epsilons and versions            `Recorder.write_summary`, when the run has ended
METRIC.png             curves by round                           `run_picture.picture`, when the run has ended
writer.json            the process that writes                   `writer.held`, which removes it in the end
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import safetensors  # noqa: F401  if it is missing, say so before training

from fedpriv.core.json_values import plain
from fedpriv.engine.history import Evaluation, History
from fedpriv.experiments.base.files import new_folder_by_time, write_text
from fedpriv.experiments.base.formats import GroupEpsilons
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.provenance import provenance
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.runs.client_lines import CLIENTS, ClientLine
from fedpriv.experiments.runs.contents import Begun, Line, Report, Summary
from fedpriv.experiments.runs.json_lines import JsonLines
from fedpriv.experiments.runs.run_folder import CHECKPOINTS, CONFIG, METRICS, SECRET_SEED, SUMMARY
from fedpriv.experiments.runs.sinks import Sink
from fedpriv.experiments.runs.summary_so_far import so_far
from fedpriv.models.kept_model import save_model
from fedpriv.models.networks import Model
from fedpriv.privacy import VIEWS, Certificate, Claim


def new_folder(settings: Settings, name: str) -> Path:
    """Makes the run folder: the one that is given, or one by the config's name and the time that no other run has.

    Raises:
      ValueError: it holds a run already, or what is left of one, is the current one and not empty, or cannot be made.
    """
    if settings.output is None:
        return new_folder_by_time(Path(name).stem)
    folder = settings.output
    if any((folder / name).exists() for name in (CONFIG, METRICS)):
        raise ValueError(
            f"output: {folder} already holds a run; choose another folder, or resume {folder}"
        )
    for name, what in ((CHECKPOINTS, "checkpoints"), (SECRET_SEED, "the secret seed")):
        if (folder / name).exists():
            raise ValueError(
                f"output: {folder} has {what} of a run whose config.json is gone; delete {folder / name}, or choose "
                "another folder"
            )
    if folder.resolve() == Path.cwd() and any(folder.iterdir()):
        raise ValueError(f"output: {folder} is the current folder; name a new one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output: cannot make {folder} ({error.strerror}); choose another"
        ) from None
    return folder


def cleared_folder(folder: Path) -> Path:
    """The run folder, made if it is not there, without what an interrupted run has recorded in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, METRICS, CLIENTS, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    return folder


def described(
    experiment: Experiment, noise: Mapping[str, Any], planned: Mapping[str, int]
) -> dict[str, Any]:
    """What config.json is to say of an experiment, with the noise that was solved for and the rounds; see `Begun`."""
    entries = experiment.entries
    about: dict[str, Any] = {"noise": dict(noise), "higher": list(experiment.higher)}
    further = {
        "names": experiment.names,
        "solved": {n: dict(entry.solved) for n, entry in entries.items() if entry.solved},
        "algorithm_settings": {n: dict(e.settings) for n, e in entries.items() if e.settings},
        "rounds_planned": dict(planned),
        "own_test": experiment.own_test,
        "public_held_out": experiment.public_held_out,
        "num_clients": next(iter(entries.values())).federations[0].num_clients,
        "client_names": list(experiment.named_clients),
    }
    return about | {name: value for name, value in further.items() if value}


class Privacy:
    """Epsilons of one algorithm by rounds done, each computed once."""

    def __init__(self, ledger: Ledger, algorithm: str):
        self._ledger, self._algorithm = ledger, algorithm

    def claim(self, rounds: int) -> Claim | None:
        return self._ledger.claim(self._algorithm, rounds)

    def certificate(self, rounds: int, view: str) -> Certificate:
        return self._ledger.certify(self._algorithm, rounds, view=view)

    def line(self, algorithm: str, e: Evaluation) -> Line:
        # The pairs of all rounds are in summary.json.
        certified = replace(self.certificate(e.round, "third_party"), compositions=())
        groups = self.groups(e.round, "third_party")
        return Line.of(algorithm, e, self.claim(e.round), certified, groups)

    def groups(self, rounds: int, view: str) -> GroupEpsilons:
        """Certified of each public group, where there are such."""
        return self._ledger.group_epsilons(self._algorithm, rounds, [view]).get(view, {})

    def report(self, rounds: int) -> Report:
        """The claim, and for every view a certificate, the clients' and groups' epsilons, and what it means."""
        certified = {view: self.certificate(rounds, view) for view in VIEWS}
        asked = (self._algorithm, rounds, VIEWS)
        client_epsilons = self._ledger.client_epsilons(*asked)
        group_epsilons = self._ledger.group_epsilons(*asked)
        operational = {
            view: certificate.operational_numbers()
            for view, certificate in certified.items()
            if math.isfinite(certificate.epsilon)
        }
        statistics = {
            view: c for view in VIEWS if (c := self._ledger.of_statistics(self._algorithm, view))
        }
        numbers = (client_epsilons, operational, group_epsilons, statistics)
        return Report(rounds, self.claim(rounds), certified, *numbers, of_all_kinds=True)


class Recorder:
    """Writes a run's folder. A line of metrics.jsonl is on the disk before training goes on.

    What cannot be written once training has begun ends nothing: it is said once, and tried again with what comes next.

    Args:
      folder: of the run.
      name: of the config.
      settings: that config.json is to say.
      about: what else config.json is to say.
      sinks: get every line, too, as JSON.

    Attributes:
      lost: by its name in the folder, what is not written, and why.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: Settings,
        about: Mapping[str, Any] = MappingProxyType({}),
        sinks: Sequence[Sink] = (),
    ):
        self.folder, self._settings = folder, settings
        self._begun = Begun(
            name,
            plain(settings),
            higher=tuple(about.get("higher", ())),
            names=dict(about.get("names", {})),
            secret_seed=bool(about.get("secret_seed")),
            solved=dict(about.get("solved", {})),
            algorithm_settings=dict(about.get("algorithm_settings", {})),
            own_test=bool(about.get("own_test")),
            public_held_out=bool(about.get("public_held_out")),
            num_clients=int(about.get("num_clients", 0)),
            client_names=tuple(about.get("client_names", ())),
            rounds_planned=dict(about.get("rounds_planned", {})),
        )
        self._about, self._resumed = about, about.get("resumed", [])
        self._sinks = sinks
        self._earlier: dict[tuple[str, int], Line] = {}
        self._lines: dict[str, list[Line]] = {}
        self.lost: dict[str, OSError] = {}
        self._unwritten: dict[str, Callable[[], None]] = {}
        self._told = False  # that something cannot be written
        self._to_replace: set[str] = set()  # algorithms whose lines are of before
        self._of_clients: list[ClientLine] = []
        self._files = {  # a line of metrics.jsonl has its lines of clients.jsonl before it
            CLIENTS: JsonLines(folder / CLIENTS, lambda: self._of_clients),
            METRICS: JsonLines(folder / METRICS, lambda: chain(*self._lines.values())),
        }
        self._describe()

    def _describe(self) -> None:
        identity = {"config": self._begun.config, "settings": self._begun.settings}
        _write(self.folder / CONFIG, {**identity, **self._about})

    def evaluation(self, algorithm: str, e: Evaluation, privacy: Privacy) -> None:
        self._append([self._line(algorithm, e, privacy)], ClientLine.of(algorithm, e))

    def _line(self, algorithm: str, e: Evaluation, privacy: Privacy) -> Line:
        return privacy.line(algorithm, e).placed(self._begun.tests_clients)

    def models(self, algorithm: str, model: Model, done: History) -> None:
        """The model that training has ended with, of every seed."""
        params = jax.device_get(done.state.params)
        for i, seed in enumerate(done.seeds):
            of_seed = jax.tree.map(lambda leaf, i=i: leaf[i], params)
            save = partial(save_model, self.folder, algorithm, seed, model, of_seed)
            self._attempt(f"model of {algorithm}, seed {seed}", save)

    def go_on(
        self, lines: Sequence[Line], clients: Sequence[ClientLine], finished: Collection[str]
    ) -> None:
        """Begins again with all that was recorded; sinks get the lines of algorithms that were finished once more.

        Those of another algorithm stay until it is restored, or has trained anew. What an earlier summary said is no
        longer so.
        """
        (self.folder / SUMMARY).unlink(missing_ok=True)
        self._earlier = {(line.algorithm, line.round): line for line in lines}
        self._keep(lines)
        self._of_clients += clients
        self._to_replace = self._lines.keys() - {*finished}
        if self._of_clients or (self.folder / CLIENTS).exists():
            self._files[CLIENTS].write_all()
        self._files[METRICS].write_all()
        self._pass_on([line for line in lines if line.algorithm in finished])

    def restore(self, algorithm: str, evaluations: Sequence[Evaluation], privacy: Privacy) -> None:
        """The lines of an algorithm up to its checkpoint; what was lost of them is written anew."""
        self._append(
            [
                self._earlier.get((algorithm, e.round)) or self._line(algorithm, e, privacy)
                for e in evaluations
            ],
            [line for e in evaluations for line in ClientLine.of(algorithm, e)],
        )
        self._resumed[-1]["rounds"][algorithm] = evaluations[-1].round
        self._attempt(CONFIG, self._describe)

    def retry(self) -> bool:
        """Tries again what could not be written; whether nothing is lost any more."""
        for name, write in list(self._unwritten.items()):
            self._attempt(name, write)
        return not self.lost

    def unrecorded(self) -> str:
        """What of `lost` there is, and why, for a message."""
        why = dict.fromkeys(filter(None, map(outside, self.lost.values())))
        return f"not all is recorded: {', '.join(self.lost)} ({', '.join(why)})"

    def _attempt(self, name: str, write: Callable[[], None]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write()
        except OSError as error:
            self.lost[name], self._unwritten[name] = error, write
            if not self._told:
                self._told = True
                say(
                    f"warning: {name} cannot be written ({outside(error)}); training goes on, and writing is tried "
                    "again",
                    file=sys.stderr,
                )
        else:
            self.lost.pop(name, None)
            self._unwritten.pop(name, None)

    def _append(self, lines: Sequence[Line], clients: Sequence[ClientLine]) -> None:
        for name in {line.algorithm for line in lines} & self._to_replace:
            self._to_replace.remove(name)
            self._lines[name] = []
            kept = [line for line in self._of_clients if line.algorithm != name]
            self._files[METRICS].stale = True
            self._files[CLIENTS].stale |= len(kept) < len(self._of_clients)
            self._of_clients[:] = kept
        self._keep(lines)  # what cannot be written was trained all the same, and its epsilon spent
        self._of_clients += clients
        self._files[METRICS].new += lines
        self._files[CLIENTS].new += clients
        self.retry()
        for name, file in self._files.items():
            self._attempt(name, partial(self._write_lines, file))
        self._pass_on(lines)

    def _write_lines(self, file: JsonLines) -> None:
        if not (self.folder / CONFIG).exists():  # somebody has deleted the folder
            self._describe()
        file.write()

    def _keep(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._lines.setdefault(line.algorithm, []).append(line)

    def _pass_on(self, lines: Sequence[Line]) -> None:
        for line in lines:
            for sink in self._sinks:
                sink.write(plain(line))

    def write_summary(
        self,
        histories: dict[str, History],
        experiment: Experiment,
        planned: dict[str, int],
        status: str,
        remarks: Mapping[str, Any] = MappingProxyType({}),
    ) -> Summary:
        """Writes and returns summary.json, if it can be written; every quantity is a mapping by algorithm.

        Args:
          planned: rounds that each algorithm was to train for.
          remarks: its entries that only sweeps have.
        """
        done, entries = so_far(self._begun, self._lines, status), experiment.entries
        stopped = self._stopped(histories, experiment, done.rounds)
        planned = {n: planned[n] for n in done.rounds}
        # When to stop was for the models to say, and so for the records: what holds is what all rounds would cost.
        reached = {n: planned[n] if n in stopped else t for n, t in done.rounds.items()}
        spent = {n: min(self._spent(n, t, status), planned[n]) for n, t in reached.items()}
        made = replace(
            done,
            algorithm_settings={n: {**entries[n].settings, **entries[n].solved} for n in spent},
            solved={n: dict(entries[n].solved) for n in spent if entries[n].solved},
            rounds_planned=planned,
            stopped=stopped,
            privacy={n: Privacy(experiment.ledger, n).report(t) for n, t in spent.items()},
            privacy_notes=tuple(experiment.notes),
            compile_seconds={n: histories[n].compile_seconds for n in spent},
            **provenance(),
            resumed=tuple(self._resumed),
            **remarks,
        )
        self._attempt(SUMMARY, partial(_write, self.folder / SUMMARY, plain(made)))
        return made

    def _stopped(
        self, histories: Mapping[str, History], experiment: Experiment, evaluated: Collection[str]
    ) -> dict[str, str]:
        """Why training ended, of the algorithms that a metric has ended."""
        stopping = experiment.stopping(self._settings)
        why = {n: stopping.why(histories[n].evaluations) for n in evaluated} if stopping else {}
        return {name: said for name, said in why.items() if said}

    def _spent(self, algorithm: str, done: int, status: str) -> int:
        """Rounds whose epsilon is spent: one that was cut short went on for up to `every` after its last evaluation.

        So it did whenever it was stopped before; what a checkpoint did not keep is done again, but was done.
        """
        every = self._settings.every
        before = [entry.get("reached", {}).get(algorithm, 0) + every for entry in self._resumed]
        return max([done if status == "complete" else done + every, *before])


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(plain(content), indent=2) + "\n")
