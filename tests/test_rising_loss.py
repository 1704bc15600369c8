"""A run whose test loss rose says so; one whose loss stays or falls, however noisily, does not."""

import math
import warnings

import numpy as np
import optax
import pytest
from scipy.stats import linregress
from small import regression, squared, start

import fedpriv as fp
from fedpriv import experiments
from fedpriv.engine import rising_loss_warning
from fedpriv.engine.history import Evaluation, History
from fedpriv.models.kept_model import is_kept

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 4
FEDERATION = regression([3] * CLIENTS)


def said_of(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if "test loss rose" in str(w.message)]


def of(*curves, name="loss", every=1, accuracy=None):
    """The warnings of a history with a curve for each seed, and an accuracy that is the same for all."""
    zero = np.zeros(len(curves))
    evaluations = [
        Evaluation(every * (t + 1), {name: np.array(values)}, zero, zero, {}, 0.0)
        for t, values in enumerate(zip(*curves, strict=True))
    ]
    for e, value in zip(evaluations, accuracy or (), strict=False):
        e.metrics["accuracy"] = zero + value
    history = History(tuple(range(len(curves))), evaluations)
    return said_of(lambda: rising_loss_warning.warn(history))


def rises(curve):
    """The rule, by SciPy's regression: the slope is above 0 at one side's 0.5 %."""
    line = (
        linregress(np.arange(len(curve)), curve, alternative="greater") if len(curve) > 3 else None
    )
    return line is not None and curve[-1] > curve[0] and line.pvalue < 0.005


def test_random_curves_are_told_of_by_the_rule():
    rng, told = np.random.default_rng(0), []
    for slope in (-0.5, 0.0, 2.0):
        for _ in range(60):
            length = int(rng.integers(1, 12))
            curve = (slope * np.arange(length) + rng.normal(size=length)).tolist()
            assert len(of(curve)) == rises(curve)
            told.append((slope, bool(rises(curve))))
    assert {(-0.5, False), (0.0, False), (2.0, True)} <= {*told}
    assert not {(-0.5, True)} & {*told}


@pytest.mark.parametrize("length", [4, 10, 50])
@pytest.mark.parametrize("seeds", [1, 5])
def test_a_plateau_is_told_of_once_in_200_times(length, seeds):
    """Of independent noise, whatever the number of seeds: below 1 %, exactly 0.5 % or less.

    Above 1 % in 4,000 curves at 0.5 % (20 expected, 41 or more) it would be once in 50,000 trials.
    """
    curves = np.random.default_rng(1).normal(size=(4000, length, seeds)).mean(2)
    assert 0.001 < np.mean([rising_loss_warning.rises(curve) for curve in curves]) < 0.01


def test_a_noisy_curve_that_falls_is_not_told_of():
    """It rises in every other evaluation."""
    noisy = [3.0, 2.5, 2.9, 2.3, 2.7, 2.1, 2.6, 2.0]
    assert not of(noisy)
    assert not of(noisy[::-1][:3])


def test_it_names_the_numbers_and_how_many_seeds():
    fell, rose, more = [4.0, 3.9, 3.8, 3.7], [1.0, 2.0, 1.9, 2.5], [1.0, 2.0, 3.0, 4.0]
    (said,) = of(fell, rose, more, more, every=5)
    assert (
        "rose over 4 evaluations (mean of 4 seeds), from round 5 to 20: loss 1.75 to 3.55;" in said
    )
    assert "\n" not in said
    (said,) = of(more, name="perplexity")
    assert "loss rose over 4 evaluations, from round 1 to 4: perplexity 1 to 4;" in said


def test_a_model_that_gets_more_right_is_not_told_of():
    """It overfits: its loss rises with its accuracy."""
    rose = [0.331, 0.340, 0.349, 0.358]
    assert not of(rose, accuracy=[0.900, 0.905, 0.908, 0.911])
    assert of(rose, accuracy=[0.911, 0.908, 0.905, 0.900])


def test_what_is_no_loss_tells_nothing():
    more = [1.0, 2.0, 3.0, 4.0]
    for name in ("accuracy", "auc", "mean_absolute_error"):
        assert not of(more, name=name)


def uphill(rate, **options):
    """With a negative rate it goes uphill."""
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(rate),
        batches=fp.full_batch(),
    )
    test = dict(FEDERATION.examples)

    def score(params, example):
        return {"loss": squared(params, example)}

    given = {"score": score, "rounds": 5, "strategy": fp.Strategy()} | options
    return fp.simulate(algorithm, start(), FEDERATION, test, **given)


@pytest.mark.parametrize(("rate", "told"), [(0.1, False), (-0.01, True)])
def test_a_run_says_it(rate, told):
    said = said_of(lambda: uphill(rate))
    begins = "the test loss rose over 5 evaluations, from round 1 to 5: loss "
    assert [s.startswith(begins) for s in said] == [True] * told


def test_where_warnings_are_errors_the_history_is_not_lost():
    with warnings.catch_warnings():
        warnings.simplefilter("error", rising_loss_warning.RisingLossWarning)
        with pytest.raises(rising_loss_warning.RisingLossWarning) as raised:
            uphill(-0.01, delta=1e-5)
    found = raised.value.history
    assert found.rounds.tolist() == [1, 2, 3, 4, 5]
    assert found.state is not None
    assert found.certificate.epsilon == math.inf


SPOILT = {"clip_norm": 0.01, "noise_multiplier": 100.0}
FEW = {"algorithms": ["dp_fed_avg"], "rounds": 8, "every": 1, "seeds": 3, "progress": False}


@pytest.mark.slow
def test_a_run_of_the_launcher_says_it(tmp_path):
    """Digits under so much noise that the model is noise."""
    (said,) = said_of(
        lambda: experiments.run("quickstart", **FEW, **SPOILT, folder=tmp_path / "run")
    )
    assert "rose over 8 evaluations (mean of 3 seeds), from round 1 to 8: loss " in said


@pytest.mark.slow
def test_where_warnings_are_errors_the_launcher_loses_nothing(tmp_path):
    """All is recorded, models too, and the run goes on."""
    given = {**FEW, **SPOILT, "folder": tmp_path / "run", "keep_model": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error", rising_loss_warning.RisingLossWarning)
        with pytest.raises(experiments.TrainingError) as raised:
            experiments.run("quickstart", **given)
        ended = raised.value.run
        assert ended.summary.rounds == {"dp_fed_avg": 8}
        assert ended.history["dp_fed_avg"].rounds.tolist() == [*range(1, 9)]
        assert all(is_kept(ended.folder, "dp_fed_avg", s) for s in range(3))
        assert experiments.resume(ended.folder, progress=False).status == "complete"
