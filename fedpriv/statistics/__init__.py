"""Statistics of a federation before training: numbers with standard errors and certificates."""

from fedpriv.statistics.adaptive_quantile import adaptive_quantile
from fedpriv.statistics.histograms import HeavyHitters, heavy_hitters, histogram, quantile
from fedpriv.statistics.moments import Moments, count, mean, mean_and_variance, sum
from fedpriv.statistics.observed import Observed, observed_mean
from fedpriv.statistics.statistic import Released, Statistic

__all__ = [
    "HeavyHitters",
    "Moments",
    "Observed",
    "Released",
    "Statistic",
    "adaptive_quantile",
    "count",
    "heavy_hitters",
    "histogram",
    "mean",
    "mean_and_variance",
    "observed_mean",
    "quantile",
    "sum",
]
