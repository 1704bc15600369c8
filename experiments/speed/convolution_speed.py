"""A CNN's convolutions on this CPU: the way that fedpriv chose for each, and what both ways cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from experiments.speed.timing import seconds, spread
from experiments.speed.workloads import Images
from fedpriv.models import conv, winograd

KERNEL = (5, 5)  # of `fedpriv.models.CNN`
CALLS = 20  # of each way, in turns


def measure(workload: Images) -> list[dict[str, Any]]:
    """Of each convolution, on a client's batch: {"images", "side", "channels", "forward", "gradient"}.

    The last two, the convolution and its kernel's gradient, are {"chosen", "ms"}: "winograd" or "sum", and a spread for
    each.
    """
    layers = enumerate(pairwise((1, *workload.filters)))
    return [_layer(workload.examples, workload.side // 2**i, *channels) for i, channels in layers]


def _layer(images: int, side: int, c_in: int, c_out: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = (images, side, side, c_in), (*KERNEL, c_in, c_out), (images, side, side, c_out)
    x, w, dy = jax.device_put([rng.standard_normal(shape, np.float32) for shape in shapes])
    forward = {"winograd": winograd.forward, "sum": conv.summed_forward}
    gradient = {"winograd": winograd.weight_cotangent, "sum": conv.summed_weight_cotangent}
    return {
        "images": images,
        "side": side,
        "channels": [c_in, c_out],
        "forward": {
            "chosen": "winograd" if winograd.forward_pays(x, w) else "sum",
            "ms": _in_turns(forward, x, w),
        },
        "gradient": {
            "chosen": "winograd" if winograd.weight_cotangent_pays(x, w) else "sum",
            "ms": _in_turns({k: partial(g, kernel=KERNEL) for k, g in gradient.items()}, x, dy),
        },
    }


def _in_turns(ways: dict[str, Callable[..., jax.Array]], *arrays: jax.Array) -> dict[str, Any]:
    runs = {name: partial(jax.jit(way), *arrays) for name, way in ways.items()}
    times = [{name: 1e3 * seconds(run) for name, run in runs.items()} for _ in range(CALLS + 1)]
    return {name: spread([each[name] for each in times[1:]]) for name in ways}


def rows(found: list[dict[str, Any]]) -> dict[str, str]:
    """The lines of the table of convolutions, by name."""
    texts = {}
    for i, layer in enumerate(found, 1):
        size = "{images} of {side} x {side}, {channels[0]} to {channels[1]} channels".format(
            **layer
        )
        for name in ("forward", "gradient"):
            chosen = layer[name]["chosen"]
            ms = {way: f"{each['median']:.3g} ms" for way, each in layer[name]["ms"].items()}
            (other,) = ms.keys() - {chosen}
            text = f"{ms[chosen]} by {chosen}, chosen; {ms[other]} by {other} ({size})"
            texts[f"conv {i}, {name}"] = text
    return texts
