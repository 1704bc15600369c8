"""Laws of runs with every sampler: cohorts are those of the draws alone, wherever clients and records are."""

from functools import partial

import numpy as np
import pytest
import tiers
from correlated_runs import ROUNDS, run
from every_sampler import BY_RATE, ENTRIES, LABELS, LATE, SAMPLERS, N
from recorded_runs import STREAMED, drawn_for, recording
from small import assert_close, assert_identical, compiler_of_one_program, refused

import fedpriv as fp
from fedpriv.rounds.late_samplers import late

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SEEDS = (3, 8)
WITH_MEMORY = tiers.one_of_each(
    {name: entry for name, entry in ENTRIES.items() if entry.has_memory},
    lambda entry: entry.has_parts,
)
"""With parts and without. `test_every_sampler.py` has the draws of each, `test_checkpoint.py` runs without a memory."""


def trained(name, **options):
    """The state in the end."""
    given = {"seeds": SEEDS, "every": 2, "strategy": fp.Strategy()} | options
    return run(recording(SAMPLERS[name]), **given).state


@tiers.every("name", WITH_MEMORY, lambda entry: "any")
def test_a_run_that_was_killed_goes_on_with_more_rounds(name, tmp_path):
    """To the bit as one that was never stopped, of the cohorts of the draws alone.

    By default the first, which has a memory and parts: a run is dear.
    """
    train = partial(trained, name, compiler=compiler_of_one_program())
    whole = train()
    np.testing.assert_array_equal(whole.table, drawn_for(SAMPLERS[name], SEEDS))
    checkpoints = fp.Checkpoints(tmp_path, rounds=1)

    def kill(e):
        if e.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(rounds=ROUNDS - 3, checkpoints=checkpoints, on_evaluation=kill)
    assert_identical(train(checkpoints=checkpoints), whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["opening, then rests", "weights"])
def test_streamed_cohorts_have_their_own_records(name):
    """In chunks of another length; also of members who do not count equally."""
    expected, found = trained(name), trained(name, federation=STREAMED, every=4)
    np.testing.assert_array_equal(found.table, expected.table)
    assert_close(found.params, expected.params)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weights", "late", "opening, then rests"])
def test_cohorts_and_what_they_answer_are_the_same_on_two_devices(name):
    """Also where a run remembers who rests; `test_every_algorithm.py` has the plain samplers."""
    expected, found = trained(name), trained(name, strategy=fp.Strategy("map", 2))
    np.testing.assert_array_equal(found.table, expected.table)
    assert_close(found.params, expected.params)


THERE = r" there, .*"
RESTED, GROUPS = SAMPLERS["availability"], SAMPLERS["weights"]
OTHERS = {
    "schedule": (
        RESTED,
        {
            rf"schedule .*, (\w+){THERE}, (?!\1)\w+ here;": fp.random_availability(N, 3, 2, 0.3),
            f"schedule .*separation=2, .*{THERE}separation=1, .* here;": fp.random_availability(
                N, 3, 1, 0.7
            ),
            f"schedule .*separation=2, .*{THERE}separation=4, .* here;": fp.shuffled_blocks(N, 3),
        },
    ),
    "answers": (
        SAMPLERS["late"],
        {
            rf"answers (\w+){THERE}(?!\1)\w+ here; give": late(
                fp.poisson(N, 0.3), LATE, [1, 1, 1, 0]
            )[0],
        },
    ),
    "groups": (
        GROUPS,
        {
            rf"groups .*members='(\w+)'.*{THERE}members='(?!\1)\w+'.* here;": fp.grouped(
                LABELS[::-1], BY_RATE, weights={"a": 0.5, "b": 1.0}
            ),
            rf"groups .*weights=\(0\.5, 1\.0\), .*{THERE}weights=\(0\.25, 1\.0\), .* here;": fp.grouped(
                LABELS, BY_RATE, weights={"a": 0.25, "b": 1.0}
            ),
        },
    ),
}
"""What differs -> a sampler, and what the line says -> others: of rates, separations, schedules; weights of answers;
members and weights of groups."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_run_does_not_go_on_with_another(name, tmp_path):
    """The line names what differs, and says both."""
    given = {"rounds": 2, "every": 2, "checkpoints": fp.Checkpoints(tmp_path, rounds=1)}
    one, others = OTHERS[name]
    run(recording(one), **given)
    for said, other in others.items():
        with refused(f"of another run: {said}"):
            run(recording(other), **given)
