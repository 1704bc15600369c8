"""The files of a run folder as typed records; what is wrong in them is said in one line with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from experiments.command_line import one_line
from fedpriv.privacy import Certificate, Claim

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
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"RUN: {path} is damaged ({one_line(error)}); {remedy}") from None


def identity(content: Any) -> tuple[str, dict[str, Any]]:
    """The config's name and its settings, from config.json."""
    return str(content["config"]), dict(content["settings"])


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
    return Summary(
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


def _by_name(found: Mapping[str, Any], make: Callable[[Any], T]) -> dict[str, T]:
    return {str(name): make(value) for name, value in found.items()}


def _provenance(content: Any) -> dict[str, Any]:
    device = {f"device {name}": value for name, value in content["device"].items()}
    return {"code revision": content["git_revision"], **device, **content["versions"]}


def report(found: Any) -> Report:
    return Report(
        int(found["rounds"]), claim(found["claimed"]), _by_name(found["certified"], certificate)
    )


def spread(found: Any) -> Spread:
    std = None if found["std"] is None else float(found["std"])
    return Spread(float(found["mean"]), std, tuple(map(float, found["per_seed"])))


def certificate(found: Any) -> Certificate:
    given = {f.name: found[f.name] for f in fields(Certificate)}
    given |= {
        "epsilon": float(found["epsilon"]),
        "delta": float(found["delta"]),
        "assumptions": tuple(map(str, found["assumptions"])),
        "epsilons": _by_name(found["epsilons"], float),
    }
    return Certificate(**given)


def claim(found: Any) -> Claim | None:
    if found is None:
        return None
    given = {f.name: found[f.name] for f in fields(Claim)}
    numbers = {name: float(found[name]) for name in ("epsilon", "delta")}
    return Claim(**given | numbers | {"reasons": tuple(map(str, found["reasons"]))})
