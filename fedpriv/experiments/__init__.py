"""Experiments from Python, with what the commands do: `from fedpriv import experiments`.

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

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpriv.experiments import config as config
    from fedpriv.experiments import runs as runs
    from fedpriv.experiments.accounting.cost import Account as Account
    from fedpriv.experiments.accounting.cost import privacy as privacy
    from fedpriv.experiments.attacks.audit.audit import audit as audit
    from fedpriv.experiments.attacks.audit.report import Audited as Audited
    from fedpriv.experiments.papers.reproduce.reproduce import Reproduced as Reproduced
    from fedpriv.experiments.papers.reproduce.reproduce import reproduce as reproduce
    from fedpriv.experiments.runs.run_folder import RunFolder as RunFolder
    from fedpriv.experiments.search.sweep import Swept as Swept
    from fedpriv.experiments.search.sweep import sweep as sweep
    from fedpriv.experiments.tables.report.page import report as report
    from fedpriv.experiments.tables.table_and_figure import Drawn as Drawn
    from fedpriv.experiments.tables.table_and_figure import figure as figure
    from fedpriv.experiments.tables.table_and_figure import table as table
    from fedpriv.experiments.training.train import resume as resume
    from fedpriv.experiments.training.train import run as run
    from fedpriv.experiments.training.trained_run import TrainedRun as TrainedRun
    from fedpriv.experiments.training.trained_run import TrainingError as TrainingError

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
_MODULE = {
    name: f"fedpriv.experiments.{module}" for module, names in _WHERE.items() for name in names
}

_PACKAGES = ("config", "runs")
_RETIRED = {"train": "run", "cost": "privacy"}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"fedpriv.experiments.{name}")
    if name in _RETIRED:
        text = f"experiments.{name}: now experiments.{_RETIRED[name]}; it goes with 1.0"
        warnings.warn(text, FutureWarning, stacklevel=2)
        name = _RETIRED[name]
    if name not in _MODULE:
        raise AttributeError(f"module 'fedpriv.experiments' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__
