"""experiments.reproduce on a tiny paper: tables from run folders, sharing, going on."""

import dataclasses
import json
import shutil
import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from reported import record_experiment
from reproduced import ITEMS, PLAIN, PRIVATE, TABLE, launch, rows

from configs import quickstart
from fedpriv.core.json_values import plain
from fedpriv.experiments.base.provenance import git_revision
from fedpriv.experiments.commands import reproduce
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.papers.reproduce import reproduce as room
from fedpriv.experiments.papers.reproduce import work
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.item import Scale
from fedpriv.experiments.papers.reproduce.table import fill, scaled
from fedpriv.experiments.papers.reproduce.work import Shelf
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.runs.recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    assert jax.device_count() == 2  # starts JAX, before the quickstart asks for one device
    monkeypatch.setitem(PAPERS, "tiny", ITEMS)


def status(output, capsys):
    """Of each item of the tiny paper, as --list has it."""
    capsys.readouterr()
    assert reproduce.main(["--list", "--output", str(output)]) == 0
    lines = capsys.readouterr().out.split("tiny\n")[1].split("\n\n")[0].splitlines()[2:]
    return {line.split()[0]: line[8:].split("  ")[0].strip() for line in lines}


def recorded(config, folder, *, progress, **settings):
    """The run folder that a training would leave, without it."""
    _, module = modules.named(config)
    settled = changed(module.settings, settings | {"output": str(folder)})
    record_experiment(folder, config, settled, experiment_of(module, settled), (2, 4))
    return SimpleNamespace(status="complete")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The table in full, made once; the fixture above is too late for it."""
    output = tmp_path_factory.mktemp("reproduce") / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAPERS, "tiny", ITEMS)
        patch.setattr(work, "train_or_resume", recorded)
        assert launch("table1", output=output) == 0
    return output


def summary(output, work, runs="runs"):
    return json.loads((output / "tiny" / runs / work.key / "summary.json").read_text())


def test_the_table_says_what_the_run_folders_say(finished):
    found = rows(finished / "tiny" / "table1")
    assert list(found) == [(c.row, c.column) for c in TABLE.cells]
    best = summary(finished, PLAIN)["best"]["fed_avg"]["accuracy"]
    cell = found["FedAvg", "best (%)"]
    assert float(cell["measured"]) == pytest.approx(100 * np.mean(best["per_seed"]))
    assert float(cell["measured_std"]) == pytest.approx(100 * np.std(best["per_seed"], ddof=1))
    assert (cell["published"], cell["published_std"]) == ("90.5", "0.25")
    assert float(cell["difference"]) == pytest.approx(float(cell["measured"]) - 90.5)
    private = summary(finished, PRIVATE)
    megabytes = summary(finished, PLAIN)["uplink_mb_per_client_not_private"]["fed_avg"]
    assert float(found["FedAvg", "MB"]["measured"]) == megabytes
    final = private["final"]["dp_fed_avg"]["accuracy"]["mean"]
    assert float(found["DP-FedAvg", "last (%)"]["measured"]) == pytest.approx(100 * final)
    assert found["DP-FedAvg", "last (%)"]["difference"] == ""
    privacy = private["privacy"]["dp_fed_avg"]
    assert float(found["DP-FedAvg", "eps claimed"]["measured"]) == privacy["claimed"]["epsilon"]
    epsilon = privacy["certified"]["third_party"]["epsilon"]
    assert float(found["DP-FedAvg", "eps certified"]["measured"]) == epsilon
    assert {row["comparable"] for row in found.values()} == {"yes"}
    assert {row["scaled"] for row in found.values()} == {""}


def test_markdown_has_the_same_with_the_papers_decimals(finished):
    text = (finished / "tiny" / "table1" / "table.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| FedAvg"))
    cell = rows(finished / "tiny" / "table1")["FedAvg", "best (%)"]
    mean, std = float(cell["measured"]), float(cell["measured_std"])
    expected = f"| 90.50 +- 0.25 | {mean:.2f} +- {std:.2f} | {mean - 90.5:+.2f} |"
    assert row.startswith(f"| FedAvg {expected}")
    assert "scaled" not in text
    assert "(client, third party, add-or-remove)" in text  # of the claim
    assert "(replace-one)" in text  # of the third party's certificate
    assert "noise_multiplier 2.0" in text
    for said in ("a tiny table", "seeds: 0 to 1", "revision", "jax ", "fedpriv reproduce tiny"):
        assert said in text


def test_its_trainings_are_ordinary_run_folders(finished):
    """With the settings asked for, and no others."""
    folders = [finished / "tiny" / "runs" / work.key for work in (PLAIN, PRIVATE)]
    assert [run_folder.read(folder).summary.rounds for folder in folders] == [
        {"fed_avg": 4},
        {"dp_fed_avg": 4},
    ]
    settings = summary(finished, PRIVATE)["settings"]
    expected = dataclasses.replace(
        quickstart.settings,
        rounds=4,
        seeds=2,
        every=2,
        algorithms=("dp_fed_avg",),
        keep_model=False,
        clients=20,
        cohort=3,
        sampling="fixed_size",
        noise_multiplier=2.0,
        local=dataclasses.replace(quickstart.settings.local, epochs=1),
    )
    assert settings | {"output": None} == plain(expected)


def test_what_is_trained_is_not_trained_again_nor_by_another_item(finished, monkeypatch, capsys):
    monkeypatch.delattr(work, "train_or_resume")
    before = {f: f.read_bytes() for f in finished.glob("tiny/runs/*/*")}
    assert status(finished, capsys) == {
        "table1": "done",
        "fig1": "partly (2 of 2)",
        "fig2": "not yet",
        "fig3": "nothing to measure",
    }
    for item in ("table1", "fig1"):
        assert launch(item, output=finished) == 0
        assert "2 of 2 done; now nothing" in capsys.readouterr().err
        assert (finished / "tiny" / item / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert status(finished, capsys)["fig1"] == "done"
    assert rows(finished / "tiny" / "fig1")["saved", "%"]["measured"] == "not reached"
    assert {f: f.read_bytes() for f in finished.glob("tiny/runs/*/*")} == before
    assert not [f for f in finished.glob("**/*unfinished*")]


@pytest.fixture(scope="module")
def little_by_little(tmp_path_factory):
    """The table at half its size: first one row, then interrupted in the middle of the other, then to its end.

    Returns (output, what there was after each command).
    """
    output, recorded, evaluation = tmp_path_factory.mktemp("half"), [], Recorder.evaluation

    def interrupting(self, *given):
        evaluation(self, *given)
        recorded.append(self.folder.name)
        if recorded.count(PRIVATE.key) == 1:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C: a checkpoint is taken

    folder, steps = output / "tiny" / "table1-scale-0.5", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAPERS, "tiny", ITEMS)
        patch.setattr(Recorder, "evaluation", interrupting)
        for more in (["--only", "p=0.3", "fed_avg quickstart"], [], []):
            recorded.clear()
            code = launch("table1", "--scale", "0.5", *more, output=output)
            text = (folder / "table.md").read_text()
            steps.append((code, list(recorded), text, rows(folder)))
            if code == 130:
                cut = output / "tiny" / "runs-scale-0.5" / PRIVATE.key
                assert json.loads((cut / "summary.json").read_text())["status"] == "interrupted"
                (cut / "summary.json").unlink()  # as a killed process leaves it
                patch.setattr(Recorder, "evaluation", evaluation)
    return output, steps


def test_an_interrupted_one_goes_on(little_by_little):
    output, steps = little_by_little
    assert [code for code, *_ in steps] == [0, 130, 0]
    assert [made for _, made, *_ in steps] == [[PLAIN.key] * 2, [PRIVATE.key], []]
    for _, _, text, found in steps[:2]:
        assert "Trained so far: 1 of 2" in text
        assert float(found["FedAvg", "best (%)"]["measured"]) > 0
        assert found["DP-FedAvg", "best (%)"]["measured"] == ""
        assert "| DP-FedAvg | 50 | - | - |" in text
    assert float(steps[2][3]["DP-FedAvg", "best (%)"]["measured"]) > 0
    assert "Trained so far" not in steps[2][2]
    lines = output / "tiny" / "runs-scale-0.5" / PRIVATE.key / "metrics.jsonl"
    assert len(lines.read_text().splitlines()) == 2
    [resumed] = summary(output, PRIVATE, "runs-scale-0.5")["resumed"]
    assert resumed["rounds"] == {"dp_fed_avg": 1}  # from there on


def test_a_scaled_one_says_so_everywhere(little_by_little, monkeypatch, capsys):
    from matplotlib.figure import Figure

    output, steps = little_by_little
    _, _, text, found = steps[-1]
    said = "scaled: 2 of 4 rounds, 1 of 2 seeds"
    assert f"**{said}**" in text
    assert {row["scaled"] for row in found.values()} == {said}
    cell = found["FedAvg", "best (%)"]
    assert (cell["comparable"], cell["measured_std"]) == ("no", "")
    assert f"({float(cell['difference']):+.2f})" in text
    assert "not comparable" in text
    assert found["DP-FedAvg", "eps claimed"]["comparable"] == "yes"  # of all rounds, computed
    there = summary(output, PLAIN, "runs-scale-0.5")
    assert (there["rounds"]["fed_avg"], there["settings"]["seeds"]) == (2, 1)
    states = status(output, capsys)
    assert states["table1"] == "done at scale 0.5"
    assert states["fig1"] == "partly (2 of 2) at scale 0.5"
    (output / "tiny" / "fig1-scale-0.5").mkdir(exist_ok=True)
    (output / "tiny" / "fig1-scale-0.5" / "table.md").write_text(steps[0][2])  # of a part of it
    assert status(output, capsys)["fig1"] == "partly (2 of 2) at scale 0.5"
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, text, **_: titles.append(text))
    assert launch("table1", "--scale", "0.5", output=output) == 0
    assert titles == [f"tiny table1; {said}"]


def test_with_one_seed_and_all_rounds_differences_compare(finished):
    results = Shelf(finished).results(TABLE)
    filled = fill(TABLE, Scale(1.0, 1), results)
    assert all(f.comparable for f in filled)
    assert scaled(TABLE, Scale(1.0, 1), results) == "scaled: 1 of 2 seeds"


def test_a_computation_is_kept_like_a_training(tmp_path, monkeypatch, capsys):
    assert launch("fig2", "--scale", "0.5", output=tmp_path) == 0
    assert rows(tmp_path / "tiny" / "fig2-scale-0.5")["all", "found"]["measured"] == "4"
    text = (tmp_path / "tiny" / "fig2-scale-0.5" / "table.md").read_text()
    assert f"revision: {git_revision()}" in text
    monkeypatch.setattr(room, "perform", None)
    assert launch("fig2", "--scale", "0.5", output=tmp_path) == 0
    assert "now nothing" in capsys.readouterr().err


def test_numbers_of_other_defaults_are_not_taken(finished, monkeypatch, capsys):
    other = dataclasses.replace(quickstart.settings, public_examples=7, clip_norm=3.0)
    monkeypatch.setattr(quickstart, "settings", other)
    assert launch("table1", output=finished) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "where configs/quickstart.py now has" in said
    assert "delete it, or give another --output" in said


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
def test_a_damaged_run_folder_is_named(finished, tmp_path, name, capsys):
    shutil.copytree(finished, tmp_path / "copy")
    folder = tmp_path / "copy" / "tiny" / "runs" / PLAIN.key
    text = (folder / name).read_text()
    (folder / name).write_text('{"status": "complete"}' if name == "summary.json" else text[:-9])
    assert launch("table1", output=tmp_path / "copy") == 2
    said = capsys.readouterr().err
    assert said == f"error: {folder}: is damaged; delete it, so that it is done again\n"
    assert reproduce.main(["--list", "--output", str(tmp_path / "copy")]) == 0
