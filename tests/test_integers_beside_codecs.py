"""A codec beside a mechanism of integers is refused where an algorithm is made, not where it is certified."""

import optax
import pytest
from small import squared

import fedpriv as fp

BITS = {"bits": 16, "noise_multiplier": 2.0}
INTEGERS = {"skellam": fp.skellam(1.0, **BITS), "discrete": fp.discrete_gaussian(1.0, **BITS)}
SAMPLER = fp.fixed_size(12, 4)
LOCAL = {"batches": fp.full_batch(), "optimizer": lambda t: optax.sgd(0.1)}


def buffered(**given):
    delay = fp.delays.constant(1)
    sampler = fp.shuffled_blocks(12, 4)
    return fp.buffered_fed_avg(
        squared, sampler=sampler, delay=delay, staleness=lambda d: 1.0, **LOCAL, **given
    )


MAKE = {
    "fed_avg": lambda **given: fp.fed_avg(squared, sampler=SAMPLER, **LOCAL, **given),
    "alternating": lambda **given: fp.fed_avg_alternating(
        squared, sampler=SAMPLER, turns=("a", "b"), **LOCAL, **given
    ),
    "buffered": buffered,
}


@pytest.mark.parametrize("codec", [fp.qsgd(8), fp.top_k(2)])
@pytest.mark.parametrize("noise", INTEGERS)
@pytest.mark.parametrize("name", MAKE)
def test_it_is_refused_at_once(name, noise, codec):
    with pytest.raises(ValueError, match=r"codec: .*coded already"):
        MAKE[name](mechanism=INTEGERS[noise], codec=codec)
    MAKE[name](mechanism=fp.gaussian(1.0, 2.0), codec=codec)
    MAKE[name](mechanism=INTEGERS[noise])
