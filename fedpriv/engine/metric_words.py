"""How metrics are written, for people."""

from __future__ import annotations

import numpy as np

from fedpriv.engine.client_metric_names import TRAINED, UNDEFINED, parsed

ACRONYMS = {"auc": "AUC", "f1": "F1"}


def in_percent(metric: str) -> bool:
    """Whether a metric is shown in percent: accuracies, and shares of clients by theirs.

    Others that lie in 0..1, such as an AUC, recall or F1, are shown as they are, as the literature prints them.
    """
    of = parsed(metric)
    if of and of.statistic in (TRAINED, UNDEFINED):  # a number of clients
        return False
    return (of.metric if of else metric).endswith("accuracy")


def short_metric(metric: str, values: np.ndarray) -> str:
    """A metric while training: its mean over the seeds."""
    mean = values.mean()
    return f"{metric} {100 * mean:.1f} %" if in_percent(metric) else f"{metric} {mean:.4g}"


def with_unit(metric: str) -> str:
    """A metric in words, with its unit."""
    words = (ACRONYMS.get(word, word) for word in metric.split("_"))
    return " ".join(words) + " (%)" * in_percent(metric)
