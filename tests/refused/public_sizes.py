"""Draws of records of clients whose numbers of records are public."""

import fedpriv as fp
from refused.row import Refusal

SIZES = [25, 40, 90]


def drawn(sizes=SIZES, **how):
    return lambda: fp.PublicSizes(sizes, **how)


ROWS = [
    Refusal("neither a batch nor a rate", drawn(), "batch", "None"),
    Refusal("a batch and a rate", drawn(batch=3, rate=0.1), "batch", "3"),
    Refusal("room for a batch", drawn(batch=3, capacity=4), "capacity", "4"),
    Refusal("a batch of nothing", drawn(batch=0), "batch", "0"),
    Refusal("a rate above 1", drawn(rate=1.5), "rate", "1.5"),
    Refusal("no clients", drawn(sizes=[], batch=3), "sizes", "()"),
    Refusal("a client without records", drawn(sizes=[3, 0], batch=3), "sizes[1]", "0"),
    Refusal("one size", drawn(sizes=7, batch=3), "sizes", "7"),
]
