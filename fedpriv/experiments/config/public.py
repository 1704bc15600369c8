"""Which numbers of a run are public, and which private ones its settings choose by all the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fedpriv.core.complaints import require
from fedpriv.core.json_values import MARK
from fedpriv.engine.client_metric_names import HELD_OUT, TEST, parsed
from fedpriv.experiments.config.stopping import target
from fedpriv.models.score import main_metric
from fedpriv.privacy.certificate import NOT_COVERED

LAST, BEST = "the last round", "the best round"
DECLARED = "the records that clients hold out are declared public: no epsilon here covers them"


class Public(NamedTuple):
    """What is known to be public of what a run measures; everything else is private.

    Public are metrics of the score on test records that are nobody's in training, likewise of groups of these, and of
    the shared model on the records that clients hold out, where the experiment declares these public.

    Attributes:
      of_score: names of the score's metrics.
      own_test: whether the test records are the clients' own, or a part of their training records.
      held_out: whether the records that clients hold out are declared public.
    """

    of_score: Collection[str]
    own_test: bool = False
    held_out: bool = False

    def __contains__(self, name: object) -> bool:
        if name in self.of_score:
            return not self.own_test
        of = parsed(name) if isinstance(name, str) else None
        if of is None:
            return False
        return not self.own_test if of.records == TEST else self.held_out and of.records == HELD_OUT

    def marked(self, name: str) -> str:
        """Its name in files and sinks, which says so where it is private."""
        return name if name in self else f"{name}{MARK}"

    def where(self, name: str) -> str:
        """On which records a private number is, as far as that is known, in words."""
        of = parsed(name)
        if name in self.of_score or (of and of.records == TEST):
            return "test records that are the clients' own"
        if of and of.records == HELD_OUT:
            return "records that clients hold out (private, unless the config says public_held_out)"
        return "private records" if of is None else "clients' own records or models"


class Choice(NamedTuple):
    """What a metric chooses in a run.

    Attributes:
      field: of the settings, which says so.
      metric: by which.
      chosen: what.
    """

    field: str
    metric: str
    chosen: str


def choices(settings: Mapping[str, Any], names: Collection[str]) -> Iterator[Choice]:
    """What the settings choose by metrics: a round to stop at, or the best one.

    The best by a private metric is chosen only where `not_covered` names it; without, its last value is shown.

    Args:
      names: of the score, for the metric that is shown by default.
    """
    metric = settings.get("metric") or (main_metric([*names]) if names else None)
    stop_at, known = settings.get("stop_at"), isinstance(metric, str)
    if isinstance(stop_at, str):
        yield Choice("stop_at", target(stop_at).metric, LAST)
    if settings.get("patience") is not None and known:
        yield Choice("patience", str(metric), LAST)
    if known and metric in allowed(settings):
        yield Choice("metric", str(metric), BEST)


def allowed(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Private metrics that may choose, of settings that may have been read from a file of an older version."""
    found = settings.get("not_covered")
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def check(settings: Mapping[str, Any], public: Public) -> None:
    """Raises ValueError: a private number chooses a round that no setting says is not covered, or one is not needed."""
    made, named = [*choices(settings, public.of_score)], allowed(settings)
    for field, metric, _ in made:
        if metric in public or metric in named:
            continue
        known = [name for name in public.of_score if name in public]
        by = f"choose by {' or '.join(known)}, or " if known else ""
        value = settings[field] if field == "stop_at" else f"{settings[field]} by {metric}"
        raise ValueError(
            f"{field}: {value} chooses {LAST} by {public.where(metric)}, which no epsilon covers; {by}give "
            f"--not-covered {metric} (not_covered), which makes every epsilon infinite"
        )
    for name in named:
        remedy = "it is public, and so covered; leave it out"
        require(name not in public, "not_covered", name, remedy)
        used = any(choice.metric == name for choice in made)
        remedy = "nothing is chosen by it; give it as metric, or with stop_at, or leave it out"
        require(used, "not_covered", name, remedy)


def by_what(settings: Mapping[str, Any], public: Public) -> dict[str, tuple[str, ...]]:
    """What private numbers choose in a run -> their names; empty where none chooses anything."""
    found: dict[str, dict[str, None]] = {}
    for _, metric, chosen in choices(settings, public.of_score):
        if metric not in public:
            found.setdefault(chosen, {})[metric] = None
    if LAST in found:  # by which the best one is, too
        best = found.pop(BEST, {}).keys() - found[LAST].keys()
        found |= {BEST: dict.fromkeys(best)} if best else {}
    return {chosen: tuple(names) for chosen, names in found.items()}


def sentences(chosen: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """What `by_what` gives, in words."""
    return tuple(
        f"{NOT_COVERED}{what} was chosen by {', '.join(by)}" for what, by in chosen.items()
    )
