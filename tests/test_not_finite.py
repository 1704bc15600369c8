"""What is NaN or infinite counts as 0 where it is clipped: the history says how much, a warning says it once."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reported
import tiers
from small import (
    assert_identical,
    compiler_of_one_program,
    one_round,
    regression,
    squared,
    start,
)

import fedpriv as fp
from fedpriv.engine.simulate import simulate
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.runs.contents import NotFinite
from fedpriv.experiments.runs.summary_so_far import _not_finite
from fedpriv.experiments.tables.terminal import table

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, HELD, PARAMS = 4, 3, start()
WHOLE = regression([HELD] * CLIENTS)
PRIVATE = {"clip_norm": 1.0, "noise_multiplier": 0.5}
SAMPLER = fp.everyone(CLIENTS)


def sgd(t):
    return optax.sgd(0.1)


def score(params, example):
    return {"loss": squared(params, example)}


def spoilt(*clients, value=np.nan):
    """The federation, with one record of each of some clients that is not finite."""
    y = np.array(WHOLE.examples["y"])
    y[np.asarray(WHOLE.rows)[list(clients), 0]] = value
    return WHOLE.replace(examples=WHOLE.examples | {"y": jnp.asarray(y)})


def of_nan(params, example):
    """A loss whose value and gradient are NaN."""
    return jnp.sqrt(-1 - squared(params, example))


def of_a_nan_gradient(params, example):
    """As `jnp.where` makes it, which takes both gradients."""
    return squared(params, example) + jnp.where(True, 0.0, jnp.sqrt(0 * params["w"].sum()))


def sending(loss=squared, optimizer=sgd, **more):
    given = {"sampler": SAMPLER, "batches": fp.full_batch(), **PRIVATE, **more}
    return fp.dp_fed_avg(loss, optimizer=optimizer, **given)


def by_record(loss=squared):
    mechanism = fp.gaussian(1.0, 0.5)
    everything = fp.fixed_size(HELD, HELD)
    steps = fp.LocalSteps(fp.per_example(loss), everything, 2, sgd, mechanism)
    return fp.dp_sgd(steps, sampler=SAMPLER)


def of_ones_own(loss=squared):
    """A client that asks for one private mean itself."""

    def round(key, state, cohort):
        def client(key, shard):
            given = {"records": fp.fixed_size(HELD, HELD), "mechanism": fp.gaussian(1.0, 0.5)}
            return shard.private_mean(fp.per_example(loss), state.params, **given)

        private = fp.unprotected("messages carry the noise of their records")
        total, metrics, _ = cohort.sum(client, key, mechanism=private)
        params = jax.tree.map(lambda p, s: p - 0.1 * s / CLIENTS, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, SAMPLER, unit="record")


def in_training(loss=squared):
    """Records' gradients that are clipped in local training, without noise of their own."""
    given = {"sampler": SAMPLER, "batches": fp.full_batch(), "optimizer": sgd, **PRIVATE}
    return fp.papers.dp_fed_avg_wav(loss, d=4, bounded="gradients", **given)


def a_round(algorithm, federation, seed=0):
    """Its metrics."""
    state = algorithm.init(PARAMS, federation)
    return one_round(algorithm)(jax.random.key(seed), state, federation)[1]


def told(algorithm, federation, rounds=3, every=3, **more):
    """(the history, the warnings) of a run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        test = dict(WHOLE.examples)
        given = {"score": score, "rounds": rounds, "every": every, "strategy": fp.Strategy()}
        history = simulate(algorithm, PARAMS, federation, test, **given | more)
    return history, [str(w.message) for w in caught]


def test_the_share_of_messages():
    algorithm = sending()
    for clients in ((), (2,), (0, 3), (0, 1, 2, 3)):
        for value in (np.nan, np.inf):
            metrics = a_round(algorithm, spoilt(*clients, value=value))
            assert float(metrics["not_finite"]["messages"]) == len(clients) / CLIENTS
            assert float(metrics["not_finite"]["records"]) == 0
            norm = metrics["diagnostics"]["mean_update_norm"]
            assert np.isnan(norm) == (len(clients) == CLIENTS)


MORE = {
    "interval": {"codec": fp.papers.fixed_interval(8, 1.0)},
    "opening": {"sampler": fp.Opening(fp.fixed_size(CLIENTS, CLIENTS), 1, SAMPLER)},
}


@pytest.mark.slow
@tiers.every("name", MORE)
def test_however_messages_are_coded_and_drawn(name):
    metrics = a_round(sending(**MORE[name]), spoilt(1))
    assert float(metrics["not_finite"]["messages"]) == 1 / CLIENTS


@pytest.mark.slow
def test_of_those_who_take_part_alone():
    algorithm, federation = sending(sampler=fp.fixed_size(CLIENTS, 1)), spoilt(1)
    found = {
        float(a_round(algorithm, federation, seed)["not_finite"]["messages"]) for seed in range(20)
    }
    assert found == {0.0, 1.0}


MAKERS = {make.__name__: make for make in (by_record, of_ones_own, in_training)}


@tiers.every("name", MAKERS)
def test_the_share_of_records(name):
    algorithm = MAKERS[name]()
    for clients in ((), (0, 3)):
        metrics = a_round(algorithm, spoilt(*clients))
        share = len(clients) / (CLIENTS * HELD)
        assert float(metrics["not_finite"]["records"]) == pytest.approx(share)
        assert float(metrics["not_finite"]["messages"]) == 0


@pytest.mark.slow
def test_a_run_says_it_once_and_its_history_keeps_it():
    more = {"strategy": fp.Strategy(CLIENTS), "rounds": 4, "every": 2, "seeds": (5, 7)}
    history, said = told(by_record(), spoilt(0, 3), **more)
    share = 2 / (CLIENTS * HELD)
    np.testing.assert_allclose(
        history.metric("not_finite_records"), np.full((2, 2), share), rtol=1e-6
    )
    (warning,) = said
    assert f"{100 * share:.3g} % of the" in warning
    assert "in round 1 (seed 5)" in warning
    assert "\n" not in warning


@pytest.mark.slow
def test_every_run_of_a_process_says_it():
    """Python says a warning of the same words and line once; each is told at the user's line."""
    given = {"score": score, "rounds": 1, "compiler": compiler_of_one_program()}
    algorithm = sending()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", RuntimeWarning)
        for _ in range(2):
            simulate(algorithm, PARAMS, spoilt(1), dict(WHOLE.examples), **given)
    assert [w.filename for w in caught] == [__file__] * 2
    assert "1 of 12 records hold NaN" in str(caught[0].message)


CAUSES = {
    "learning rate": (squared, 1e38, 3, "likely a learning rate too high"),
    "loss": (of_nan, 0.1, 1, "The loss itself is NaN or infinite for 12 of 12 records"),
    "gradient": (of_a_nan_gradient, 0.1, 1, "The gradient of the loss is NaN or infinite"),
}


@tiers.every("name", CAUSES)
def test_the_cause_where_it_can_be_told(name):
    loss, rate, round, cause = CAUSES[name]
    made = sending(loss, lambda t: optax.sgd(jnp.where(t + 1 >= round, rate, 0.1)))
    history, (said,) = told(made, WHOLE, rounds=4, every=2)
    assert f"100 % of the clients' messages were NaN or infinite in round {round} (seed 0)" in said
    assert cause in said
    later = history.metric("not_finite_messages")[:, 0]
    np.testing.assert_array_equal(later, [float(round == 1), 1.0])


@pytest.mark.slow
def test_a_gradient_of_ones_own_leaves_the_cause_open():
    def round(key, state, cohort):
        def client(key, shard):
            return jax.tree.map(lambda p: p * jnp.nan, state.params)

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.gaussian(1.0, 1.0))
        params = jax.tree.map(lambda p, s: p - s, state.params, total)
        return fp.ModelState(params, state.round + 1), {"uplink": metrics["uplink"]}

    history, (said,) = told(fp.Algorithm(fp.start, round, SAMPLER), WHOLE)
    assert "Likely causes: a learning rate" in said
    assert history.metric("not_finite_messages")[-1, 0] == 1


@pytest.mark.slow
def test_a_streamed_federation_tells_the_same():
    rows = [np.asarray(r) for r in WHOLE.rows]
    arrays = {name: np.asarray(leaf) for name, leaf in WHOLE.examples.items()}
    streamed = fp.StreamedFederation.from_arrays(arrays, rows)

    (ours, said), (theirs, expected) = (told(sending(of_nan), f) for f in (streamed, WHOLE))
    assert said == expected
    assert len(said) == 1
    assert_identical(ours.metric("not_finite_messages"), theirs.metric("not_finite_messages"))


@pytest.mark.slow
def test_a_run_that_goes_on_does_not_say_it_again(tmp_path):
    at_two = sending(optimizer=lambda t: optax.sgd(jnp.where(t == 1, 1e38, 0.1)))
    more = {"rounds": 4, "every": 1, "compiler": compiler_of_one_program()}
    whole, said = told(at_two, WHOLE, **more)
    assert len(said) == 1
    for stop in (1, 3):
        keep = fp.Checkpoints(tmp_path / str(stop), rounds=1)

        def interrupted(e, stop=stop):
            if e.round == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            told(at_two, WHOLE, checkpoints=keep, on_evaluation=interrupted, **more)
        again, said = told(at_two, WHOLE, checkpoints=keep, **more)
        assert len(said) == (stop == 1)
        for e, f in zip(again.evaluations, whole.evaluations, strict=True):
            assert_identical(e.diagnostics, f.diagnostics)
            assert [*e.diagnostics] == [*f.diagnostics]
        assert_identical(again.state, whole.state)


@pytest.mark.slow
def test_a_model_that_diverges_is_still_refused():
    made = fp.fed_avg(squared, sampler=SAMPLER, optimizer=sgd, batches=fp.full_batch())
    with pytest.raises(fp.DivergedError, match="round 1"):
        told(made, spoilt(0))


@pytest.mark.slow
def test_a_check_of_the_algorithm_says_so():
    with pytest.raises(ValueError, match=r"^round: 100 % of its messages are NaN or infinite"):
        fp.check_algorithm(sending(of_nan), PARAMS, WHOLE)


def test_what_a_summary_says():
    class Line:
        def __init__(self, round, **shares):
            self.round, self.seeds = round, 2
            self.diagnostics_not_private = {n: Spread.of(np.array(s)) for n, s in shares.items()}

    lines = [Line(2), Line(4, not_finite_messages=[0.5, 0.0]), Line(10)]
    assert _not_finite(lines) == {
        "not_finite_messages": NotFinite(4, Spread.of(np.array([0.1, 0.0])))
    }
    assert _not_finite(lines[:1]) == {}


@pytest.mark.slow
def test_what_a_run_folder_keeps_and_shows(tmp_path, monkeypatch):
    made = reported._evaluation

    def with_shares(name, t, *rest):
        evaluation = made(name, t, *rest)
        if name == "rand_k" and t > 1:
            evaluation.diagnostics["not_finite_messages"] = np.array([0.5, 0.25])
        return evaluation

    monkeypatch.setattr(reported, "_evaluation", with_shares)
    reported.record(tmp_path / "run", rounds=(1, 2), seeds=2)
    summary = run_folder.read_summary(tmp_path / "run")
    expected = NotFinite(2, Spread.of(np.array([0.25, 0.125])))
    assert summary.not_finite_not_private == {"rand_k": {"not_finite_messages": expected}}
    said = " ".join(table(summary).split())
    assert "counted as 0: Fed-SMP rand_k 18.8 % of all messages, first seen in round 2" in said
