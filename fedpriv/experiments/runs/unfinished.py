"""Run folders to go on with: what they say, what must be as it was, what is done."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.json_values import plain
from fedpriv.engine.checkpoint import differences
from fedpriv.engine.history import Evaluation, History
from fedpriv.experiments.base import user_modules
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings, changed
from fedpriv.experiments.config.stopping import Stopping
from fedpriv.experiments.runs.client_lines import (
    ClientLine,
    by_evaluation,
    read_client_lines,
    with_clients,
)
from fedpriv.experiments.runs.contents import Line
from fedpriv.experiments.runs.run_folder import CONFIG, SUMMARY, read_lines
from fedpriv.models.kept_model import is_kept
from fedpriv.privacy import Certificate

# They change no results.
FREE = ("output", "data_dir", "checkpoint", "record", "record_private", "views", "metric")


class Earlier(NamedTuple):
    """A run that was stopped, to go on with.

    Attributes:
      folder: of the run.
      name: of its config.
      settings: what it was begun with.
      about: what else config.json says.
      lines: of metrics.jsonl.
      clients: of clients.jsonl.
      damaged: whether lines of `clients` are lost.
    """

    folder: Path
    name: str
    settings: Settings
    about: dict[str, Any]
    lines: list[Line]
    clients: Sequence[ClientLine] = ()
    damaged: bool = False

    @property
    def secret_seed(self) -> bool:
        """Whether it was begun with one."""
        return bool(self.about.get("secret_seed"))

    @property
    def evaluations(self) -> dict[str, list[Evaluation]]:
        """All that are recorded, by algorithm."""
        own, found = by_evaluation(self.clients), dict[str, list[Evaluation]]()
        for line in self.lines:
            of_clients = own.get((line.algorithm, line.round), ())
            evaluation = with_clients(line.evaluation(), of_clients)
            found.setdefault(line.algorithm, []).append(evaluation)
        return found

    def finished(
        self, planned: Mapping[str, int], models: bool, stopping: Stopping | None = None
    ) -> dict[str, History]:
        """Of the algorithms that were trained to their end, the first ones of the run.

        Args:
          models: whether one whose models are not there is to be trained on from its last checkpoint.
          stopping: what may have ended one early.
        """
        found: dict[str, History] = {}
        recorded, every = self.evaluations, self.settings.every
        for name, rounds in planned.items():
            evaluations = recorded.get(name, [])
            if models and not all(
                is_kept(self.folder, name, s) for s in range(self.settings.seeds)
            ):
                break
            if self.damaged and not all(e.clients for e in evaluations):
                break
            done, every_one = [e.round for e in evaluations], [*range(every, rounds, every), rounds]
            early = stopping and stopping.why(evaluations)
            if done != every_one[: len(done) if early else None]:
                break
            found[name] = History(tuple(range(self.settings.seeds)), evaluations)
        return found


def earlier(folder: Path, config: Config | None = None) -> tuple[Earlier, Config]:
    """What the folder of a stopped run holds, and its config.

    Args:
      config: of the run, where it was begun with an object.

    Raises:
      ValueError: no run, or one of an older version.
    """
    path = folder / CONFIG
    if not path.exists():
        raise ValueError(f"resume: {folder} holds no run (no config.json); give a run folder")
    try:
        about = json.loads(path.read_text())
        name, settings = about.pop("config"), about.pop("settings")
        about["environment"]["code"]  # also a run's of an older version, which says too little
        if config is None and name.endswith(".py") and not Path(name).is_file():
            raise _gone(folder, name)
        if config is None and not name.endswith(".py") and name not in modules.names():
            raise MissingConfigError(
                f"resume: {folder} is of {name}: there is no {name!r} in configs/; continue an object of your own "
                "with experiments.resume(folder, config=...)"
            )
        if config is None and name.endswith(".py"):
            say(f"resume: runs the code in {name}, which {path} names", file=sys.stderr)
        config = config or modules.load(name)
        saved = changed(config.settings, settings)
    except MissingConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"resume: cannot continue {path} ({type(error).__name__}: {one_line(error)}); it is damaged, or of "
            "another version: begin a new run"
        ) from None
    lines, _ = read_lines(folder, tolerant=True)
    own_test = bool(about.get("own_test")) or saved.fold is not None
    lines = [line.placed(own_test) for line in lines]
    return Earlier(
        folder, name, saved, about, lines, *read_client_lines(folder, tolerant=True)
    ), config


def going_on(found: Earlier, name: str, settings: Settings, secret_seed: bool = False) -> Settings:
    """The settings of a run that goes on; see `FREE` for those that may differ from the run's.

    Args:
      secret_seed: whether one is asked for; a run that was begun with one goes on with it in any case.

    Raises:
      ValueError: others do; names all of them.
    """
    saved, folder = found.settings, found.folder
    if secret_seed and not found.secret_seed:
        raise ValueError(
            f"secret_seed: {folder} was begun without one; leave it out, or begin a new run"
        )
    if (
        settings.output not in (saved.output, None)
        and settings.output.resolve() != folder.resolve()
    ):
        raise ValueError(
            f"output: {settings.output} is not the folder to resume, {folder}; leave it out"
        )
    uses = {
        "by which patience decides when to stop": saved.patience,
        "which bound is of": saved.bound,
    }
    used = [text for text, value in uses.items() if value is not None]
    if settings.metric != saved.metric and used:
        now, before = (each.metric or "the default" for each in (settings, saved))
        raise ValueError(
            f"metric: {now} in place of {before}, {' and '.join(used)}; leave it out, or begin a new run"
        )
    there, here = (
        {"config": found.name, **decisive_settings(saved)},
        {"config": name, **decisive_settings(settings)},
    )
    if different := "; ".join(differences(there, here)):
        raise ValueError(
            f"resume: {folder} is of another run: {different}; leave out what differs, or begin a new run"
        )
    return replace(settings, output=folder)


class MissingConfigError(ValueError):
    """A run's config is not where it was."""


def _gone(folder: Path, name: str) -> MissingConfigError:
    kept = folder / user_modules.KEPT / Path(name).name
    return MissingConfigError(
        f"resume: {folder} is of {name}, which no longer exists; say where it is now: "
        f"FILE before --resume {folder}, or config=FILE (a copy is kept as {kept})"
    )


def decisive_settings(settings: Settings) -> dict[str, Any]:
    """The settings that a run's results depend on, as JSON."""
    return {k: v for k, v in plain(settings).items() if k not in FREE}


def summary_of(folder: Path) -> dict[str, Any]:
    """What summary.json says; nothing where it is damaged or not there."""
    try:
        found = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def how_ended(folder: Path) -> str | None:
    """Of a run that was begun: the status of one that has come to its end; None of one that can go on."""
    status = str(summary_of(folder).get("status"))
    return status if status == "complete" or status.startswith("diverged") else None


def check_cost(found: Earlier, certify: Callable[[str, int], Certificate]) -> None:
    """Refuses to go on where rounds that are done have another epsilon now: it would be told of them, too.

    Args:
      certify: (algorithm, rounds) -> what that costs towards a third party, by the config as it is now.

    Raises:
      ValueError: it is not what a line says.
    """
    for line in {line.algorithm: line for line in found.lines}.values():
        before = line.privacy.certified.epsilon
        now = certify(line.algorithm, line.round).epsilon
        if not math.isclose(before, now, rel_tol=1e-6):
            raise ValueError(
                f"resume: {found.folder} says that {line.round} rounds of {line.algorithm} cost epsilon {before:.4g}, "
                f"the config as it is now {now:.4g}: its code, or that of fedpriv, is another; put back what was "
                "there, or begin a new run"
            )


def resumed(
    found: Earlier, environment: Mapping[str, Any], finished: Mapping[str, History]
) -> tuple[dict[str, Any], str | None]:
    """What config.json is to say of a run that goes on here, and a warning where it is not to the bit.

    `rounds` are where it goes on, `reached` those that it had been evaluated at: what they cost is spent.

    Raises:
      ValueError: another layout of clients: their sums would be rounded in another order; an older version, whose seeds
        give other random numbers.
    """
    before = [entry["environment"] for entry in found.about["resumed"]]
    last = [found.about["environment"], *before][-1]
    if last.get("streams") != environment["streams"]:
        raise ValueError(
            f"resume: {found.folder} was made by an older version, whose seeds give other random numbers; begin a new "
            "run (this one can still be read and compared)"
        )
    different = list(differences(last, environment))
    layout = [text for text in different if text.startswith("layout.")]
    if layout:
        raise ValueError(
            f"resume: {found.folder} was trained with another layout of clients, which adds in another order: "
            f"{'; '.join(layout)}; use as many devices as before"
        )
    if str(environment["git_revision"]).endswith("+") and not different:
        different = ["git_revision: files had been changed, and may have been changed again"]
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rounds": {name: history.evaluations[-1].round for name, history in finished.items()},
        "reached": {line.algorithm: line.round for line in found.lines},
        "differs": different,
        "environment": dict(environment),
    }
    about = found.about | {"resumed": [*found.about["resumed"], entry]}
    if not different:
        return about, None
    return about, (
        f"resume: the run continues in another environment: {'; '.join(different)}; its numbers may differ from "
        "those of an uninterrupted run"
    )
