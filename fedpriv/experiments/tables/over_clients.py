"""Intervals over the clients of a federation, beside those over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.engine.client_metric_names import TEST, parsed
from fedpriv.experiments.runs.client_lines import ClientLine
from fedpriv.experiments.tables.leads import FEWEST, LEVEL

RESAMPLES = 9_999
TOO_FEW = "too few clients"
CONDITIONAL = (
    "over clients: 95 % interval of the mean over clients, of each client's mean over the seeds, by Student's t; then "
    f"by a bootstrap (BCa, {RESAMPLES:,} resamples of the clients, a fixed seed). Both are conditional on the trained "
    "models: clients are drawn again, training is not, so they hold for further clients like these and say nothing of "
    "another training; of fewer than about 20 clients Student's t is the safer one, as a bootstrap covers too little"
)


class ClientScores(NamedTuple):
    """A metric of single clients, for intervals over them.

    Attributes:
      clients: i64[clients], their numbers.
      records: f64[clients], the weight of the records that each was evaluated on, the mean over the seeds.
      values: f64[seeds, clients]; NaN where the metric is undefined.
      without: how many more clients were to be evaluated, and have no such records.
      of_clients: whether they are clients, and not a group of public examples, which has no interval over clients.
      ends: f64[seeds, clients] each, the ends of an interval of 95 % over each client's own records, or persons; NaN
        where there is none; None where that was not measured.
    """

    clients: np.ndarray
    records: np.ndarray
    values: np.ndarray
    without: int = 0
    of_clients: bool = True
    ends: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def mean(self) -> np.ndarray:
        """f64[clients], over the seeds in which it is defined; NaN where it is in none."""
        return mean_over_seeds(self.values)

    def own_interval(self, client: int) -> tuple[float, float] | None:
        """Of the client in this place, over its own records: the mean ends over the seeds in which it has the metric.

        A mean over seeds varies over records no more than its seeds do on average, however alike their records are, so
        the interval is not narrower for more seeds. None where there is none in one of them.
        """
        if self.ends is None:
            return None
        defined = ~np.isnan(self.values[:, client])
        low, high = (
            float(of[defined, client].mean()) if defined.any() else np.nan for of in self.ends
        )
        return None if np.isnan(low) or np.isnan(high) else (low, high)

    def above(self, rival: ClientScores) -> ClientScores:
        """How far it lies above a rival's, client by client and seed by seed, where both have both."""
        common, own, other = np.intersect1d(self.clients, rival.clients, return_indices=True)
        seeds = min(len(self.values), len(rival.values))
        values = self.values[:seeds, own] - rival.values[:seeds, other]
        return ClientScores(common, self.records[own], values)


class OverClients(NamedTuple):
    """A mean over clients with two intervals of 95 %, conditional on the trained models.

    Attributes:
      mean: over the clients; NaN where none has the metric.
      low, high: by Student's t; None where there are too few clients.
      bootstrap_low, bootstrap_high: by a bootstrap of the clients (BCa), likewise.
      clients: behind the mean.
      undefined: clients that are left out, as the metric is undefined for them in every seed.
    """

    mean: float
    low: float | None
    high: float | None
    bootstrap_low: float | None
    bootstrap_high: float | None
    clients: int
    undefined: int

    def text(self, factor: float = 1.0, digits: int = 2, sign: str = "") -> str:
        """ "81.20 (79.10 to 83.30; bootstrap 79.00 to 83.20)", or "81.20 (too few clients)"."""

        def said(*numbers: float | None) -> str:
            return " to ".join(f"{factor * x:{sign}z.{digits}f}" for x in numbers if x is not None)

        if not self.clients:
            return "undefined"
        if self.low is None:
            return f"{said(self.mean)} ({TOO_FEW})"
        by_bootstrap = said(self.bootstrap_low, self.bootstrap_high)
        return f"{said(self.mean)} ({said(self.low, self.high)}; bootstrap {by_bootstrap})"


def scores_of(line: ClientLine, metric: str) -> ClientScores | None:
    """Of a metric of the score, where it is recorded; without clients that have no records."""
    if metric not in line.metrics:
        return None
    there = line.records.any(0)
    values = line.metrics[metric][:, there]
    values = np.where(np.isfinite(values), values, np.nan)
    records = line.records.mean(0)[there]
    own = line.values.interval(metric)
    ends = own and (own[0][:, there], own[1][:, there])
    return ClientScores(line.clients[there], records, values, int(np.sum(~there)), ends=ends)


def behind(lines: Sequence[ClientLine], name: str) -> ClientScores | None:
    """What a metric such as held_out_accuracy_mean is the mean over clients of; None for another metric.

    Args:
      lines: of one evaluation.
    """
    of = parsed(name)
    if of is None or of.statistic != "mean":
        return None
    line = next((line for line in lines if line.kind == of.kind), None)
    scores = scores_of(line, of.metric) if line else None
    return scores and scores._replace(of_clients=of.records != TEST)


def mean_over_seeds(values: np.ndarray) -> np.ndarray:
    """For intervals over clients: f64[clients] of f64[seeds, clients], without NaN; NaN where there is nothing else."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(there, values, 0.0).sum(0) / there.sum(0)


def over_clients(each: np.ndarray) -> OverClients:
    """The mean of f64[clients], those aside that are NaN, with its intervals."""
    known = each[~np.isnan(each)]
    count, left_out = len(known), len(each) - len(known)
    mean = float(known.mean()) if count else float("nan")
    if count < FEWEST:
        return OverClients(mean, None, None, None, None, count, left_out)
    if np.ptp(known) == 0:
        return OverClients(mean, mean, mean, mean, mean, count, left_out)
    from scipy import stats

    by_t = stats.ttest_1samp(known, 0.0).confidence_interval(LEVEL)
    by_bootstrap = stats.bootstrap(
        (known,),
        np.mean,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        batch=max(1, 10**7 // count),
        rng=np.random.default_rng(0),
    ).confidence_interval
    t = (float(by_t.low), float(by_t.high))
    bootstrap = (float(by_bootstrap.low), float(by_bootstrap.high))
    return OverClients(mean, *t, *bootstrap, count, left_out)
