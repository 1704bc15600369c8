"""`fedpriv privacy --verify RUN`: a run's certificates by their pairs, and these by its config."""

import json
import math
import shutil

import pytest
import recorded
from reported import record

from fedpriv.experiments.accounting.verifying import verified
from fedpriv.experiments.commands.privacy import main

ABOUT = {
    "environment": {"versions": {}, "device": {}, "git_revision": None, "code": {}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "run"
    record(folder, algorithms=("fed_avg", "dp_fed_avg"), about=ABOUT)
    return folder


@pytest.fixture
def changed(run, tmp_path):
    """A copy in which DP-FedAvg's certificates are not what was recorded."""

    def change(view="third_party", **fields):
        folder = shutil.copytree(run, tmp_path / "run")
        path = folder / "summary.json"
        whole = json.loads(path.read_text())
        report = whole["privacy"]["dp_fed_avg"]
        (report if view is None else report["certified"][view]).update(fields)
        path.write_text(json.dumps(whole))
        return folder

    return change


def answer(capsys, folder):
    code = main(["--verify", str(folder)])
    return code, " ".join(capsys.readouterr().out.split())


def test_a_run_is_confirmed(run, capsys):
    found = verified(run)
    assert {one.status for one in found} == {"confirmed"}
    private = [one for one in found if math.isfinite(one.certificate.epsilon)]
    assert len(private) == 3
    assert all(one.theirs[0].startswith("confirmed") for one in private)
    code, text = answer(capsys, run)
    assert code == 0
    assert "contradicted" not in text
    assert "origin: confirmed" in text
    assert "trusted: " in text


def test_a_lower_epsilon_fails_by_its_numbers(changed, capsys):
    code, text = answer(capsys, changed(epsilon=0.5))
    assert code == 1
    assert "numbers: contradicted: unit 1 of 1" in text


def test_another_unit_fails_by_its_origin(changed, capsys):
    code, text = answer(capsys, changed(unit="person"))
    assert code == 1
    assert "origin: contradicted: unit: person, and the config's is client" in text


def test_other_rounds_fail_by_their_origin(changed, capsys):
    code, text = answer(capsys, changed(view=None, rounds=10))
    assert code == 1
    assert "rounds: 10, and metrics.jsonl has 20" in text


def test_fewer_rounds_than_the_config_says_fail_by_their_origin(run, tmp_path, capsys):
    """Also where the certificate, and what was measured, are those of so many."""
    folder = shutil.copytree(run, tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [x for x in lines if '"dp_fed_avg"' not in x or json.loads(x)["round"] <= 10]
    (folder / "metrics.jsonl").write_text("".join(kept))
    whole = json.loads((folder / "summary.json").read_text())
    whole["privacy"]["dp_fed_avg"]["rounds"] = whole["rounds"]["dp_fed_avg"] = 10
    (folder / "summary.json").write_text(json.dumps(whole))
    code, text = answer(capsys, folder)
    assert code == 1
    assert "rounds: 10, and the config has 20" in text


def test_a_certificate_without_pairs_among_others_fails_by_its_origin(changed, capsys):
    code, text = answer(capsys, changed(compositions=[], epsilon=0.1, epsilons={"PLD": 0.1}))
    assert code == 1
    assert "origin: contradicted: pairs: none" in text


def test_a_run_without_pairs_is_not_verifiable(capsys):
    code, text = answer(capsys, recorded.made("old").path)
    assert code == 0
    assert "not verifiable: a file of an older version has no pairs" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--verify", "nowhere"], "nowhere holds no run"),
        (["quickstart", "--verify", "somewhere"], "verify: "),
        (["--verify=nowhere"], "nowhere holds no run"),
        (["--verify", "somewhere", "--rounds", "3"], "verify: "),
    ],
    ids=["no run", "a config, too", "by =", "a field, too"],
)
def test_what_cannot_be_verified(args, words, capsys):
    assert main(args) == 2
    assert words in capsys.readouterr().err
