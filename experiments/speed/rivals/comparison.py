"""Rivals' times beside ours: numbers for the JSON object, lines for the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.speed.rivals.runner import Rivals
from experiments.speed.timing import lines, medians, place, ratios, show, spread

Result = dict[str, Any]


def rounds(rivals: Rivals, ours: list[float], clients: int) -> Result:
    """Clients per second of each rival's runs; `ratio_to_NAME` is our speed over that of its best run, turn by turn."""
    found = _failures(rivals)
    for name, about in rivals.about().items():
        times = rivals.seconds(name)
        speeds = {run: spread([clients / t for t in each]) for run, each in times.items()}
        best = max(speeds, key=lambda run: speeds[run]["median"])
        each = ratios(times[best], ours)
        found[name] = about | speeds | {"best": best}
        found |= {f"ratio_to_{name}": each["median"], f"ratios_to_{name}": each}
    return found


def steps(rivals: Rivals, ours: dict[str, list[float]], group: int) -> Result:
    """Beside ours, milliseconds of each rival's runs; `ratios_to_NAME` is our speed over its, by run and turn.

    Args:
      group: calls of `Rivals.once` per turn, of which the median counts.
    """
    found = _failures(rivals)
    for name, about in rivals.about().items():
        times = {run: medians(each, group) for run, each in rivals.seconds(name).items()}
        found[name] = about | {"ms": {r: spread([1e3 * t for t in ts]) for r, ts in times.items()}}
        found[f"ratios_to_{name}"] = {run: ratios(times[run], ours[run]) for run in times}
    return found


def _failures(rivals: Rivals) -> Result:
    found: Result = {name: {"unavailable": why} for name, why in rivals.failures.items()}
    return {"rivals": [*rivals.about(), *found]} | found


def table(
    result: Result, given: str, devices: int, found: Mapping[str, str], how: str | None = None
) -> str:
    """What was measured of a benchmark, where, our numbers and the rivals'."""
    machine = f"{place(result)}; {devices} device(s)"
    head = {
        "workload": f"{result['workload']}, {given}",
        "machine": machine if how is None else f"{machine}; {how}",
        "versions": f"jax {result['jax']}, jaxlib {result['jaxlib']}",
    }
    return lines({**head, **found, **rows(result)})


def rows(result: Result) -> dict[str, str]:
    """The rivals' lines of a benchmark's table, by name."""
    texts: dict[str, str] = {}
    names = result.get("rivals", ())
    for name in names:
        about = result[name]
        if "unavailable" in about:
            texts[name] = f"left out: {about['unavailable']}"
            continue
        versions = ", ".join(f"{package} {v}" for package, v in about["versions"].items())
        texts[name] = f"{versions}; {about['threads']} thread(s), {about['peak_memory_mb']:.0f} MB"
        if "ms" in about:
            for run, each in result[f"ratios_to_{name}"].items():
                ms = show(about["ms"][run], "ms")
                texts[f"{name} {run}"] = f"{ms}; ratio_to_{name} {show(each)}"
        else:
            texts |= {f"{name} {run}": show(about[run], "clients/s") for run in about["runs"]}
            best = show(result[f"ratios_to_{name}"])
            texts[f"ratio_to_{name}"] = f"{best}, to {about['best']}"
        if about["notes"]:
            texts[f"but {name}:"] = "; ".join(about["notes"])
    if any("unavailable" not in result[name] for name in names):
        texts["ratio_to_X above 1:"] = "fedpriv is faster than X"
    return texts
