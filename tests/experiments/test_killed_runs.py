"""What readers say of a run that was killed, beside what the same run says of itself where it was stopped."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from recorded import made

from fedpriv import experiments
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs.recorder import Recorder, described
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.frame import rows
from fedpriv.experiments.tables.grid import grid
from fedpriv.experiments.tables.latex import latex
from fedpriv.experiments.tables.swept_privacy import ends_by_epsilon
from fedpriv.experiments.tables.terminal import notes, rows_of

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
        first = 0 if math.isfinite(certificate.epsilon) else -1
        assert "5 more may have been" in certificate.assumptions[first]
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
        ({"settings": {"patience": 3, "stop_at_epsilon": 2.0}}, 180, None),  # that allows no more
        ({"settings": {"stop_at": 0.9, "every": None, "stop_at_epsilon": 2.0}}, 0, None),
        ({"rounds_planned": {PRIVATE: 23}, "settings": {"stop_at_epsilon": 2.0}}, 3, 23),
        (
            {"rounds_planned": {PRIVATE: 90}, "settings": {"patience": 3, "stop_at_epsilon": 2.0}},
            70,
            90,
        ),
        ({"rounds_planned": {PRIVATE: 300}, "settings": {"patience": 3}}, 280, 300),
        ({"resumed": [{"time": "", "reached": {PRIVATE: 40}}]}, 25, 200),
        ({"algorithm_settings": {PRIVATE: {"hours_per_round": 2.0}}}, 5, None),
        ({"algorithm_settings": {PRIVATE: {"rounds": 100}}}, 5, 100),
    ],
)
def test_how_many_may_have_run(folder, given, uncounted, planned):
    found = change(folder, **given)
    assert found.privacy[PRIVATE].uncounted == uncounted
    assert found.rounds_planned.get(PRIVATE) == planned


def test_the_rounds_that_are_planned_are_recorded(tmp_path):
    config = modules.load("quickstart")
    settings = changed(config.settings, {"data_dir": tmp_path})
    about = described(experiment_of(config, settings), {}, {"dp_fed_avg": 7})
    Recorder(tmp_path / "run", "quickstart", settings, about)
    assert read(tmp_path / "run").begun.rounds_planned == {"dp_fed_avg": 7}


def test_its_own_table_says_so_too(folder):
    run = read(folder)
    finite = {n for n, of in run.certificates.items() if math.isfinite(of["third_party"].epsilon)}
    assert PRIVATE in finite
    head, *cells = rows_of(run.results)
    column = head.index("eps")
    for name, row in zip(run.results.rounds, cells, strict=True):
        assert row[column].startswith("≥ ") == (name in finite)
    assert run._repr_html_().count("≥ ") >= len(finite)
    whole = read(made("interrupted").path)
    assert not any(cell.startswith("≥") for row in rows_of(whole.results) for cell in row)
    killed = replace(run.results, privacy={n: _grouped(r) for n, r in run.results.privacy.items()})
    said = "\n".join(notes(killed))
    assert "third_party, at least, by group: a 1, b 2" in said


def _grouped(report):
    return replace(report, group_epsilons={"third_party": {"a": 1.0, "b": 2.0}})


def test_it_is_no_end_of_a_sweep(tmp_path):
    inside = sorted(path for path in made("sweep").path.iterdir() if path.is_dir())
    folders = [shutil.copytree(path, tmp_path / path.name) for path in inside]
    whole = [read(folder) for folder in folders]
    (before,) = ends_by_epsilon(whole)
    rounds = whole[0].summary.rounds
    (folders[0] / "summary.json").unlink()
    change(folders[0], rounds_planned={name: 2 * done for name, done in rounds.items()})
    killed = read(folders[0])
    (ends,) = ends_by_epsilon([killed, *whole[1:]])
    assert all(report.uncounted for report in killed.results.privacy.values())
    for name, lines in before.lines.items():
        assert len(ends.lines[name]) == len(lines) - 1
        assert {*_epsilons(ends.lines[name])} <= {*_epsilons(lines)}
    other = replace(killed, begun=replace(killed.begun, settings=whole[1].settings))
    assert ends_by_epsilon([killed, other]) == []


def _epsilons(lines):
    return [line.privacy.certified.epsilon for line in lines]


def test_the_frame_by_group_says_how_many(tmp_path):
    folder = shutil.copytree(made("groups").path, tmp_path / "run")
    assert set(experiments.table(folder, by="group")["rounds_uncounted"]) == {0}
    (folder / "summary.json").unlink()
    run = read(folder)
    change(folder, settings={"rounds": 10 * max(run.results.rounds.values()), "every": 2})
    assert set(experiments.table(folder, by="group")["rounds_uncounted"]) == {2}


def test_what_everyone_looks_for_comes_first(folder):
    """A notebook shows the first ten columns of a frame, and the last ten."""
    head = [*experiments.table(folder)][:10]
    epsilon = [f"certified_third_party_{x}" for x in ("epsilon", "delta", "unit", "view")]
    epsilon += [f"certified_third_party_{x}" for x in ("relation", "basis")]
    assert head == ["run", "name", "accuracy_final_mean", "accuracy_final_std", *epsilon]
    change(folder, settings={"view": "server"})
    assert [*experiments.table(folder)][4] == "certified_server_epsilon"
