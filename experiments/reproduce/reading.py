"""Numbers read from the run folder of one training, as cells take them."""

from __future__ import annotations

from typing import Any

from experiments.compare import RunFolder
from experiments.reproduce.item import Read, Value


def algorithm(run: RunFolder) -> str:
    """The one algorithm that the run trained."""
    (name,) = run.summary["rounds"]
    return name


def best_accuracy(run: RunFolder) -> Value:
    """Best test accuracy over the evaluations, per seed, in %."""
    return _value(run.summary["accuracy"]["best"][algorithm(run)], 100)


def final_accuracy(run: RunFolder) -> Value:
    """Test accuracy after the last round, in %."""
    return _value(run.summary["accuracy"]["final"][algorithm(run)], 100)


def uplink_mb(run: RunFolder) -> Value:
    """Sent over the run per client of the population, on average, in MB (10^6 bytes)."""
    return Value(run.summary["uplink_mb_per_client"][algorithm(run)])


def last(metric: str, factor: float = 1) -> Read:
    """Reads "loss", "accuracy" (0..1) or anything under "diagnostics_not_private" after the last round."""

    def read(run: RunFolder) -> Value:
        line = run.lines[-1]
        found = line[metric] if metric in ("loss", "accuracy") else None
        return _value(found or line["diagnostics_not_private"][metric], factor)

    return read


def gain(over: Read) -> Read:
    """Reads what the first run has more than the second one; no spread, as the two share their seeds' randomness."""

    def read(first: RunFolder, second: RunFolder) -> Value | str:
        found, other = over(first), over(second)
        if isinstance(found, str) or isinstance(other, str):
            return next(said for said in (found, other) if isinstance(said, str))
        return Value(found.mean - other.mean)

    return read


def saved_uplink(target: float) -> Read:
    """Reads how much less the first run sends than the second until its mean test accuracy (0..1) reaches `target`, in
    %; at evaluations, so in steps of as many rounds as lie between them."""

    def read(first: RunFolder, second: RunFolder) -> Value | str:
        sent = [_uplink_until(run, target) for run in (first, second)]
        if sent[0] is None or sent[1] is None:
            return "not reached"
        return Value(100 * (1 - sent[0] / sent[1]))

    return read


def _uplink_until(run: RunFolder, target: float) -> float | None:
    reached = (x["uplink_mb_per_client"] for x in run.lines if x["accuracy"]["mean"] >= target)
    return next(reached, None)


def _value(spread: dict[str, Any], factor: float) -> Value:
    std = spread["std"]
    return Value(factor * float(spread["mean"]), None if std is None else factor * float(std))
