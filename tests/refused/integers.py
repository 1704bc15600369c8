"""Mechanisms of integers: bits, clip norms, and what no integers are made of."""

import functools
import math

import fedpriv as fp
from fedpriv.mechanisms.integers import IntegerSum, WrapsError
from refused.row import Refusal

SKELLAM = fp.skellam(0.5, 1.2, bits=16)
DISCRETE = fp.discrete_gaussian(0.5, 1.2, bits=16)
TREE = fp.noise_matrices.tree(rounds=4)


def made(**changed):
    return functools.partial(
        fp.skellam, **{"clip_norm": 0.5, "noise_multiplier": 1.2, "bits": 16} | changed
    )


ROWS = [
    *(
        Refusal(f"bits: {bits!r}", made(bits=bits), "bits:", repr(bits))
        for bits in (True, 16.0, "16", None, 0, 31)
    ),
    Refusal("integers without a bound", made(clip_norm=math.inf), "clip_norm:", "inf"),
    Refusal(
        "integers without a bound or noise",
        made(clip_norm=math.inf, noise_multiplier=0.0),
        "clip_norm:",
        "inf",
    ),
    *(
        row
        for name, used in (("skellam", SKELLAM), ("discrete_gaussian", DISCRETE))
        for row in (
            Refusal(
                f"{name} that changes",
                lambda used=used: fp.dynamic(used, rounds=5, noise_decay=2.0),
                "start:",
            ),
            Refusal(
                f"{name} beside another",
                lambda used=used: fp.joint(fp.gaussian(0.5, 1.2), used),
                "parts[1]:",
            ),
            Refusal(
                f"{name} over rounds",
                lambda used=used: fp.correlated(used, TREE),
                "mechanism:",
            ),
        )
    ),
    Refusal(
        "too few bits",
        lambda: IntegerSum("skellam", 8, 1.0, 1.5, 100, 54_000).scale,
        "bits:",
        "8",
        WrapsError,
        remedy="give 1",
    ),
]
