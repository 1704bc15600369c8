"""Does one piece of an item's work into its folder, and reads what is there."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import config as configuration
from experiments import run
from experiments.compare import RunFolder
from experiments.files import write_text
from experiments.plain import flat
from experiments.record import device, git_revision, plain, versions
from experiments.reproduce.item import Computation, Scale, Training, Work, text
from experiments.resume import how_ended
from experiments.sweep_grid import cleared, flags

OVERRIDDEN = (
    "algorithms",
    "rounds",
    "seeds",
    "every",
    "output",
    "data_dir",
    "layout",
    "checkpoint",
    "record",
)


def perform(work: Work, scale: Scale, folder: Path, data_dir: Path | None) -> int:
    """Does `work` into `folder`, a training from its last checkpoint on; returns an exit code as the launcher's.

    Raises:
      ValueError: what a computation finds wrong; what is wrong with a training, the launcher says.
      OSError: the folder cannot be written to.
    """
    if isinstance(work, Training):
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # the run's own table is no result of this command
            return run.resume_or_start(folder, arguments(work, scale, data_dir))
    cleared(folder)
    about = {"versions": versions(), "device": device(), "git_revision": git_revision()}
    found = {"status": "complete", **about, **work.compute(scale, data_dir)}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "summary.json", json.dumps(plain(found), indent=2) + "\n")
    return 0


def arguments(training: Training, scale: Scale, data_dir: Path | None) -> list[str]:
    """The launcher's command line, without its folder."""
    default = configuration.load(training.config).config
    fields = {
        "algorithms": training.algorithm,
        **{name: text(value) for name, value in training.at(scale).items()},
        "rounds": str(scale.of(training.rounds)),
        "seeds": str(scale.seeds(training.seeds)),
        "every": str(scale.of(training.every or default.every)),
    }
    given = [flag for name, value in fields.items() for flag in flags(default, name, value)]
    where = ["--data-dir", str(data_dir)] if data_dir else []
    return [training.config, *given, *where]


def result(work: Work, folder: Path) -> RunFolder | None:
    """What `folder` holds of `work`, None if it was not done, or not to its end.

    A training that diverged got to its end; its status says so.

    Raises:
      ValueError: it is damaged, or was trained when the config had other defaults.
    """
    if not how_ended(folder):
        return None
    try:
        summary = json.loads((folder / "summary.json").read_text())
        if isinstance(work, Computation):
            return RunFolder(summary, [])
        metrics = folder / "metrics.jsonl"  # not there if it diverged before the first evaluation
        written = metrics.read_text() if summary["rounds"] else ""
        lines = [json.loads(line) for line in written.splitlines()]
        difference = _changed(work, summary["settings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder}: is damaged; delete it, so that it is done again") from None
    if difference:
        raise ValueError(
            f"{folder}: was trained with {difference}; delete it, or give another --output"
        )
    return RunFolder(summary, lines)


def _changed(training: Training, there: Mapping[str, Any]) -> str | None:
    """The first setting that the training leaves to the config and that is another one now."""
    now, then = (flat(x) for x in (plain(configuration.load(training.config).config), there))
    own = {name.replace("-", "_") for name in training.settings}
    for name in sorted(now.keys() & then.keys() - own):
        if name.partition(".")[0] not in OVERRIDDEN and now[name] != then[name]:
            return f"{name} {then[name]}, where configs/{training.config}.py now has {now[name]}"
    return None
