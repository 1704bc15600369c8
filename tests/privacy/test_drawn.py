"""From draws to pairs: what two ways to say one event have in common, and what counts more."""

import pytest

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import (
    Allocation,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_seen,
    declared,
)

TP = "third_party"
INTEGERS = IntegerNoise("discrete_gaussian", 10, 20.0, 9, 10)
OF_INTEGERS = {"noise": "discrete_gaussian", "integers": INTEGERS}
LOST = Dropping(10, 10, 0.1, True)


def epsilon(release, delta=1e-5):
    return certify_seen([release], delta, release.view).epsilon


@pytest.mark.parametrize("sampling", [Everyone(10), LOST], ids=["whole", "lost shares"])
def test_steps_of_integer_noise_are_rounds(sampling):
    given = TP, "client", INTEGERS.multiplier, sampling
    steps = declared(*given, 1, local_steps=10, **OF_INTEGERS)
    assert epsilon(steps) == pytest.approx(epsilon(declared(*given, 10, **OF_INTEGERS)), rel=1e-9)


def test_steps_of_integer_noise_in_known_rounds():
    """As real noise of its multiplier, which Rényi divergences cost a tenth more."""
    known = {"local_steps": 10, "participation": FixedSize(10, 5)}
    release = declared(TP, "client", INTEGERS.multiplier, Everyone(10), 2, **known, **OF_INTEGERS)
    real = declared(TP, "client", INTEGERS.multiplier, Everyone(10), 2, **known)
    found = certify_seen([release], 1e-5, TP)
    assert 1 <= found.epsilons["RDP"] / epsilon(real) <= 1.15


@pytest.mark.parametrize("integers", [None, INTEGERS], ids=["real", "integers"])
def test_a_unit_drawn_three_times_moves_a_lossy_sum_three_times_as_far(integers):
    def seen(drawn, far):
        noise = integers and integers.moved(far)
        kind = noise.kind if noise else "gaussian"
        m = noise.multiplier if noise else 3.0 / far
        more = {"noise": kind, "integers": noise, "participation": LOST}
        return declared(TP, "client", m, drawn, 5, **more)

    thrice, once = seen(WithReplacement(1, 3, 1.0), 1.0), seen(Everyone(1), 1.0)
    assert epsilon(thrice) == pytest.approx(epsilon(seen(Everyone(1), 3.0)), rel=1e-6)
    assert epsilon(thrice) > 2 * epsilon(once)


def test_blocks_in_known_rounds_count_by_how_often_a_client_takes_part():
    given = "server", "record", 1.0, Allocation(100, 5), 10
    known = epsilon(declared(*given, participation=Poisson(100, 0.5)))
    assert 1.0 < known < epsilon(declared(*given))
