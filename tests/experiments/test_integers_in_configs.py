"""Configs whose messages travel as integers: budgets, what is refused, what a run's folder and a sweep say."""

from dataclasses import replace

import pytest

import fedpriv as fp
from configs import quickstart
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.papers import fed_smp
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

VIEW = "server_secagg"
SMALL = replace(quickstart.settings, rounds=3, sampling="fixed_size", algorithms=("rand_k",))


def mechanism(settings):
    every = quickstart.ledger(settings).trace("rand_k").seen(1)
    (seen,) = (each for each in every if each.view == VIEW)
    return plays_of(seen).used


GIVEN = [
    ("fixed_size", None, "discrete_gaussian"),
    ("poisson", None, "skellam"),
    ("fixed_size", "skellam", "skellam"),
]


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN)
def test_bits_and_integer_noise_are_the_mechanism_s(given):
    sampling, noise, used = given
    given = mechanism(replace(SMALL, sampling=sampling, bits=14, integer_noise=noise))
    assert (given.noise, given.integers.bits) == (used, 14)
    assert mechanism(SMALL).integers is None


@pytest.mark.slow
def test_a_budget_is_reached_where_larger_noise_would_wrap():
    """The search tries noise for which the bits do not do; what it finds costs little less than the budget."""
    config = replace(SMALL, bits=9, view=VIEW, target_epsilon=4.0)
    found = budget.solved(quickstart, config)["rand_k"]
    ledger = ledger_of(quickstart, config.with_noise("rand_k", found))
    assert 4.0 * (1 - 1e-3) < ledger.certify("rand_k", 3, view=VIEW).epsilon <= 4.0
    with pytest.raises(ValueError, match="bits: 9, but sums"):
        ledger_of(quickstart, config.with_noise("rand_k", 1000.0)).trace("rand_k")


@pytest.mark.slow
def test_a_budget_for_which_bits_are_too_few_says_how_many_do():
    config = replace(SMALL, bits=6, view=VIEW, target_epsilon=2)
    with pytest.raises(ValueError, match=r"bits: 6, but sums .* give \d+") as refused:
        budget.solved(quickstart, config)
    enough = int(str(refused.value).rpartition(" ")[2])
    assert budget.solved(quickstart, replace(config, bits=enough))["rand_k"] > 0


def test_clients_vanish_with_their_shares():
    drawn = fed_smp.sampler(replace(SMALL, dropout=0.3), 120).accounting
    assert drawn == fp.dropping(fp.fixed_size(120, 30), 0.3, "lost").accounting
