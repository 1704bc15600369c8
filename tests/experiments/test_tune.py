"""Tuning of step sizes: what it trains on, what it prints, what it refuses."""

import json

import numpy as np
import pytest

from configs import dp_scaffold_synthetic
from experiments import tune

SMALL = ["--clients", "4", "--records", "50", "--client-rate", "0.5", "--rounds", "4"]
SMALL += ["--local-steps", "3", "--warm-start", "1"]


def launch(*args):
    return tune.main(["dp_scaffold_synthetic", *SMALL, *args])


def test_the_best_step_is_marked_and_divergence_is_not_the_best(capsys):
    args = ["--algorithms", "scaffold", "fed_avg", "--folds", "2", "--values", "1e-9", "1", "1e38"]
    assert launch(*args, "--json") == 0
    found = json.loads(capsys.readouterr().out)["accuracy"]
    assert set(found) == {"scaffold", "fed_avg"}
    for of in found.values():
        assert of["1.0"] > of["1e-09"]
        assert of["1e+38"] is None or of["1e+38"] < of["1.0"]
    nested = {name: {float(v): a for v, a in of.items()} for name, of in found.items()}
    printed = tune.table(nested).splitlines()
    assert printed[0].split() == ["eta_0", "scaffold", "fed_avg"]
    assert [line.count("*") for line in printed[1:]] == [0, 2, 0]


def test_folds_share_no_record_and_miss_none():
    config = dp_scaffold_synthetic.Synthetic(clients=3, records=25, client_rate=1.0)
    data = dp_scaffold_synthetic.load(config)
    everything = data.train["image"].reshape(-1, 40)
    parts = list(tune._folds(data, 5))
    assert len(parts) == 5
    held = np.concatenate([part.test["image"].reshape(-1, 40) for part in parts])
    np.testing.assert_array_equal(np.unique(held, axis=0), np.unique(everything, axis=0))
    for part in parts:
        assert list(np.bincount(part.keys)) == [16, 16, 16]
        both = np.concatenate([part.train["image"], part.test["image"]]).reshape(-1, 40)
        np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(everything, axis=0))


def test_the_test_set_is_not_touched(monkeypatch):
    """Scores on records that are nobody's training records would show."""
    config = dp_scaffold_synthetic.Synthetic(clients=2, records=25, client_rate=1.0)
    data = dp_scaffold_synthetic.load(config)
    tested = {row.tobytes() for row in data.test["image"]}
    for part in tune._folds(data, 5):
        seen = np.concatenate([part.train["image"], part.test["image"]])
        assert not tested & {row.tobytes() for row in seen}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--values", "0"], "--values: 0.0 is not positive"),
        (["--folds", "6"], "--folds: 6 is not between 1 and 5"),
        (["--rounds", "0"], "rounds: 0 is not at least 1"),
        (["--etta", "1"], "--etta: unknown field"),
    ],
)
def test_bad_input(args, said, capsys):
    assert launch(*args) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_config_without_a_step_size(capsys):
    assert tune.main(["quickstart"]) == 2
    assert "quickstart has no step size eta_0 to tune" in capsys.readouterr().err
