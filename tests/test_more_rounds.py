"""A run that is called again with more rounds goes on to what one of so many rounds would be, or is refused."""

import re
from functools import partial

import jax
import pytest
import tiers
from algorithm_exceptions import varied
from checkpointed import SEEDS, TEST, raw, run, score
from correlated_runs import FEDERATION as MANY
from correlated_runs import SIZE, N, correlated, descent, matrix_of
from every_algorithm import ALGORITHMS, ENTRIES, NOISY
from every_algorithm import FEDERATION as PUBLIC
from small import assert_identical, compiler_of_one_program, start

import fedpriv as fp
from fedpriv.engine.serialization import read, write

pytestmark = pytest.mark.usefixtures("quick_to_compile")

FEWER, EVERY, MORE = 3, 2, 7  # evaluated after 2, 3 and 4, 6, 7
ORDER = fp.fixed_order(N, SIZE)


def goes_on(algorithm, folder, federation, **options):
    """Training in two calls, and in one: the states, and evaluations of the same rounds, are the same to the bit."""
    given = {"every": EVERY, "seeds": SEEDS, "score": score, "strategy": fp.Strategy()} | options
    train = partial(fp.simulate, algorithm, start(), federation, TEST, **given)
    whole, checkpoints = train(rounds=MORE), fp.Checkpoints(folder, rounds=1)
    short = train(rounds=FEWER, checkpoints=checkpoints)
    history = train(rounds=MORE, checkpoints=checkpoints)
    assert list(short.rounds) == [2, 3]
    assert list(history.rounds) == [2, 3, 4, 6, 7]
    assert list(whole.rounds) == [2, 4, 6, 7]
    assert_identical(*(jax.tree.map(raw, each.state) for each in (history, whole)))
    at = {e.round: e for e in history.evaluations}
    assert_identical(at[3].metrics, short.evaluations[-1].metrics)
    for e in whole.evaluations:
        assert_identical(at[e.round].metrics, e.metrics)
        assert_identical(at[e.round].uplink_mb, e.uplink_mb)
        if e.round != 4:  # whose diagnostics are of one round, and not of two
            assert_identical(at[e.round].diagnostics, e.diagnostics)


@pytest.mark.slow
@pytest.mark.parametrize("name", varied(ENTRIES, lambda entry: (entry.has_own, entry.work)))
def test_an_algorithm(name, tmp_path):
    """With what clients keep and without, of messages and of records: each takes three runs."""
    goes_on(ALGORITHMS[name], tmp_path, PUBLIC, compiler=compiler_of_one_program())


@tiers.every("name", ["tree", "blt"])
def test_noise_that_remembers(name, tmp_path):
    """Made for as many rounds as the longer run has."""
    algorithm = descent(correlated(matrix_of(name)), ORDER)
    goes_on(algorithm, tmp_path, MANY, compiler=compiler_of_one_program())


def noisy(used):
    return descent(used, ORDER)


def of_order(rounds):
    return noisy(correlated(fp.noise_matrices.banded_toeplitz(rounds, 3)))


CHANGED = {
    "noise that falls sooner": (
        lambda rounds: noisy(fp.dynamic(NOISY, rounds=rounds, noise_decay=2.0)),
        r"of another run: seen\.third_party ",
    ),
    "clip norms that fall sooner": (
        lambda rounds: noisy(fp.dynamic(NOISY, rounds=rounds, clip_decay=2.0)),
        "of another run: clip_norms 0.5 .* there, 0.5 .* here; give what was",
    ),
    "a matrix for fewer rounds": (
        lambda rounds: of_order(FEWER),
        "rounds: 7; ",
    ),
    "a matrix made anew": (
        of_order,
        "of another run: noise .* there, .* here",
    ),
}


@pytest.mark.slow
@tiers.every("name", CHANGED)
def test_what_would_change_rounds_that_are_done_is_refused(name, tmp_path):
    """In one line that says nothing twice; the folder stays as it was."""
    make, said = CHANGED[name]
    train = partial(run, federation=MANY, folder=tmp_path)
    train(make(FEWER), rounds=FEWER)
    before = {f: f.read_bytes() for f in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=said) as error:
        train(make(MORE), rounds=MORE)
    assert "\n" not in str(error.value)
    told = re.split(r"[ ;,()]+", str(error.value).split(str(tmp_path))[-1])
    long = [word for word in told if len(word) > 9 and not word.startswith("fp.")]
    assert len(long) == len(set(long))
    assert {f: f.read_bytes() for f in tmp_path.iterdir()} == before
    train(make(FEWER), rounds=FEWER)


@pytest.mark.slow
def test_a_checkpoint_that_does_not_say_clip_norms(tmp_path):
    """As those of earlier revisions: the same call goes on, as it did; one of more rounds cannot be compared."""
    changing = noisy(fp.dynamic(NOISY, rounds=MORE, clip_decay=2.0))
    train = partial(run, changing, federation=MANY, folder=tmp_path)
    train(rounds=4, stop=2)
    (file,) = tmp_path.iterdir()
    named, about = read(file)
    del about["settings"]["clip_norms"]
    with file.open("wb") as out:
        write(out, named, about)
    with pytest.raises(ValueError, match="of another run: clip_norms"):
        train(rounds=MORE)
    history, called = train(rounds=4)
    assert called == [4]
    assert list(history.rounds) == [2, 4]


@pytest.mark.slow
def test_fewer_than_were_planned_but_not_done(tmp_path):
    run(folder=tmp_path, rounds=MORE, stop=2)
    history, called = run(folder=tmp_path, rounds=4)
    assert called == [4]
    assert_identical(history.state, run(rounds=4)[0].state)


@pytest.mark.slow
def test_a_run_that_has_stopped_stays_so(tmp_path):
    """As one of more rounds would have."""
    given = {"checkpoints": fp.Checkpoints(tmp_path), "on_evaluation": lambda e: e.round == 2}
    ended, _ = run(rounds=4, **given)
    again, _ = run(rounds=MORE, **given)
    assert list(again.rounds) == [2]
    assert_identical(again.state, ended.state)
