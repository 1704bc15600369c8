"""Level 2: what a config is, loading it, its fields as options."""

from experiments.config.experiment import (
    Checkpoint,
    Entry,
    Experiment,
    Layout,
    Ledger,
    Run,
    View,
    blank,
    experiment_of,
    federations,
    image,
    ledger_of,
    strategy,
)

__all__ = [
    "Checkpoint",
    "Entry",
    "Experiment",
    "Layout",
    "Ledger",
    "Run",
    "View",
    "blank",
    "experiment_of",
    "federations",
    "image",
    "ledger_of",
    "strategy",
]
