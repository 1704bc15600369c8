"""A CNN's convolutions on this CPU: the way that fedpriv chose for each, and what both ways cost."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from experiments.speed.timing import seconds, spread
from experiments.speed.workloads import Images
from fedpriv.models import conv, winograd

KERNEL = (5, 5)  # of `fedpriv.models.CNN`
CALLS = 20  # of each way, in turns


def measure(workload: Images) -> list[dict[str, Any]]:
    """Of each layer, on a client's batch: {"images", "side", "channels", "forward", "gradient"}.

    The last two, the convolution and its kernel's gradient, are {"chosen", "ms"}: "winograd" or "sum", and a spread for
    each.
    """
    found = []
    side, channels = workload.side, 1
    for filters in workload.filters:
        layer = {"images": workload.examples, "side": side, "channels": [channels, filters]}
        found.append(layer | _timed(workload.examples, side, channels, filters))
        side, channels = side // 2, filters
    return found


def _timed(images: int, side: int, c_in: int, c_out: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, side, side, c_in), np.float32)
    dy = rng.standard_normal((images, side, side, c_out), np.float32)
    w = rng.standard_normal((*KERNEL, c_in, c_out), np.float32)
    forward = {"winograd": winograd.forward, "sum": conv.summed_forward}
    gradient = {
        "winograd": lambda x, dy: winograd.weight_cotangent(x, dy, KERNEL),
        "sum": lambda x, dy: conv.summed_weight_cotangent(x, dy, KERNEL),
    }
    return {
        "forward": {
            "chosen": "winograd" if winograd.forward_pays(x, w) else "sum",
            "ms": _in_turns(forward, x, w),
        },
        "gradient": {
            "chosen": "winograd" if winograd.weight_cotangent_pays(x, w) else "sum",
            "ms": _in_turns(gradient, x, dy),
        },
    }


def _in_turns(ways: dict[str, Any], *arrays: np.ndarray) -> dict[str, Any]:
    given = jax.device_put(arrays)
    compiled = {name: jax.jit(way).lower(*given).compile() for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(CALLS + 1):
        for name, run in compiled.items():
            times[name].append(1e3 * seconds(lambda run=run: run(*given)))
    return {name: spread(each[1:]) for name, each in times.items()}


def rows(found: list[dict[str, Any]]) -> dict[str, str]:
    """The lines of the table, by name."""
    texts = {}
    for i, layer in enumerate(found, 1):
        channels = "{} to {} channels".format(*layer["channels"])
        size = f"{layer['images']} of {layer['side']} x {layer['side']}, {channels}"
        for name in ("forward", "gradient"):
            chosen, ms = layer[name]["chosen"], layer[name]["ms"]
            (other,) = ms.keys() - {chosen}
            text = f"{ms[chosen]['median']:.3g} ms by {chosen}, chosen; {ms[other]['median']:.3g} ms by {other}"
            texts[f"conv {i}, {name}"] = f"{text} ({size})"
    return texts
