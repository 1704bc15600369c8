"""Runs: what is recorded, that a run is a loop over rounds, and that it compiles once."""

import logging
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from small import (
    assert_close,
    assert_identical,
    compiler_of_one_program,
    members,
    one_round,
    refused,
    regression,
    sgd,
    squared,
    start,
)

import fedpriv as fp
from fedpriv import DivergedError, Strategy, fixed_size, simulate
from fedpriv.core import large_pages, random_streams
from fedpriv.engine.compiled_rounds import evaluate
from fedpriv.types import Wire

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ONE = Strategy()
SEEDS = (3, (5 << 40) + 3)
COMPILED = "/jax/core/compile/backend_compile_duration"


class Watched(NamedTuple):
    """A run, and the counts at each evaluation."""

    history: object
    seen: list
    traces: list
    compilations: list


def watched(algorithm, *args, **kwargs):
    counts, traces, compilations, seen = Counter(), [], [], []

    def round(*args):
        counts["traces"] += 1
        return algorithm.round(*args)

    def listener(event, seconds, **_):
        counts["compilations"] += event == COMPILED

    def record(evaluation):
        seen.append(evaluation)
        traces.append(counts["traces"])
        compilations.append(counts["compilations"])

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        history = simulate(algorithm._replace(round=round), *args, record=record, **kwargs)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    return Watched(history, seen, traces, compilations)


FEDERATION = regression([4] * 6, public=4)
TEST = jax.tree.map(np.asarray, regression([7], seed=1).examples)
ALGORITHM = fp.dp_fed_avg(
    squared,
    sampler=fixed_size(6, 4),
    optimizer=sgd,
    batches=fp.epochs(1, 2),
    clip_norm=0.5,
    noise_multiplier=0.5,
)


def init(key):
    return jax.tree.map(lambda leaf: leaf + jax.random.normal(key, leaf.shape), start())


def score(params, example):
    loss = squared(params, example)
    return {"accuracy": loss < 0.5, "loss": loss, "weight": 1.0}


@pytest.fixture(scope="module")
def run():
    """Two seeds, five rounds, evaluated after 2, 4 and 5."""
    options = {"score": score, "rounds": 5, "every": 2, "seeds": SEEDS, "strategy": ONE}
    return watched(ALGORITHM, init, FEDERATION, TEST, **options)


def root_of(seed):
    """All 64 bits of it."""
    return jax.random.wrap_key_data(np.array([seed >> 32, seed % 2**32], np.uint32))


def first_key(root):
    """Of the initial parameters."""
    return jax.random.fold_in(jax.random.fold_in(root, random_streams.PUBLIC), 0)


def states(root, federation, rounds):
    """After each round, by a Python loop."""
    found = [ALGORITHM.init(init(first_key(root)), federation)]
    for _ in range(rounds):
        found.append(one_round(ALGORITHM)(root, found[-1], federation)[0])
    return found


def scores(params):
    """Share of residuals below 1, and mean loss, by NumPy."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    residual = TEST["x"] @ params["w"] + params["b"] - TEST["y"]
    return np.mean(np.abs(residual) < 1), np.mean(residual**2) / 2


def test_what_is_recorded(run):
    history = run.history
    assert history.seeds == SEEDS
    np.testing.assert_array_equal(history.rounds, [2, 4, 5])
    assert history.accuracy.shape == history.loss.shape == history.uplink_mb.shape == (3, 2)
    for evaluation in history.evaluations:
        assert evaluation.diagnostics["mean_update_norm"].shape == (2,)
        assert evaluation.seconds > 0
    # Tracing alone takes longer than a round of this task.
    assert history.compile_seconds > max(e.seconds for e in history.evaluations)
    assert jax.tree.leaves(history.state.params)[0].shape[0] == 2
    np.testing.assert_array_equal(history.state.round, [5, 5])
    shown = repr(history)
    assert "3 evaluations, round 5: " in shown
    assert f"accuracy {history.accuracy[-1].mean():.4g}" in shown
    assert len(shown) < 150


def test_evaluations_are_reported_in_order(run):
    assert [e.round for e in run.seen] == [2, 4, 5]
    assert all(a is b for a, b in zip(run.seen, run.history.evaluations, strict=True))


def test_a_run_is_traced_and_compiled_once(run):
    """The short last chunk included."""
    assert len(set(run.traces)) == 1
    assert len(set(run.compilations)) == 1
    assert run.compilations[0] > 0  # the listener works


def test_a_run_is_a_loop_over_rounds(run):
    """Each seed by itself; a round's keys depend on the seed and the round alone."""
    for column, seed in enumerate(SEEDS):
        each = states(root_of(seed), FEDERATION, 5)
        final = jax.tree.map(lambda leaf, c=column: leaf[c], run.history.state)
        assert_close(final, each[5], 1e-6)
        for row, t in enumerate((2, 4, 5)):
            accuracy, loss = scores(each[t].params)
            assert run.history.accuracy[row, column] == pytest.approx(accuracy, abs=1e-6)
            assert run.history.loss[row, column] == pytest.approx(loss, rel=1e-5)
    assert run.history.loss[0, 0] != run.history.loss[0, 1]


@pytest.mark.slow
def test_a_secret_seed_gives_each_seed_another_root(run):
    """The same for the same two, whose every bit counts; the history names the seeds alone."""
    secret = fp.secret_seed()
    assert 0 <= secret < 2**63
    options = {"score": score, "rounds": 5, "every": 2, "seeds": SEEDS, "strategy": ONE}
    history = simulate(ALGORITHM, init, FEDERATION, TEST, secret_seed=secret, **options)
    assert history.seeds == SEEDS
    for column, seed in enumerate(SEEDS):
        root = jax.random.fold_in(root_of(secret), seed % 2**32)
        root = jax.random.fold_in(root, seed >> 32)
        final = jax.tree.map(lambda leaf, c=column: leaf[c], history.state)
        assert_close(final, states(root, FEDERATION, 5)[5], 1e-6)
    assert len({*history.loss[-1], *run.history.loss[-1]}) == 4


def test_secret_seeds_are_drawn_anew():
    drawn = [fp.secret_seed() for _ in range(64)]
    assert len(set(drawn)) == 64
    assert max(drawn) >= 2**62 > min(drawn)  # a false alarm in 2^63


@pytest.mark.parametrize("given", ["8070450532247928833", 2**70 + 7, 5.5, [8070450532247928833]])
def test_what_is_no_secret_seed_is_not_shown(given):
    """It may be one all the same: read from a file as a text, say."""
    with refused("secret_seed: a .* give fp.secret_seed") as error:
        toy_run(toy(plain), secret_seed=given)
    assert str(given).strip("[]") not in str(error.value)


@pytest.mark.slow
def test_seeds_federations_and_parameters_of_their_own(run):
    """One seed alone, with its own partition beside it; the number of rounds changes nothing."""
    other = FEDERATION.repartition(np.arange(24).reshape(6, 4), public=[24, 25, 26, 27])
    options = {"score": score, "rounds": 4, "every": 4, "seeds": (SEEDS[1],) * 2, "strategy": ONE}
    history = simulate(ALGORITHM, init, [FEDERATION, other], TEST, **options)
    np.testing.assert_allclose(history.loss[0, 0], run.history.loss[1, 1], rtol=1e-6)
    alone = states(root_of(SEEDS[1]), other, 4)[4]
    assert_close(jax.tree.map(lambda leaf: leaf[1], history.state), alone, 1e-6)
    assert history.loss[0, 0] != history.loss[0, 1]


def test_uplink_is_the_papers_formula(run):
    """32 k T r / n bits per client; d = 4, r / n = 4 / 6."""
    expected = [32 * 4 * t * 4 / 6 / 8e6 for t in (2, 4, 5)]
    np.testing.assert_allclose(run.history.uplink_mb, np.transpose([expected] * 2), rtol=1e-12)
    # What an algorithm receives is the model, where it says nothing else.
    np.testing.assert_array_equal(run.history.downlink_mb, run.history.uplink_mb)


def toy(metrics, step=lambda state: state.params, sampler=None):
    """An algorithm whose round does nothing but report, quick to compile."""

    def round(key, state, cohort):
        params = step(state)
        return fp.ModelState(params, state.round + 1), metrics(state.round + 1)

    return fp.Algorithm(fp.start, round, sampler or fp.everyone(3))


def nothing(params, example):
    return {name: jnp.zeros(()) + params for name in ("accuracy", "loss", "weight")}


def toy_run(algorithm, rounds=5, every=2, seeds=(0,), params=1.0, **kwargs):
    if not callable(params):
        params = jnp.float32(params)
    return simulate(
        algorithm,
        params,
        regression([1, 1, 1]),
        np.zeros(2, np.float32),
        rounds=rounds,
        every=every,
        seeds=seeds,
        **({"score": nothing, "strategy": ONE} | kwargs),
    )


def test_uplink_is_counted_in_integers():
    """Cohorts that change, messages beyond 2^24 and sums beyond 2^31 bits: not one bit is lost."""
    values, sampler = 2**24 + 1, fp.poisson(3, 0.5, 3)

    def metrics(t):
        return {"uplink": Wire(values + t, 32, 3)}

    history = toy_run(toy(metrics, sampler=sampler))
    sizes = [len(members(sampler, jax.random.key(0), t)) for t in range(5)]
    assert len(set(sizes)) > 1
    bits = np.cumsum([n * (32 * (values + t) + 3) for t, n in enumerate(sizes, 1)])
    found = history.uplink_mb[:, 0] * 8e6 * 3
    np.testing.assert_array_equal(np.round(found), bits[[1, 3, 4]])
    np.testing.assert_allclose(found, bits[[1, 3, 4]], rtol=1e-15)
    assert bits[-1] > 2**31


def plain(t):
    return {"uplink": Wire(1), "diagnostics": {"t": 1.0 * t}}


def test_diagnostics_are_means_since_the_last_evaluation():
    history = toy_run(toy(plain))
    assert [float(e.diagnostics["t"][0]) for e in history.evaluations] == [1.5, 3.5, 5]


@pytest.mark.slow
def test_more_rounds_per_evaluation_than_rounds():
    history = toy_run(toy(plain), rounds=2, every=10)
    np.testing.assert_array_equal(history.rounds, [2])
    np.testing.assert_array_equal(history.state.round, [2])


def test_a_model_that_diverges():
    """Seed 5 breaks in round 4: it is named, and what was recorded before is kept."""
    marked = jax.random.key_data(first_key(jax.random.key(5)))

    def params(key):
        return jnp.where(jnp.array_equal(jax.random.key_data(key), marked), 2.0, 1.0)

    def step(state):
        return jnp.where((state.params == 2) & (state.round >= 3), jnp.inf, state.params)

    with refused(r"in round 4 \(seed 5\)", DivergedError) as error:
        toy_run(toy(plain, step), rounds=7, every=3, seeds=(9, 5, 1), params=params)
    np.testing.assert_array_equal(error.value.history.rounds, [3])
    assert error.value.history.seeds == (9, 5, 1)


def test_the_given_parameters_are_not_used_up():
    params, compiler = jnp.float32(3), compiler_of_one_program()
    first = toy_run(toy(plain), params=params, compiler=compiler)
    second = toy_run(toy(plain), params=params, compiler=compiler)
    assert_identical(first.state, second.state)
    assert params == 3


@pytest.mark.slow
def test_a_test_loss_that_diverges():
    """The model is finite, its loss is not, when it is evaluated after round 5."""

    def score(params, example):
        one = jnp.ones(())
        return {"accuracy": one, "weight": one, "loss": jnp.where(params == 6, jnp.nan, params)}

    with pytest.raises(DivergedError, match=r"in round 5 \(seed 0\)") as error:
        toy_run(toy(plain, lambda state: state.params + 1), rounds=5, every=3, score=score)
    np.testing.assert_array_equal(error.value.history.rounds, [3])


@pytest.mark.slow
def test_on_several_devices_a_run_is_compiled_once():
    result = watched(
        toy(plain, lambda state: state.params * 0.5),
        jnp.float32(1),
        regression([1, 1, 1]),
        np.zeros(2, np.float32),
        score=nothing,
        rounds=5,
        every=2,
        strategy=Strategy("map", 2),
    )
    assert len(set(result.compilations)) == len(set(result.traces)) == 1
    np.testing.assert_array_equal(result.history.state.params, [0.5**5])


@pytest.mark.parametrize("missing", [True, False])
def test_each_wait_is_said_before_it_begins_and_when_it_is_over(
    missing, caplog, capsys, monkeypatch
):
    """By Python's logging, where somebody asked; and once that large pages of memory are missing."""
    monkeypatch.setattr(large_pages, "missing", lambda: missing)
    toy_run(toy(plain))
    assert not caplog.records
    with caplog.at_level(logging.INFO, "fedpriv.engine"):
        toy_run(toy(plain))
    said = [r.getMessage() for r in caplog.records if r.name == "fedpriv.engine"]
    assert (large_pages.ADVICE in said) == missing
    said = [text for text in said if text != large_pages.ADVICE]
    begun, over = said[::2], said[1::2]
    assert [text.rpartition(":")[0] for text in over] == begun
    assert all(float(text.split()[-2]) >= 0 and text.endswith(" s") for text in over)
    of = [
        next(i for i, text in enumerate(begun) if w in text) for w in ("check", "compil", "first")
    ]
    assert of == sorted(of)
    assert capsys.readouterr() == ("", "")


@tiers.every("sizes", [(7, 3), (7, 7), (7, 50), (501, 250), (1, 1)])
def test_evaluation_of_any_number_of_examples(sizes):
    """The padding of the last batch counts nothing, not even where the score of zeros is NaN."""
    count, batch_size = sizes
    x = np.random.default_rng(0).uniform(1, 2, (count, 3)).astype(np.float32)

    def score(params, example):
        s = jnp.sum(example["x"]) * params
        return {"accuracy": s > 4.5, "loss": jnp.log(s), "weight": s / s}

    found = jax.jit(lambda x: evaluate(score, 1.0, {"x": x}, batch_size).metrics)(x)
    s = x.astype(np.float64).sum(1)
    assert set(found) == {"accuracy", "loss"}
    np.testing.assert_allclose(found["accuracy"], np.mean(s > 4.5), rtol=1e-6)
    np.testing.assert_allclose(found["loss"], np.log(s).mean(), rtol=1e-5)
