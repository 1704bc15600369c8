"""Claims of papers."""

import math
from functools import partial

from fedpriv.privacy import FixedSize, Poisson
from fedpriv.privacy.claims import (
    dp_scaffold_claim,
    fed_smp_claim,
    haar_multiplier,
    msp_laplace_claim,
    mspdq_claim,
    wavelet_claim,
)
from refused.row import Refusal

SCAFFOLD = {
    "noise_multiplier": 10.0,
    "clients_per_round": 5,
    "client_rate": 0.05,
    "record_rate": 0.2,
    "local_steps": 5,
    "rounds": 10,
    "delta": 1e-5,
}
OF_SCAFFOLD = {
    "noise_multiplier": -1.0,
    "clients_per_round": 0,
    "client_rate": 0.0,
    "record_rate": 1.5,
    "local_steps": 0,
    "rounds": -1,
    "delta": 1.0,
    "view": "server_secagg",
}
FIXED, RARE = FixedSize(100, 5), Poisson(100, 0.1)

ROWS = [
    *(
        Refusal(
            f"DP-SCAFFOLD's {field} {value}",
            partial(dp_scaffold_claim, **SCAFFOLD | {field: value}),
            field,
            str(value),
        )
        for field, value in OF_SCAFFOLD.items()
    ),
    Refusal("negative noise", lambda: fed_smp_claim(-1.0, FIXED, 3, 1e-5), "multiplier", "-1.0"),
    Refusal("negative rounds", lambda: fed_smp_claim(1.0, FIXED, -3, 1e-5), "rounds", "-3"),
    Refusal("delta above 1", lambda: fed_smp_claim(1.0, FIXED, 3, 2.0), "delta", "2.0"),
    Refusal(
        "less noise than none", lambda: haar_multiplier(-1.0, 8, "levels"), "noise_multiplier", "-1"
    ),
    Refusal("twelve coefficients", lambda: haar_multiplier(1.0, 12, "levels"), "m", "12"),
    Refusal("no coefficients", lambda: haar_multiplier(1.0, 0, "levels"), "m", "0"),
    Refusal("an unknown clip", lambda: haar_multiplier(1.0, 8, "level"), "clip", "'level'"),
    Refusal("a user", lambda: wavelet_claim(1.0, RARE, 1, 1e-5, "user"), "unit", "'user'"),
    Refusal(
        "wavelets of negative noise",
        lambda: wavelet_claim(-1, RARE, 1, 1e-5, "record"),
        "noise_multiplier",
        "-1",
    ),
    Refusal("one level", lambda: mspdq_claim(1, 4, 1.0, 1.0), "levels", "1"),
    Refusal("more levels than bits have", lambda: mspdq_claim(17, 4, 1.0, 1.0), "levels", "17"),
    Refusal("no bits", lambda: mspdq_claim(16, 0, 1.0, 1.0), "bits", "0"),
    Refusal("no interval", lambda: mspdq_claim(16, 4, 0.0, 1.0), "interval", "0.0"),
    Refusal("a negative difference", lambda: mspdq_claim(16, 4, 1.0, -1.0), "difference", "-1.0"),
    *(
        Refusal(f"Laplace noise for {epsilon}", partial(msp_laplace_claim, epsilon), "epsilon")
        for epsilon in (0.0, -1.0, math.inf, math.nan)
    ),
]
