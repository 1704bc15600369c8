"""The files of a run folder as typed records; what is wrong in them is said in one line with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from experiments.command_line import one_line
from fedpriv.privacy import VIEWS, Certificate, Claim

T = TypeVar("T")


class Spread(NamedTuple):
    """A quantity over the seeds.

    Attributes:
      mean: over the seeds; NaN where a seed has none.
      std: standard deviation (n - 1); None for one seed.
      per_seed: one value per seed.
    """

    mean: float
    std: float | None
    per_seed: tuple[float, ...]


class Evaluation(NamedTuple):
    """A line of metrics.jsonl; megabytes and epsilons are of all rounds so far, `seconds` since the line before."""

    algorithm: str
    round: int
    accuracy: Spread
    loss: Spread
    uplink: float
    downlink: float
    claimed: Claim | None
    certified: Certificate
    measures: dict[str, Spread]
    seconds: float


class Report(NamedTuple):
    """Epsilons of one algorithm: claimed, and certified by view, for `rounds` rounds."""

    rounds: int
    claimed: Claim | None
    certified: dict[str, Certificate]


class Summary(NamedTuple):
    """summary.json; mappings are by algorithm. `diverged` and `reused_from` are what sweeps add."""

    status: str
    algorithm_settings: dict[str, dict[str, Any]]
    rounds: dict[str, int]
    planned: dict[str, int]
    best: dict[str, Spread]
    final: dict[str, Spread]
    uplink: dict[str, float]
    downlink: dict[str, float]
    privacy: dict[str, Report]
    notes: tuple[str, ...]
    rounds_per_second: dict[str, float]
    compile_seconds: dict[str, float | None]
    provenance: dict[str, Any]
    diverged: dict[str, str]
    reused_from: dict[str, str]


def parsed(path: Path, text: str, make: Callable[[Any], T], remedy: str) -> T:
    """`make` of the JSON in `text`.

    Raises:
      ValueError: naming `path` and `remedy`: `text` is not JSON, or lacks something that `make` needs.
    """
    try:
        return make(json.loads(text))
    except KeyError as error:
        raise ValueError(f"RUN: {path} lacks {error}; {remedy}") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"RUN: {path} is damaged ({one_line(error)}); {remedy}") from None


class Identity(NamedTuple):
    """config.json; runs that went on after a stop also say so there, and where they were begun.

    Attributes:
      config: its name.
      settings: its fields.
      resumed: a sentence for each time.
      provenance: versions, device and revision at the start; empty where they are only in summary.json.
    """

    config: str
    settings: dict[str, Any]
    resumed: tuple[str, ...]
    provenance: dict[str, Any]


def identity(content: Any) -> Identity:
    started = _provenance(content["environment"]) if "environment" in content else {}
    resumed = tuple(map(_resumption, content.get("resumed", ())))
    return Identity(str(content["config"]), dict(content["settings"]), resumed, started)


def _resumption(found: Any) -> str:
    differs = "; ".join(map(str, found.get("differs", ())))
    return f"went on after a stop ({found['time']})" + (
        f", elsewhere: {differs}" if differs else ""
    )


def evaluation(line: Any) -> Evaluation:
    privacy = line["privacy"]
    return Evaluation(
        algorithm=str(line["algorithm"]),
        round=int(line["round"]),
        accuracy=spread(line["accuracy"]),
        loss=spread(line["loss"]),
        uplink=float(line["uplink_mb_per_client"]),
        downlink=float(line["downlink_mb_per_client"]),
        claimed=claim(privacy["claimed"]),
        certified=certificate(privacy["certified"]),
        measures={k: spread(v) for k, v in line["diagnostics_not_private"].items()},
        seconds=float(line["seconds"]),
    )


def summary(content: Any) -> Summary:
    accuracy = content["accuracy"]
    found = Summary(
        status=str(content["status"]),
        algorithm_settings=_by_name(content["algorithm_settings"], dict),
        rounds=_by_name(content["rounds"], int),
        planned=_by_name(content["rounds_planned"], int),
        best=_by_name(accuracy["best"], spread),
        final=_by_name(accuracy["final"], spread),
        uplink=_by_name(content["uplink_mb_per_client"], float),
        downlink=_by_name(content["downlink_mb_per_client"], float),
        privacy=_by_name(content["privacy"], report),
        notes=tuple(map(str, content["privacy_notes"])),
        rounds_per_second=_by_name(content["rounds_per_second"], float),
        compile_seconds=_by_name(
            content["compile_seconds"], lambda s: None if s is None else float(s)
        ),
        provenance=_provenance(content),
        diverged=_by_name(content.get("diverged", {}), str),
        reused_from=_by_name(content.get("reused_from", {}), str),
    )
    parts: list[Mapping[str, object]] = [found.planned, found.best, found.final, found.privacy]
    parts += [found.uplink, found.downlink, found.rounds_per_second, found.compile_seconds]
    for part in parts:
        if missing := set(found.rounds) - set(part):
            raise ValueError(f"nothing of {', '.join(sorted(missing))} in one of its parts")
    return found


def _by_name(found: Mapping[str, Any], make: Callable[[Any], T]) -> dict[str, T]:
    return {str(name): make(value) for name, value in found.items()}


def _provenance(content: Any) -> dict[str, Any]:
    device = {f"device {name}": value for name, value in content["device"].items()}
    return {"code revision": content["git_revision"], **device, **content["versions"]}


def report(found: Any) -> Report:
    certified = _by_name(found["certified"], certificate)
    if any(view != c.view for view, c in certified.items()):
        raise ValueError(f"certificates of {', '.join(certified)} are of other views")
    return Report(int(found["rounds"]), claim(found["claimed"]), certified)


def spread(found: Any) -> Spread:
    std = None if found["std"] is None else float(found["std"])
    each = tuple(map(float, found["per_seed"]))
    if not each:
        raise ValueError("a quantity of no seed")
    return Spread(float(found["mean"]), std, each)


def certificate(found: Any) -> Certificate:
    return Certificate(
        **_given(Certificate, found) | {"epsilons": _by_name(found["epsilons"], float)}
    )


def claim(found: Any) -> Claim | None:
    if found is None:
        return None
    judged = {name: bool(found[name]) for name in ("reproduced", "sound")}
    return Claim(**_given(Claim, found) | judged)


def _given(kind: type, found: Any) -> dict[str, Any]:
    """The fields of a claim or certificate: numbers, lists of sentences, words."""
    given: dict[str, Any] = {}
    for name in (f.name for f in fields(kind)):
        if name in ("epsilon", "delta"):
            given[name] = float(found[name])
        elif name in ("assumptions", "reasons"):
            given[name] = tuple(map(str, found[name]))
        elif name == "basis":  # which older runs do not say
            given[name] = str(found.get(name, "declared"))
        else:
            given[name] = str(found[name])
    if given["view"] not in VIEWS:
        raise ValueError(f"view {given['view']!r} is none of {', '.join(VIEWS)}")
    return given
