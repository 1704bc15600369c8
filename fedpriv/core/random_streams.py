"""Streams of keys, for `jax.random.fold_in`: what is drawn from one is independent of all else a client draws.

All are beyond the counts that keys are split or folded by (below 2^31), and no two are the same: `fold_in(key, i)` is
`split(key, n)[i]`.
"""

RESERVED = 2**31
"""Numbers from here on are the library's own streams."""

QUANTIZER = 0xB5E70071
DITHER = 0xC1D7109E
OWN_NOISE = 0x9A3C51D9
CONTROL_VARIATE = 0xD2C0A7E1
SUBMODELS = 0xE1F05EC2
"""Of a federation's secrets, which must not be those of a run of the same seed."""
CANARIES = 0xCA4A81E5
COHORT = 0x8F3B2D6C
"""Of a cohort's calls, so that none shares its noise with what a round draws from the same key."""
RECORDS = 0xF70A9C13
"""Likewise of a client's private means."""
DROPOUT = 0x9D0D5EED
"""Of what a random loss draws."""
SCHEDULE = 0xC8D3F06B
"""Of who takes part when, once for a whole run."""
AFTER_OPENING = 0xD90C47B3
"""Likewise of the rounds after an opening, so that no two cohorts of a run share their draws."""
PERSONAL = 0xB7A15E3F
"""Of the training of what a client keeps for itself, beside that of what it shares."""
VANISHING = 0xFA21E0D5
"""Of who vanishes after it was drawn, beside the draw."""
STRAGGLING = 0xE57A6612
"""Of how many of its steps a client takes."""
