"""What is found of single clients, against NumPy; several measures at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from small import records, regression, squared, start

import fedpriv as fp
from fedpriv.engine.client_metrics import _spread

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 24
FEDERATION = regression([1 + i % 4 for i in range(CLIENTS)])
PARAMS = start()


def score(params, example):
    """A loss, and an accuracy by a threshold on it."""
    loss = squared(params, example)
    return {"accuracy": (loss < 0.3).astype(jnp.float32), "loss": loss}


def expected(federation):
    """(accuracy, loss) of every client, f64[clients]."""
    means = []
    for i in range(federation.num_clients):
        x, y = records(federation, i)
        loss = 0.5 * (x @ np.asarray(PARAMS["w"]) + float(PARAMS["b"]) - y) ** 2
        means.append(((loss < 0.3).mean(), loss.mean()))
    return np.array(means).T


def measured(measure, federation=FEDERATION):
    """The numbers alone."""
    found = measure(fp.ModelState(PARAMS, 0), federation)
    return {k: float(v) for k, v in found.items() if not isinstance(v, fp.ClientValues)}


def test_all_clients_are_those_of_numpy():
    accuracy, loss = expected(FEDERATION)
    found = measured(fp.measures.per_client(score, clients=100))
    of = "per_client_accuracy"
    assert found == pytest.approx(
        {
            f"{of}_mean": accuracy.mean(),
            f"{of}_pooled": np.average(accuracy, weights=np.asarray(FEDERATION.size)),
            f"{of}_median": np.median(accuracy),
            f"{of}_worst_decile": np.sort(accuracy)[:3].mean(),
            f"{of}_below_0.5": (accuracy < 0.5).mean(),
        },
        rel=1e-5,
    )
    found = measured(fp.measures.per_client(score, 100, "loss", bound=0.4))
    assert found["per_client_loss_worst_decile"] == pytest.approx(np.sort(loss)[-3:].mean(), 1e-5)
    assert found["per_client_loss_above_0.4"] == pytest.approx((loss > 0.4).mean())


def test_a_sample_is_the_same_every_time_and_may_hold_other_records():
    _, loss = expected(FEDERATION)
    measure = fp.measures.per_client(score, 5, "loss")
    found = measured(measure)
    assert measured(measure) == found
    chosen = np.random.default_rng(0).choice(CLIENTS, 5, replace=False)
    assert found["per_client_loss_mean"] == pytest.approx(loss[chosen].mean(), rel=1e-5)
    other = regression([2] * 3, seed=1)
    held_out = measured(fp.measures.per_client(score, 5, "loss", on=other))
    assert held_out["per_client_loss_mean"] == pytest.approx(expected(other)[1].mean(), rel=1e-5)


def test_several_measures_are_evaluated_together_in_a_run():
    both = fp.measures.together(
        fp.measures.heterogeneity(squared), fp.measures.per_client(score, metric="loss")
    )
    history = fp.simulate(
        fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.0),
        PARAMS,
        FEDERATION,
        FEDERATION.examples,
        score=score,
        rounds=1,
        seeds=(0, 1),
        measure=both,
    )
    assert history.metric("objective").shape == (1, 2)
    chosen = np.random.default_rng(0).choice(CLIENTS, 20, replace=False)
    mean = expected(FEDERATION)[1][chosen].mean()
    np.testing.assert_allclose(history.metric("per_client_loss_mean"), mean, rtol=1e-5)


@pytest.mark.parametrize(("metric", "higher"), [("accuracy", True), ("loss", False)])
def test_a_client_without_weight_does_not_count(metric, higher):
    values = np.array([0.1, np.nan, 0.9, 0.4], np.float32)
    counts, pooled = jnp.asarray(~np.isnan(values)), jnp.float32(0.3)
    found = _spread(f"held_out_{metric}", jnp.asarray(values), counts, pooled, higher, 0.5)
    there = values[~np.isnan(values)]
    worst, beyond = (0.1, 2 / 3) if higher else (0.9, 1 / 3)
    expected = [there.mean(), 0.3, np.median(there), worst, beyond]
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


def test_wrong_input():
    with pytest.raises(ValueError, match="clients: 0; give a whole number"):
        fp.measures.per_client(score, 0)
    with pytest.raises(ValueError, match="bound: nan; give a finite number"):
        fp.measures.per_client(score, bound=np.nan)
    with pytest.raises(ValueError, match="there is no 'f1'; the score gives accuracy, loss"):
        measured(fp.measures.per_client(score, metric="f1"))
