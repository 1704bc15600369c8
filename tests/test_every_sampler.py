"""The laws of every sampler of `every_sampler.py`: what is drawn is what is accounted for, wherever a run draws it."""

from itertools import pairwise

import numpy as np
import pytest
import tiers
from every_sampler import (
    DRAWN,
    EVERYBODY,
    LABELS,
    NOBODY,
    ROUNDS,
    RUNS,
    SAMPLERS,
    N,
    drawn_by,
    draws,
    told,
)
from scipy import stats
from small import FALSE_ALARM, assert_uniform, z_bound

from fedpriv.privacy.sampling import CyclicPoisson, FixedSize, RandomAllocation, WithReplacement
from fedpriv.privacy.sampling.asked import joining
from fedpriv.rounds.samplers import Sampler

pytestmark = pytest.mark.usefixtures("quick_to_compile")

every_draw = tiers.every("name", DRAWN)
EACH = RUNS * ROUNDS


def turns_of(own):
    """Rounds of a run that may be a client's, or its blocks."""
    return ROUNDS if own.turns is None else own.turns.of(ROUNDS)


def chance_of(own):
    """That a client takes part in such a round; of a block, in any of its rounds."""
    return 1 / own.block if isinstance(own, RandomAllocation) else joining(own.of_a_round)


@every_draw
def test_slots(name):
    """An empty one has nobody's id; there is room for all; a client fills as many as is told."""
    drawn, sampler = draws(name), SAMPLERS[name]
    assert drawn.ids.shape == (RUNS, ROUNDS, sampler.slots)
    np.testing.assert_array_equal(drawn.ids == N, ~drawn.mask)
    assert drawn.ids.min() >= 0
    sizes = drawn.mask.sum(-1)
    assert sizes.max() <= sampler.accounting.most <= sampler.slots
    if sampler.accounting.full and sampler.accounting.of_a_round.vanish == 0:
        assert sizes.min() == sampler.accounting.most
    most = 1 if sampler.accounting.group_names else sampler.accounting.of_a_round.repeats
    assert drawn.times.max() <= most


@every_draw
def test_no_client_takes_part_sooner_or_more_often_than_is_told(name):
    """In any run: its rounds are as far apart, and as few, as the accounting says."""
    times = draws(name).times > 0
    for client in range(N):
        own = told(SAMPLERS[name], client)
        assert times[..., client].sum(1).max() <= turns_of(own)
        if isinstance(own, RandomAllocation):
            blocks = times[..., client].reshape(RUNS, -1, own.block).sum(-1)
            assert blocks.max() == 1
        elif own.turns is not None:
            rounds = [np.flatnonzero(run) for run in times[..., client]]
            assert all(b - a >= own.turns.apart for turns in rounds for a, b in pairwise(turns))


KNOWN = {name: entry for name, entry in DRAWN.items() if chance_of(told(entry.sampler, 0)) == 1}
"""Where nothing is left to chance, or an adversary is taken to know who takes part: the bounds above say it all."""


@tiers.every("name", {name: entry for name, entry in DRAWN.items() if name not in KNOWN})
def test_chances_are_those_that_are_told(name):
    """Of each client whose turn it is, by binomial bounds; the likeliest one's, where clients have weights.

    No less often than told, where draws have no memory: also in groups, and in turns where nobody is cut.
    """
    sampler, times = SAMPLERS[name], draws(name).times > 0
    in_groups = isinstance(sampler, Sampler) and sampler.accounting.group_names
    in_turns = isinstance(sampler.accounting, CyclicPoisson | RandomAllocation)
    is_exact = DRAWN[name].is_alike or in_groups or (in_turns and not DRAWN[name].is_cut)
    for client in range(N):
        own = told(sampler, client)
        turns, chance = RUNS * turns_of(own), chance_of(own)
        if isinstance(own, RandomAllocation):
            turns = EACH
        count = times[..., client].sum()
        alarm = FALSE_ALARM / N / 2
        assert count <= stats.binom.isf(alarm, turns, chance)
        if is_exact:
            assert count >= stats.binom.ppf(alarm, turns, chance)


ALIKE = {
    name: entry
    for name, entry in DRAWN.items()
    if not isinstance(entry.sampler.accounting, WithReplacement)
}


@tiers.every("name", ALIKE)
def test_all_clients_of_a_group_are_drawn_equally_often(name):
    """On average over runs, by a z-test of each; but where they have weights of their own."""
    sampler, times = SAMPLERS[name], draws(name).times.sum(1)
    for group in sampler.accounting.group_names or [""]:
        own = times[:, [not group or label == group for label in LABELS]]
        away = own - own.mean(1, keepdims=True)
        assert np.abs(away.mean(0)).max() <= z_bound(N) * max(away.std(), 1e-6) / RUNS**0.5


@tiers.every("name", {name: entry for name, entry in DRAWN.items() if entry.is_alike})
def test_pairs_are_drawn_as_often_as_is_told(name):
    """Of any two clients no more often, and on average as often where nobody is cut."""
    accounting, there = SAMPLERS[name].accounting, draws(name).times.reshape(EACH, N) > 0
    pairs = (there.T.astype(int) @ there)[np.triu_indices(N, 1)]
    rate = accounting.together
    if accounting.vanish:
        rate = FixedSize(N, accounting.size).together * (1 - accounting.vanish) ** 2
    assert pairs.max() <= stats.binom.isf(FALSE_ALARM / len(pairs), EACH, rate)
    if not DRAWN[name].is_cut:
        assert_uniform(pairs, EACH, rate)


@every_draw
def test_a_mean_divides_by_what_is_expected(name):
    """By no less than members count on average; by just that where each draw is as the other, and nobody is cut."""
    sampler, weight = SAMPLERS[name], draws(name).weight.ravel()
    away = (weight.mean() - sampler.expected_size) / max(weight.std(), 1e-6) * EACH**0.5
    assert away <= z_bound(1)
    if isinstance(sampler, Sampler) and not DRAWN[name].is_cut and not DRAWN[name].is_late:
        assert away >= -z_bound(1)


@tiers.every("name", EVERYBODY)
def test_everybody(name):
    """Where nothing is left to chance, all take part in every round."""
    drawn = drawn_by(EVERYBODY[name], runs=3, rounds=4)
    np.testing.assert_array_equal(drawn.times, 1)
    assert EVERYBODY[name].expected_size == N


@tiers.every("name", NOBODY, lambda sampler: "any")
def test_nobody(name):
    """Where nobody is there, all slots are empty."""
    assert not drawn_by(NOBODY[name], runs=3, rounds=4).mask.any()
