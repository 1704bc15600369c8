"""Experiments, from Python and as commands (python -m experiments).

    run = experiments.run("quickstart", rounds=20, folder="runs/a")
    run.history["rand_k"], run.certificates["rand_k"]["third_party"], run.folder
    run = experiments.resume("runs/a")
    runs = experiments.sweep("quickstart", {"noise_multiplier": [2, 4, 8]}, folder="runs/noise")
    experiments.table(runs), experiments.figure(runs, "accuracy.pdf"), experiments.report(runs, "report.html")
    experiments.runs.read("runs/a").curves
    experiments.privacy("quickstart"), experiments.audit("quickstart"), experiments.reproduce("fed_smp", "table1")

Nothing heavy is imported before a function is used.
"""

from __future__ import annotations

import gc
import importlib
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments import config as config
    from experiments import runs as runs
    from experiments.accounting.cost import Account as Account
    from experiments.accounting.cost import privacy as privacy
    from experiments.attacks.audit.audit import audit as audit
    from experiments.attacks.audit.report import Audited as Audited
    from experiments.papers.reproduce.reproduce import Reproduced as Reproduced
    from experiments.papers.reproduce.reproduce import reproduce as reproduce
    from experiments.runs.run_folder import RunFolder as RunFolder
    from experiments.search.sweep import Swept as Swept
    from experiments.search.sweep import sweep as sweep
    from experiments.tables.report.page import report as report
    from experiments.tables.table_and_figure import Drawn as Drawn
    from experiments.tables.table_and_figure import figure as figure
    from experiments.tables.table_and_figure import table as table
    from experiments.training.train import resume as resume
    from experiments.training.train import run as run
    from experiments.training.trained_run import TrainedRun as TrainedRun
    from experiments.training.trained_run import TrainingError as TrainingError

_WHERE = {
    "training.train": ("run", "resume"),
    "training.trained_run": ("TrainedRun", "TrainingError"),
    "search.sweep": ("sweep", "Swept"),
    "runs.run_folder": ("RunFolder",),
    "tables.table_and_figure": ("table", "figure", "Drawn"),
    "tables.report.page": ("report",),
    "accounting.cost": ("privacy", "Account"),
    "attacks.audit.audit": ("audit",),
    "attacks.audit.report": ("Audited",),
    "papers.reproduce.reproduce": ("reproduce", "Reproduced"),
}
_MODULE = {name: f"experiments.{module}" for module, names in _WHERE.items() for name in names}

_PACKAGES = ("config", "runs")
_RETIRED = {"train": "run", "cost": "privacy"}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"experiments.{name}")
    if name in _RETIRED:
        text = f"experiments.{name}: now experiments.{_RETIRED[name]}; it goes with 1.0"
        warnings.warn(text, FutureWarning, stacklevel=2)
        name = _RETIRED[name]
    if name not in _MODULE:
        raise AttributeError(f"module 'experiments' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps a function where a command of the same name is imported, such as by a tool that imports every module."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if sys.argv[:1] == ["-m"] and any(word.startswith("experiments") for word in sys.orig_argv):
    # Python is starting one of the commands. What imports and tracing make is not garbage: to look for that after every
    # 700 objects, as Python does, takes a tenth of the time to the first evaluation.
    gc.set_threshold(50_000)
    from experiments.base import signals

    signals.install()
