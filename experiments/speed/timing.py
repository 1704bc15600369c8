"""Runs timed in turns, so that other load on the machine hits all alike; spreads, tables, the machine."""

from __future__ import annotations

import contextlib
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import jax
import jaxlib

from fedpriv.core import large_pages
from fedpriv.devices.layout import cores


def seconds(run: Callable[[], Any]) -> float:
    """Seconds until the results of a timed run are there."""
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def page_faults(run: Callable[[], Any]) -> int:
    """How often the system had to find memory for a page while a timed run went on."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds(run)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def medians(times: Sequence[float], group: int) -> list[float]:
    """Medians of each `group` consecutive times."""
    return [statistics.median(times[i : i + group]) for i in range(0, len(times), group)]


def in_turns(
    runs: Mapping[str, Callable[[], Any]],
    turns: int,
    others: Callable[[], None],
    *,
    rounds: int = 1,
    calls: Mapping[str, int] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each timed run, one for every turn.

    Args:
      runs: by name; compiled and run once before.
      others: called after all runs.
      rounds: of everything in a turn, of which the median counts.
      calls: of some runs one after another, of which the median counts; by default 1.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        for _ in range(rounds):
            for name, run in runs.items():
                each = [seconds(run) for _ in range((calls or {}).get(name, 1))]
                times[name].append(statistics.median(each))
            others()
        print(f"turn {turn + 1} of {turns} done", file=sys.stderr)
    return {name: medians(each, rounds) for name, each in times.items()}


def spread(values: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "all": list(values),
    }


def ratios(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """Ratios of times, turn by turn."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def show(numbers: dict[str, Any], unit: str = "") -> str:
    """A spread of times as text."""
    median, low, high = (f"{numbers[k]:.3g}" for k in ("median", "min", "max"))
    return f"{median} ({low} to {high}) {unit}".rstrip()


def lines(texts: Mapping[str, str]) -> str:
    """A table of names and texts about what was timed."""
    return "\n".join(f"{name:<20} {text}" for name, text in texts.items())


def machine() -> dict[str, Any]:
    """The machine: what the times depend on."""
    return {
        "device": device_name(),
        "cores": cores(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "large_pages": large_pages.asked_for(),
        "date": date.today().isoformat(),
    }


def place(result: Mapping[str, Any]) -> str:
    """The device, cores and pages of a benchmark's object, as text."""
    pages = "asked for" if result["large_pages"] else "not asked for"
    return f"{result['device']}; {result['cores']} core(s), large pages {pages}"


def device_name() -> str:
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return f"{device.platform}: {device.device_kind}"
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return "cpu: " + line.split(":", 1)[1].strip()
    return f"cpu: {platform.processor() or platform.machine()}"


def device_memory_mb() -> float | None:
    """Beside times: peak of the first device, where it has memory of its own."""
    statistics_of = jax.local_devices()[0].memory_stats() or {}
    peak = statistics_of.get("peak_bytes_in_use")
    return peak and peak / 1e6
