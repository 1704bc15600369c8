"""Samplers."""

import fedpriv as fp
from refused.row import Refusal

ROWS = [
    Refusal("a rate above 1", lambda: fp.poisson(10, 1.5), "rate", "1.5"),
]
