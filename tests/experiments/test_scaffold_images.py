"""The image experiments of DP-SCAFFOLD, end to end on tiny prepared data sets."""

import json
from dataclasses import replace

import numpy as np
import pytest
from prepared import write_random

from configs import dp_scaffold_femnist
from fedpriv.experiments.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]

SMALL = ["--clients", "4", "--records", "50", "--client-rate", "0.5", "--local-steps", "3"]
SMALL += ["--rounds", "2", "--every", "1", "--warm-start", "1"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", train=220, test=20)
    return folder


def test_a_run(prepared, tmp_path):
    """Of a network, whose minimum nobody knows; test_every_config trains the convex one."""
    options = ["--gamma", "10", "--authors.per-tensor"]
    d = 60 * 200 + 200 + 200 * 10 + 10
    given = [*SMALL, *options, "--data-dir", str(prepared), "--output", str(tmp_path / "r")]
    given += ["--algorithms", "dp_fed_avg"]
    assert run.main(["dp_scaffold_mnist", *given]) == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["uplink_mb_per_client_not_private"]["dp_fed_avg"] == pytest.approx(
        2 * 0.5 * d * 32 / 8e6
    )
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    for line in lines:
        measured = json.loads(line)["diagnostics_not_private"]
        assert np.isfinite(measured["objective"]["mean"])
        assert "log_gap" not in measured


def test_too_few_images(prepared, tmp_path, capsys):
    given = ["--clients", "5", "--records", "50", "--data-dir", str(prepared)]
    assert run.main(["dp_scaffold_mnist", *given, "--output", str(tmp_path / "r")]) == 2
    assert "records: 5 clients of 50 need 250 images, mnist has 220" in capsys.readouterr().err


def test_the_stand_in_for_letters_is_another_sets_test_split(tmp_path):
    write_random(tmp_path, "emnist/bymerge", train=20, test=220)
    own = {"dataset": "emnist/bymerge", "clients": 4, "records": 50, "client_rate": 0.5}
    settings = replace(dp_scaffold_femnist.settings, data_dir=tmp_path, **own)
    data = dp_scaffold_femnist.load(settings)
    assert len(data.train["label"]) + len(data.test["label"]) == 4 * 50
