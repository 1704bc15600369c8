"""What evaluation computes: sums over examples, metrics from them, and which way each metric is better."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import is_name
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, Params

WEIGHT = "weight"
OVER_CLIENTS = ("mean", "mean_of_trained", "pooled", "median", "worst_decile")
"""Endings of the names of what a metric is over clients, see `fedpriv.measures.per_client`."""
WORST_GROUP, GROUP_GAP = OVER_GROUPS = ("worst_group", "group_gap")
"""Likewise over groups, see `fedpriv.measures.per_group`; a gap is better when lower, whatever the metric."""
_FRACTIONS = tuple(
    name + ending
    for name in ("accuracy", "auc", "f1", "precision", "recall")
    for ending in ("", *(f"_{statistic}" for statistic in (*OVER_CLIENTS, WORST_GROUP)))
)


@dataclass(frozen=True, eq=False)
class Score:
    """A score with metrics that are not means over the examples. For means, a plain function is enough.

    Attributes:
      function: (params, example) -> {name: f32[...]} for ONE example. Its entries are summed over the examples and
        divided by the sum of "weight" (1 for each example where the score has none). A number is a metric. An array of
        any shape, such as a histogram or a confusion matrix, is one entry, and none: `derived` makes metrics of it.
      derived: name -> function of all these means (name -> array) in jax.numpy that gives a number, for a metric that
        is not a mean, such as perplexity, `lambda means: jnp.exp(means["loss"])`. NaN that comes of finite means (0/0:
        a recall where nothing is positive) says that the metric is undefined there. A client's value has an interval
        over its own records only if the metric is among `smooth`.
      higher: metrics that are better when higher, beside those that end in "accuracy", "auc", "f1", "precision" or
        "recall"; all others are better when lower.
      counts: name of a derived fraction -> function of the means that gives the share of the examples behind it, in
        0..1, such as that of the positive ones for a recall. A client's interval takes it where all of them are right;
        without it the interval is wider there.
      smooth: names of derived metrics that have a derivative by the means which tells how far a single record moves
        them: ratios, roots, logarithms. A quantile, a maximum, and whatever chooses a threshold by the records, such as
        a recall at 90 % specificity, are none: their intervals would be too narrow.
    """

    function: Callable[[Params, Example], dict[str, jax.Array]]
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    higher: Collection[str] = ()
    counts: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    smooth: Collection[str] = ()

    def __post_init__(self) -> None:
        require(callable(self.function), "function", self.function, "give that of one example")
        named = isinstance(self.derived, Mapping) and all(map(is_name, self.derived))
        functions = named and all(map(callable, self.derived.values()))
        require(functions, "derived", self.derived, "give functions by name, {'perplexity': ...}")
        several = isinstance(self.higher, Collection) and not isinstance(self.higher, str)
        names = several and all(map(is_name, self.higher))
        require(names, "higher", self.higher, "give names of metrics, as ('auc',)")
        known = isinstance(self.counts, Mapping) and {*self.counts} <= {*self.derived}
        functions = known and all(map(callable, self.counts.values()))
        remedy = "give functions by the name of a derived metric, {'recall': ...}"
        require(functions, "counts", self.counts, remedy)
        several = isinstance(self.smooth, Collection) and not isinstance(self.smooth, str)
        known = several and all(name in self.derived for name in self.smooth)
        require(known, "smooth", self.smooth, "give names of derived metrics, as ('rmse',)")

    def __call__(self, params: Params, example: Example) -> dict[str, jax.Array]:
        """{name: f32[...]}, with a weight."""
        return {WEIGHT: jnp.ones(()), **self.function(params, example)}

    @classmethod
    def of(cls, score: Callable[[Params, Example], dict[str, jax.Array]]) -> Score:
        """`score` as a `Score`."""
        return score if isinstance(score, cls) else cls(score)

    def means(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """Name -> sum over weight, of what `derived` is given."""
        return {name: each / sums[WEIGHT] for name, each in sums.items() if name != WEIGHT}

    def metrics(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """Name -> metric; of arrays of sums that are all of one shape, arrays."""
        weight, means = sums[WEIGHT], self.means(sums)
        metrics = {name: each for name, each in means.items() if jnp.ndim(each) == jnp.ndim(weight)}
        return metrics | {name: derive(means) for name, derive in self.derived.items()}

    def names(self, params: Params, examples: Example) -> list[str]:
        """Names of the metrics, found by tracing alone.

        Args:
          params: the parameters, or their shapes.
          examples: leaves [n, ...].

        Raises:
          ValueError: the score does not return numbers by name.
        """

        def first(params: Params, examples: Example) -> Any:
            metrics = self.function(params, jax.tree.map(lambda leaf: leaf[0], examples))
            for name in metrics if isinstance(metrics, dict) else ():
                require(is_name(name), "score", name, 'name a metric by a text, {"loss": ...}')
            check_leaves("score", metrics)
            return metrics

        returned = jax.eval_shape(first, params, examples)
        if not isinstance(returned, dict) or not set(returned) - {WEIGHT}:
            kind = "an array" if hasattr(returned, "shape") else f"a {type(returned).__name__}"
            what = f"{sorted(returned)} alone" if isinstance(returned, dict) else kind
            raise ValueError(
                f'score: gives {what} for an example; return a dict with a number for each metric, {{"loss": ...}}'
            )
        sums = {WEIGHT: jax.ShapeDtypeStruct((), jnp.float32), **returned}
        self._check_sums(sums)
        try:
            metrics = jax.eval_shape(self.metrics, sums)
        except KeyError as missing:
            raise ValueError(f"score: derived asks for {missing}, which is not a metric") from None
        for name, leaf in metrics.items():
            if getattr(leaf, "shape", None) != ():
                raise ValueError(f"score: derived {name} is {_kind(leaf)}, not a number")
        return list(metrics)

    def _check_sums(self, sums: Mapping[str, Any]) -> None:
        """Raises ValueError: an entry that is neither a number, nor an array that `derived` makes something of."""
        for name, leaf in sums.items():
            array = name != WEIGHT and hasattr(leaf, "shape")
            if getattr(leaf, "shape", None) != () and not (array and self._reads(name, sums)):
                raise ValueError(
                    f"score: {name} is {_kind(leaf)} for an example, not a number; return its sum, and the count as "
                    "weight, or derive a number from the array, by fp.models.Score(.., derived={..})"
                )

    def _reads(self, name: str, sums: Mapping[str, Any]) -> bool:
        """Whether any metric that is derived cannot do without this entry."""
        others = {key: leaf for key, leaf in sums.items() if key not in (name, WEIGHT)}
        for derive in self.derived.values():
            try:
                jax.eval_shape(derive, others)
            except Exception:  # whatever the user's own function makes of what is not there
                return True
        return False


def _kind(leaf: Any) -> Any:
    return list(getattr(leaf, "shape", ())) or type(leaf).__name__


def summed(each: Any, there: jax.Array) -> Any:
    """A score's sums over the leading axis, of the entries [n, ...] that are `there` (bool[n])."""

    def one(entry: jax.Array) -> jax.Array:
        mask = there.reshape(-1, *[1] * (entry.ndim - 1))
        return jnp.sum(jnp.where(mask, entry, 0.0), 0)

    return jax.tree.map(one, each)


def is_finite(sums: Mapping[str, Any]) -> jax.Array:
    """bool[], whether all sums of a score are; then a metric that is NaN is undefined, and nothing has diverged."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(sums)]).all()


def diverged(metrics: Mapping[str, Any], finite: jax.Array) -> jax.Array:
    """bool[], whether the loss (any metric, without a loss) is infinite, or NaN and not because it is undefined."""
    judged = [metrics["loss"]] if "loss" in metrics else [*metrics.values()]
    bad = [jnp.isinf(metric) | jnp.isnan(metric) & ~finite for metric in judged]
    return jnp.stack(bad).any()


def better_higher(name: str, higher: Collection[str] = ()) -> bool:
    """Whether a larger value of the metric is the better one."""
    return is_fraction(name) or name in higher


def is_fraction(name: str) -> bool:
    """Whether the metric is known to be in 0..1, and better when higher."""
    return name.endswith(_FRACTIONS)


def main_metric(names: Sequence[str], wanted: str | None = None) -> str:
    """The metric that stands for the others: the one that is wanted, else accuracy, else loss, else the first.

    Raises:
      ValueError: there is no such metric.
    """
    if wanted is None:
        return next((name for name in ("accuracy", "loss") if name in names), names[0])
    if wanted not in names:
        raise no_metric(wanted, names)
    return wanted


def no_metric(name: str, names: Collection[str]) -> ValueError:
    """The complaint about a metric that a score does not have."""
    said = f"metric: there is no {name!r}; the score gives {', '.join(names)}"
    return ValueError(said + meant(name, names))


def meant(name: str, known: Collection[str]) -> str:
    """What a misspelt metric, or another name, was meant to be, as the end of a complaint; "" where none is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def best(values: np.ndarray, name: str, higher: Collection[str] = ()) -> np.ndarray:
    """The best of a metric f64[evaluations, ...] along the first axis; where it is undefined, it is not the best."""
    return (np.fmax if better_higher(name, higher) else np.fmin).reduce(values)
