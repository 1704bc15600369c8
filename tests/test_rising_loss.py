"""A run that ends with more test loss than it began with says so; one whose loss falls, however noisily, does not."""

import itertools
import warnings

import numpy as np
import optax
import pytest
from small import regression, squared, start

import fedpriv as fp
from fedpriv import experiments
from fedpriv.engine import rising_loss_warning
from fedpriv.engine.history import Evaluation, History

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 4
FEDERATION = regression([3] * CLIENTS)


def said_of(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if "test loss rose" in str(w.message)]


def of(*curves, name="loss", every=1):
    """The warnings of a history with a curve for each seed."""
    zero = np.zeros(len(curves))
    evaluations = [
        Evaluation(every * (t + 1), {name: np.array(values)}, zero, zero, {}, 0.0)
        for t, values in enumerate(zip(*curves, strict=True))
    ]
    history = History(tuple(range(len(curves))), evaluations)
    return said_of(lambda: rising_loss_warning.warn(history))


def rises(curve):
    """The rule, value by value."""
    up = sum(1 for before, after in itertools.pairwise(curve) if after > before)
    return len(curve) >= 4 and curve[-1] > curve[0] and up >= len(curve) / 2


def test_random_curves_are_told_of_by_the_rule():
    rng, told = np.random.default_rng(0), []
    for slope in (-0.5, 0.0, 0.5):
        for _ in range(60):
            length = int(rng.integers(1, 9))
            curve = (slope * np.arange(length) + rng.normal(size=length)).tolist()
            assert len(of(curve)) == rises(curve)
            told.append((slope, bool(rises(curve))))
    assert {(-0.5, False), (0.0, True), (0.0, False), (0.5, True)} <= {*told}


def test_a_noisy_curve_that_falls_is_not_told_of():
    """It rises in every other evaluation."""
    noisy = [3.0, 2.5, 2.9, 2.3, 2.7, 2.1, 2.6, 2.0]
    assert not of(noisy)
    assert of(noisy[::-1])


def test_it_names_the_numbers_and_how_many_seeds():
    fell, rose, more = [4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 1.5, 2.5], [1.0, 2.0, 3.0, 4.0]
    (said,) = of(fell, rose, more, every=5)
    assert (
        "rose in 3 of 4 evaluations (seed 2; 2 of 3 seeds), from round 5 to 20: loss 1 to 4;"
        in said
    )
    assert "\n" not in said
    (said,) = of(rose, name="perplexity")
    assert "rose in 2 of 4 evaluations, from round 1 to 4: perplexity 1 to 2.5;" in said


def test_what_is_no_loss_tells_nothing():
    more = [1.0, 2.0, 3.0, 4.0]
    for name in ("accuracy", "auc", "mean_absolute_error"):
        assert not of(more, name=name)


@pytest.mark.parametrize(("rate", "told"), [(0.1, False), (-0.1, True)])
def test_a_run_says_it(rate, told):
    """With a negative rate, which goes uphill."""
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(rate),
        batches=fp.full_batch(),
    )
    test = dict(FEDERATION.examples)

    def score(params, example):
        return {"loss": squared(params, example)}

    given = {"score": score, "rounds": 5, "strategy": fp.Strategy()}
    said = said_of(lambda: fp.simulate(algorithm, start(), FEDERATION, test, **given))
    assert [
        s.startswith("the test loss rose in 4 of 5 evaluations, from round 1 to 5: loss ")
        for s in said
    ] == [True] * told


@pytest.mark.slow
def test_a_run_of_the_launcher_says_it(tmp_path):
    """Digits under so much noise that the model is noise."""
    few = {"algorithms": ["dp_fed_avg"], "rounds": 5, "every": 1, "seeds": 2, "progress": False}
    noise = {"noise_multiplier": 1000.0, "folder": tmp_path / "run"}
    (said,) = said_of(lambda: experiments.run("quickstart", **few, **noise))
    assert "of 2 seeds), from round 1 to 5: loss " in said
