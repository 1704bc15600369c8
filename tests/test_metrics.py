"""Metrics of one's own: a regression without an accuracy, perplexity, which way is better, complaints."""

import jax.numpy as jnp
import numpy as np
import pytest
from small import compiler_of_one_program

import fedpriv as fp
from fedpriv.models.score import best, main_metric

pytestmark = pytest.mark.usefixtures("quick_to_compile")

RATE, ROUNDS = 0.1, 6


def squared(w, example):
    return (jnp.dot(w, example["x"]) - example["y"]) ** 2


def drawn(rng, count):
    x = rng.normal(size=(count, 3)).astype(np.float32)
    y = (x @ [1, -2, 0.5] + 0.1 * rng.normal(size=count)).astype(np.float32)
    return {"x": x, "y": y}


@pytest.fixture(scope="module")
def regression():
    """(training examples, test examples, run(score, **options))."""
    rng = np.random.default_rng(0)
    train, test = drawn(rng, 40), drawn(rng, 300)
    federation = fp.Federation.from_arrays(train, np.split(np.arange(40), 4))

    def run(score, **options):
        return fp.simulate(
            fp.fed_sgd(squared, sampler=fp.everyone(4), learning_rate=RATE),
            jnp.zeros(3),
            federation,
            test,
            score=score,
            rounds=ROUNDS,
            every=2,
            **options,
        )

    return train, test, run


def test_a_regression_s_error_is_that_of_numpy(regression):
    """Gradient descent on equal clients, in double precision beside it; the score has its own weight."""
    train, test, run = regression
    score = fp.models.Score(
        lambda w, e: {"mse": squared(w, e), "bias": jnp.dot(w, e["x"]) - e["y"], "weight": 1.0},
        {"rmse": lambda means: jnp.sqrt(means["mse"])},
    )
    history = run(score)
    w, expected = np.zeros(3), []
    for t in range(1, ROUNDS + 1):
        residual = train["x"] @ w - train["y"]
        w = w - RATE * 2 * train["x"].T @ residual / 40
        if t % 2 == 0:
            error = test["x"] @ w - test["y"]
            expected.append([np.mean(error**2), np.mean(error), np.sqrt(np.mean(error**2))])
    for name, of in zip(("mse", "bias", "rmse"), np.transpose(expected), strict=True):
        np.testing.assert_allclose(history.metric(name)[:, 0], of, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="there is no 'accuracy'; the score gives bias, mse, rmse"):
        _ = history.accuracy


@pytest.mark.slow
def test_loss_alone_suffices_and_comes_back_from_a_checkpoint(regression, tmp_path):
    *_, run = regression
    score = fp.models.Score(
        lambda w, e: {"loss": squared(w, e)}, {"twice": lambda m: 2 * m["loss"]}
    )
    compiler = compiler_of_one_program()
    whole = run(score, compiler=compiler)
    assert list(whole.evaluations[0].metrics) == ["loss", "twice"]
    np.testing.assert_array_equal(whole.metric("twice"), 2 * whole.loss)

    def stop(evaluation):
        if evaluation.round == 4:
            raise KeyboardInterrupt

    checkpoints = fp.Checkpoints(tmp_path / "c")
    with pytest.raises(KeyboardInterrupt):
        run(score, checkpoints=checkpoints, on_evaluation=stop, compiler=compiler)
    again = run(score, checkpoints=checkpoints, compiler=compiler)
    for name in ("loss", "twice"):
        np.testing.assert_array_equal(again.metric(name), whole.metric(name))


def test_the_perplexity_of_text_is_that_of_its_mean_loss():
    """Of all characters of three seeds' sums, not the mean of each text's."""
    sums = {"loss": np.array([30.0, 44.0, 70.0]), "accuracy": np.ones(3), "weight": 10 * np.ones(3)}
    metrics = fp.models.shakespeare_lstm().score.metrics(sums)
    np.testing.assert_allclose(metrics["perplexity"], np.exp([3, 4.4, 7]), rtol=1e-6)
    assert list(metrics) == ["loss", "accuracy", "perplexity"]


def test_which_way_is_better_and_which_metric_is_shown():
    values = np.array([[0.2, 0.9], [0.4, 0.5]])
    np.testing.assert_array_equal(best(values, "top5_accuracy"), [0.4, 0.9])
    np.testing.assert_array_equal(best(values, "perplexity"), [0.2, 0.5])
    np.testing.assert_array_equal(best(values, "f1", ["f1"]), [0.4, 0.9])
    assert main_metric(["auc", "loss", "accuracy"]) == "accuracy"
    assert main_metric(["auc", "loss"]) == "loss"
    assert main_metric(["mse", "auc"]) == "mse"
    assert main_metric(["auc", "loss"], "auc") == "auc"


@pytest.mark.slow
def test_an_array_of_sums_is_one_entry_and_no_metric(regression):
    """The matrix of an error's moments, of any shape; the derived see its mean over the examples."""
    _, test, run = regression
    moments = lambda w, e: {"m": jnp.outer(*[jnp.stack([1.0, squared(w, e)])] * 2)}  # noqa: E731
    deviation = {"deviation": lambda means: jnp.sqrt(means["m"][1, 1] - means["m"][0, 1] ** 2)}
    history = run(fp.models.Score(moments, deviation))
    assert list(history.evaluations[0].metrics) == ["deviation"]
    errors = (test["x"] @ np.asarray(history.params()) - test["y"]) ** 2
    assert history.metric("deviation")[-1, 0] == pytest.approx(errors.std(), rel=1e-3)


@pytest.mark.slow
def test_without_a_loss_any_metric_that_is_not_finite_is_divergence(regression):
    with pytest.raises(fp.DivergedError, match="in round 2"):
        regression[2](lambda w, e: {"mse": squared(w, e), "other": jnp.inf * (1 + w[0] ** 2)})
