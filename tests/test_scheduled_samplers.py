"""Samplers that go by the round: their draws against the schedule that they declare."""

from itertools import chain

import numpy as np
import pytest
import tiers
from correlated_runs import (
    SIZE,
    N,
    cohorts,
)
from scipy import stats
from small import (
    refused,
)

import fedpriv as fp
from fedpriv.rounds.scheduled_samplers import has_full_cohorts
from fedpriv.testing.measurements import check_schedule

pytestmark = pytest.mark.usefixtures("quick_to_compile")


class TestSchedules:
    """Draws against the schedule that they declare."""

    @tiers.every("name", ["shuffled_blocks", "fixed_order"])
    @tiers.every("sizes", [(13, 4), (12, 4), (5, 5), (7, 1)])
    def test_everyone_once_in_a_block(self, name, sizes):
        n, size = sizes
        sampler = getattr(fp, name)(n, size)
        block = sampler.accounting.turns.apart
        drawn = cohorts(sampler, 3 * block)
        assert block == -(-n // size)
        assert sampler.expected_size == n / block
        for begin in range(0, 3 * block, block):
            assert sorted(chain(*drawn[begin : begin + block])) == list(range(n))
        assert drawn[:block] * 3 == drawn
        assert {len(cohort) for cohort in drawn} <= {sampler.slots, sampler.slots - 1}

    def test_after_its_last_participation_a_client_rests(self):
        drawn = cohorts(fp.fixed_order(12, 4, participations=2), 9)
        assert [len(cohort) for cohort in drawn] == [4] * 6 + [0] * 3

    @pytest.mark.slow
    def test_the_order_is_the_runs_own(self):
        sampler = fp.shuffled_blocks(30, 10)
        assert cohorts(sampler, 3, seed=1) != cohorts(sampler, 3, seed=2)

    def test_a_schedule_made_by_hand_is_checked(self):
        sooner = fp.fixed_order(N, SIZE)
        draw = sooner.draw
        sooner = sooner._replace(draw=lambda key, t, memory: draw(key, t // 2, memory))
        with refused("a client takes part sooner"):
            check_schedule(sooner, 1)

    def test_allocated_evenly_and_independently(self):
        """Two clients in 4,000 blocks, and one in successive blocks; false alarm 1e-6 by chi-square."""
        blocks, block = 4000, 3
        drawn = cohorts(fp.random_allocation(5, block, 5), blocks * block)
        place = np.zeros((blocks, 5), int)
        for t, cohort in enumerate(drawn):
            place[t // block, cohort] = t % block
        tables = [place[:, 0] * block + place[:, i] for i in range(1, 5)]
        tables += [place[:-1, i] * block + place[1:, i] for i in range(5)]
        for table in tables:
            counts = np.bincount(table, minlength=block**2)
            assert stats.chisquare(counts).pvalue > 1e-6 / len(tables)

    @pytest.mark.slow
    def test_allocated_cohorts_are_cut_evenly(self):
        """Of clients that draw a round with more than two others, who stays; false alarm 1e-6 by chi-square."""
        full, kept = (cohorts(fp.random_allocation(6, 2, capacity), 2000) for capacity in (6, 3))
        assert all(set(few) <= set(all) for few, all in zip(kept, full, strict=True))
        assert [len(few) for few in kept] == [min(3, len(all)) for all in full]
        stays = [few for few, all in zip(kept, full, strict=True) if len(all) > 3]
        assert stats.chisquare(np.bincount([*chain(*stays)], minlength=6)).pvalue > 1e-6

    def test_allocation_has_room_as_poisson_cohorts_have(self):
        sampler = fp.random_allocation(1000, 10)
        assert sampler.slots == fp.poisson(1000, 0.1).slots
        assert sampler.expected_size == 100

    def test_allocation_made_by_hand(self):
        sampler = fp.random_allocation(N, 3)._replace(seal=())
        with refused("made by hand, for RandomAllocation.*; use fp.random_allocation"):
            check_schedule(sampler, 1)


class TestFullCohorts:
    @pytest.mark.parametrize(
        ("sampler", "full"),
        [
            (fp.fixed_order(12, 4), True),
            (fp.fixed_order(13, 4), False),
            (fp.fixed_order(12, 4, participations=2), False),
            (fp.cyclic_poisson(12, 3, 0.5), False),
            (fp.random_allocation(12, 3), False),
            (fp.poisson(12, 0.5), False),
            (fp.fixed_size(12, 4), True),
        ],
    )
    def test_are_those_without_an_empty_slot(self, sampler, full):
        assert has_full_cohorts(sampler) == full
