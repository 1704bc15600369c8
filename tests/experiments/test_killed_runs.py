"""What readers say of a run that was killed, beside what the same run says of itself where it was stopped."""

import json
import math
import shutil

import pytest
from recorded import made

from fedpriv import experiments
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.frame import rows
from fedpriv.experiments.tables.grid import grid
from fedpriv.experiments.tables.latex import latex

PRIVATE = "dp_fed_avg"


@pytest.fixture
def folder(tmp_path):
    """Killed in one of the 5 rounds after round 20, of 200."""
    folder = shutil.copytree(made("interrupted").path, tmp_path / "run")
    (folder / "summary.json").unlink()
    return folder


def change(folder, **given):
    path = folder / "config.json"
    held = json.loads(path.read_text())
    held["settings"] |= given.pop("settings", {})
    path.write_text(json.dumps(held | given))
    return read(folder).results


def test_it_says_what_a_stopped_one_says_but_for_its_epsilon(folder):
    stopped, killed = read(made("interrupted").path).summary, read(folder).results
    assert killed.rounds_planned == stopped.rounds_planned
    assert killed.rounds == stopped.rounds
    for name, report in killed.privacy.items():
        assert report.rounds + report.uncounted == stopped.privacy[name].rounds == 25


def test_its_epsilon_says_that_it_is_a_lower_bound(folder):
    run = read(folder)
    table = grid(rows([run]))
    cells = [dict(zip(table.head, each, strict=True)) for each in table.rows]
    for cell, name in zip(cells, run.lines, strict=True):
        certificate = run.certificates[name]["third_party"]
        assert certificate.epsilon == run.lines[name][-1].privacy.certified.epsilon
        assert "5 more may have been" in certificate.assumptions[-1]
        shown = cell["ε, third party"]
        assert shown.startswith("≥ ") == math.isfinite(certificate.epsilon)
        assert cell["ε claimed"].startswith("≥ ") == (cell["ε claimed"] != "-")
        assert cell["rounds"] == "20 of 200"
    assert r"$\geq$ " in latex(table)
    assert "≥" not in latex(table)
    assert any("up to 5 more may have run" in note for note in table.notes)
    made_frame = experiments.table(folder)
    assert set(made_frame["rounds_uncounted"]) == {5}
    assert set(experiments.table(made("interrupted").path)["rounds_uncounted"]) == {0}
    assert "without up to 5 more" in experiments.report(folder).read_text()


@pytest.mark.parametrize(
    ("given", "uncounted", "planned"),
    [
        ({"settings": {"rounds": 20}}, 0, 20),  # it had trained to the end
        ({"settings": {"rounds": 22}}, 2, 22),
        ({"settings": {"stop_at_epsilon": 2.0}}, 5, None),  # how many that allows is not known
        ({"settings": {"patience": 3}}, 180, 200),  # when to stop is for the models to say
        ({"resumed": [{"time": "", "reached": {PRIVATE: 40}}]}, 25, 200),
        ({"algorithm_settings": {PRIVATE: {"hours_per_round": 2.0}}}, 5, None),
        ({"algorithm_settings": {PRIVATE: {"rounds": 100}}}, 5, 100),
    ],
)
def test_how_many_may_have_run(folder, given, uncounted, planned):
    found = change(folder, **given)
    assert found.privacy[PRIVATE].uncounted == uncounted
    assert found.rounds_planned.get(PRIVATE) == planned


def test_what_everyone_looks_for_comes_first(folder):
    """A notebook shows the first ten columns of a frame, and the last ten."""
    head = [*experiments.table(folder)][:10]
    epsilon = [f"certified_third_party_{x}" for x in ("epsilon", "delta", "unit", "view")]
    epsilon += [f"certified_third_party_{x}" for x in ("relation", "basis")]
    assert head == ["run", "name", "accuracy_final_mean", "accuracy_final_std", *epsilon]
    change(folder, settings={"view": "server"})
    assert [*experiments.table(folder)][4] == "certified_server_epsilon"
