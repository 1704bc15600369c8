"""Level 2: what a config is, loading it, its fields as options. Here: what a config file imports."""

from fedpriv.experiments.config.experiment import Experiment, federations
from fedpriv.experiments.config.groups import Groups
from fedpriv.experiments.config.ledger import Entry, Ledger, blank, image, text
from fedpriv.experiments.config.modules import load
from fedpriv.experiments.config.settings import Checkpoint, Layout, Settings, View

__all__ = [
    "Checkpoint",
    "Entry",
    "Experiment",
    "Groups",
    "Layout",
    "Ledger",
    "Settings",
    "View",
    "blank",
    "federations",
    "image",
    "load",
    "text",
]
