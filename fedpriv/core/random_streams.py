"""Streams of keys, for `jax.random.fold_in`: what is drawn from one is independent of all else that is drawn.

All are beyond the counts that keys are split or folded by (below 2^31), and no two are the same: as JAX is set by
default, `fold_in(key, i)` is `split(key, n)[i]`.
"""

QUANTIZER = 0xB5E70071
ROUNDING = 0x91C6E3A5
"""Of the rounding of a message to integers."""
ROTATION = 0xDA73B60F
"""Of the rotation that all messages of a sum have in common."""
DITHER = 0xC1D7109E
CONTROL_VARIATE = 0xD2C0A7E1
SUBMODELS = 0xE1F05EC2
"""Of a federation's secrets, which must not be those of a run of the same seed."""
CANARIES = 0xCA4A81E5
COHORT = 0x8F3B2D6C
"""Of a cohort's calls, so that clients share no numbers with what a round draws from the same key."""
DROPOUT = 0x9D0D5EED
"""Of what a random loss draws."""
PERSONAL = 0xB7A15E3F
"""Of the training of what a client keeps for itself, beside that of what it shares."""
STRAGGLING = 0xE57A6612
"""Of how many of its steps a client takes."""

PUBLIC = 0xD4B60C19
"""Of all that a run draws from keys that its parts hold: they are public."""
HIDDEN = 0x9A3C51D9
"""Of what certificates rest on: its keys are the engine's alone."""
SCHEDULE = 0xC8D3F06B
"""Of who takes part when, once for a whole run."""
PARTICIPATION = 0xA16F3E85
"""Of who takes part in a round."""
VANISHING = 0xFA21E0D5
"""Of who vanishes after it was drawn, beside the draw."""
DELAYS = 0xDE1A5C39
"""Of how late a member answers, beside the draw."""
RECORDS = 0xF70A9C13
"""Of the records that a private mean draws."""
NOISE = 0xE3A9D057
"""Of the noise of a sum, or of a private mean."""
OWN_NOISE = 0x86C4B1F2
"""Of the noise that a client adds to its own message."""
SECRET_CHECK = 0xE3C5A94F
"""Of the numbers that tell the checkpoints of one secret seed from those of another."""
