"""Tuning of step sizes: what it trains on, what it prints, what it refuses."""

import json
from dataclasses import replace
from types import SimpleNamespace

import dp_accounting as dp
import jax
import numpy as np
import pytest

from configs import dp_scaffold_synthetic
from experiments.search import noisy_choice, tune
from experiments.search.folds import without_fold

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "4", "--records", "50", "--client-rate", "0.5", "--rounds", "4"]
SMALL += ["--local-steps", "3", "--warm-start", "1"]


def launch(*args):
    return tune.main(["dp_scaffold_synthetic", *SMALL, *args])


def test_a_loss_is_best_where_it_is_least():
    tuned = tune.Tuned("loss", False, {"scaffold": {0.1: 2.5, 1.0: 0.5, 5.0: None}})
    assert [line.split() for line in tune.table(tuned).splitlines()[1:]] == [
        ["0.1", "2.5"],
        ["1", "0.5*"],
        ["5", "diverged"],
    ]


@pytest.mark.slow
def test_the_best_step_is_marked_and_neither_divergence_nor_the_test_set_counts(
    monkeypatch, capsys
):
    seen = set()

    def spy(config, data, on=dp_scaffold_synthetic.on):
        experiment = on(config, data)
        (entry,) = experiment.entries.values()
        for images in (experiment.test["image"], entry.federations[0].examples["image"]):
            seen.update(np.asarray(row).tobytes() for row in images)
        return experiment

    monkeypatch.setattr(dp_scaffold_synthetic, "on", spy)
    args = ["--algorithms", "scaffold", "fed_avg", "--folds", "2", "--values", "1e-9", "1", "1e38"]
    assert launch(*args, "--json") == 0
    found = json.loads(capsys.readouterr().out)["accuracy"]
    assert set(found) == {"scaffold", "fed_avg"}
    for of in found.values():
        assert of["1.0"] > of["1e-09"]
        assert of["1e+38"] is None or of["1e+38"] < of["1.0"]
    nested = {name: {float(v): a for v, a in of.items()} for name, of in found.items()}
    printed = tune.table(tune.Tuned("accuracy", True, nested)).splitlines()
    assert printed[0].split() == ["eta_0", "scaffold", "fed_avg"]
    assert [line.count("*") for line in printed[1:]] == [0, 2, 0]
    config = dp_scaffold_synthetic.Synthetic(clients=4, records=50, client_rate=0.5)
    data = dp_scaffold_synthetic.load(config)
    assert seen == {row.tobytes() for row in data.train["image"]}
    assert not seen & {row.tobytes() for row in data.test["image"]}


CHOICE = ["--algorithms", "dp_scaffold", "--best-of", "3", "--values", "0.001", "1"]


class Deterministic:
    """In the place of the system's randomness: gives the noise of each trial."""

    def __init__(self, *noise):
        self.left = list(noise)

    def __call__(self):
        return self

    def gauss(self, mean, deviation):
        assert (mean, deviation) == (0, 0.3)
        return self.left.pop(0)


@pytest.mark.slow
def test_the_best_noisy_score_on_the_held_out_records_is_told_alone(monkeypatch, capsys):
    """By what tuning without privacy finds there, of the same seed."""
    little = ["--noise-multiplier", "0.5", "--json"]
    plain = ["--algorithms", "dp_scaffold", "--folds", "1", "--values", "0.001", "1"]
    assert launch(*plain, *little) == 0
    means = json.loads(capsys.readouterr().out)["accuracy"]["dp_scaffold"]
    monkeypatch.setattr(noisy_choice, "drawn", lambda *_: [(0, 0), (1, 0)])
    assert 0 < means["1.0"] - means["0.001"] < 0.9
    for noise, value in (((0.0, 0.1), "1.0"), ((1.0, 0.1), "0.001")):
        monkeypatch.setattr(noisy_choice.random, "SystemRandom", Deterministic(*noise))
        assert launch(*CHOICE, *little, "--score-noise", "0.3") == 0
        shown, error = capsys.readouterr()
        found = json.loads(shown)
        assert found["value"] == float(value)
        assert found["mean"] == pytest.approx(means[value] + noise[value == "1.0"], abs=1e-6)
        assert error == ""
        assert (found["mean"] * 2**20).is_integer()
        assert "stay secret" in found["secret"]
        assert not jax.config.jax_enable_compilation_cache


def trial(**fields):
    """(experiments, data, config) of a choice between two steps, a fifth of 50 records of 4 clients being held out."""
    config = dp_scaffold_synthetic.Synthetic(
        clients=4, records=50, rounds=4, local_steps=3, warm_start=0, noise_multiplier=8.0,
        algorithms=("dp_fed_avg",), measured=False, **fields,
    )  # fmt: skip
    part = without_fold(dp_scaffold_synthetic.load(config), 0, 5)
    smaller = replace(config, records=config.training_records)
    made = [dp_scaffold_synthetic.on(replace(smaller, eta_0=value), part) for value in (0.1, 1.0)]
    return made, part, smaller


HELD = 4 * 8
STEP = dp.SampledWithoutReplacementDpEvent(32, 6, dp.GaussianDpEvent(8.0))
SCORE = dp.GaussianDpEvent(0.25 * HELD / 2)  # a replaced record is counted as two
REPLACED = dp.NeighboringRelation.REPLACE_ONE


def test_a_choice_by_held_out_records_costs_what_dp_accounting_says():
    """Per trial: 4 rounds of 3 steps on 6 of 32 records, everyone taking part, and the noisy score."""
    found = noisy_choice.certified(*trial(client_rate=1.0), 3.0, 0.25, 0.01)
    once = dp.ComposedDpEvent([dp.SelfComposedDpEvent(STEP, 12), SCORE])
    accountant = dp.rdp.RdpAccountant(neighboring_relation=REPLACED)
    accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(once, 3.0, 1))
    assert found.epsilon == pytest.approx(accountant.get_epsilon(0.01), rel=1e-6)
    assert (found.unit, found.relation, found.basis) == ("record", "replace_one", "declared")


def test_a_choice_among_trials_of_half_the_clients_costs_what_the_formulas_say():
    """A client's round is a mixture over its taking part; then Theorem 2 of Papernot and Steinke, with eta = 1."""
    found = noisy_choice.certified(*trial(client_rate=0.5), 3.0, 0.25, 0.01)
    orders = np.array([*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024])

    def rdp(event):
        accountant = dp.rdp.RdpAccountant(orders, REPLACED)
        return accountant.compose(event)._rdp

    a_round = rdp(dp.SelfComposedDpEvent(STEP, 3))
    mixed = np.logaddexp(np.log(0.5), np.log(0.5) + (orders - 1) * a_round) / (orders - 1)
    one = 4 * mixed + rdp(SCORE)
    rest = min(2 * (1 - 1 / orders) * one + 2 * np.log(3) / orders)
    best = one + rest + np.log(3) / (orders - 1)
    expected, _ = dp.rdp.compute_epsilon(orders, best, 0.01)
    assert found.epsilon == pytest.approx(expected, rel=1e-3)


def test_what_no_certificate_of_a_choice_covers_is_refused():
    made, part, config = trial(client_rate=1.0)
    twice = [
        replace(e, test=jax.tree.map(lambda leaf: np.repeat(leaf, 2, 0), e.test)) for e in made
    ]
    with pytest.raises(ValueError, match="makes 64 test examples of 32 held-out records"):
        noisy_choice.certified(twice, part, config, 3.0, 0.25, 0.01)
    with pytest.raises(ValueError, match="a record more or less"):
        noisy_choice.certified(*trial(client_rate=1.0, record_sampling="poisson"), 3.0, 0.25, 0.01)


def test_a_weighted_score_is_refused():
    def on(config, data):
        made = dp_scaffold_synthetic.on(config, data)
        score = made.model.score

        def weighted(params, example):
            return {**score(params, example), "weight": 2.0}

        return replace(made, model=made.model._replace(score=weighted))

    _, part, config = trial(client_rate=1.0)
    with pytest.raises(ValueError, match="metric: accuracy is weighted"):
        noisy_choice.choose(SimpleNamespace(on=on), config, part, (0.1, 1.0), 3.0, 0.25, 0.01)


def test_help_and_list(capsys):
    assert tune.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert "dp_scaffold_mnist" in listed
    assert "quickstart" not in listed
    for args in (["--help"], ["dp_scaffold_synthetic", "--help"]):
        with pytest.raises(SystemExit) as stop:
            tune.main(args)
        assert stop.value.code == 0
        assert "--folds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--values", "0"], "--values: 0.0; give"),
        (["--values", "inf"], "--values: inf; give"),
        (["--values", "abc"], "argument --values: invalid float value: 'abc'"),
        (["--folds", "2.5"], "argument --folds: invalid int value"),
        (["--records", "26"], "records: 26 leaves 21 for training, which are not five equal"),
        (["--eta-0", "3"], "eta_0: 3.0 has no use here"),
        (["--folds", "6"], "--folds: 6 is not between 1 and 5"),
        (["--rounds", "0"], "rounds: 0; give"),
        (["--etta", "1"], "--etta: unknown field"),
        (["--best-of", "1"], "--best-of: 1 is not a finite mean number of trials above 1"),
        ([*CHOICE, "--score-noise", "0"], "--score-noise: 0.0; give"),
        ([*CHOICE, "--folds", "2"], "leave --folds and seeds out"),
        ([*CHOICE, "--algorithms", "dp_scaffold", "dp_fed_avg"], "name one algorithm"),
        ([*CHOICE, "--algorithms", "scaffold"], "scaffold has no finite epsilon (not private"),
        ([*CHOICE, "--unit", "client"], "unit: client does not go with --best-of"),
        ([*CHOICE, "--stop-at", "accuracy=0.1"], "stop_at: accuracy=0.1 has no use here"),
        (["--view", "server"], "view: server has no use here"),
        (["--score-noise", "0.1"], "--score-noise: belongs to --best-of"),
        ([*CHOICE, "--metric", "loss"], "metric: loss is not an accuracy"),
    ],
)
def test_bad_input(args, said, capsys):
    try:
        code = launch(*args)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_config_without_a_step_size(capsys):
    assert tune.main(["quickstart"]) == 2
    assert "quickstart has no eta_0, load and on" in capsys.readouterr().err
