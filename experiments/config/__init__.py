"""Level 2: what a config is, loading it, its fields as options."""

from experiments.config.experiment import (
    Entry,
    Experiment,
    Ledger,
    blank,
    experiment_of,
    federations,
    image,
    ledger_of,
    strategy,
)
from experiments.config.settings import Checkpoint, Layout, Settings, View

__all__ = [
    "Checkpoint",
    "Entry",
    "Experiment",
    "Layout",
    "Ledger",
    "Settings",
    "View",
    "blank",
    "experiment_of",
    "federations",
    "image",
    "ledger_of",
    "strategy",
]
