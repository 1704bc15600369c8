"""What the benchmark's workloads share: seconds, spreads, and the device's name and memory."""

from __future__ import annotations

import contextlib
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def spread(values: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "all": list(values),
    }


def show(numbers: dict[str, Any], unit: str = "") -> str:
    """A spread as text."""
    median, low, high = (f"{numbers[k]:.3g}" for k in ("median", "min", "max"))
    return f"{median} ({low} to {high}) {unit}".rstrip()


def lines(texts: dict[str, str]) -> str:
    """A table of names and texts."""
    return "\n".join(f"{name:<20} {text}" for name, text in texts.items())


def device_memory_mb() -> float | None:
    """Peak of the first device, where it has memory of its own."""
    statistics_of = jax.local_devices()[0].memory_stats() or {}
    peak = statistics_of.get("peak_bytes_in_use")
    return peak and peak / 1e6


def device_name() -> str:
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return f"{device.platform}: {device.device_kind}"
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return "cpu: " + line.split(":", 1)[1].strip()
    return f"cpu: {platform.processor() or platform.machine()}"
