"""A model that was chosen under a certificate stands in tables as a run does, at the epsilon of the choice."""

import json
import shutil

import pytest
from recorded import made
from small import refused

from fedpriv import experiments
from fedpriv.core.json_values import plain
from fedpriv.experiments.commands import compare
from fedpriv.experiments.runs.released import RELEASE, Release
from fedpriv.experiments.runs.run_folder import RunFolder, read
from fedpriv.experiments.training.progress import RecordedProgress
from fedpriv.privacy import Certificate

NAME = "dp_fed_avg"


def made_run() -> RunFolder:
    return read(made("private").path)


def certificate() -> Certificate:
    """Towards a third party."""
    return made_run().certificates[NAME]["third_party"]


@pytest.fixture
def folder(tmp_path):
    """As `sweep --best-of 5` leaves it."""
    kept = Release(
        certificate(),
        "quickstart",
        NAME,
        rounds=20,
        best_of=5.0,
        settings=made_run().settings,
        values={"p": "0.2"},
        solved={"noise_multiplier": 1.5},
        metric="accuracy",
        value=0.75,
    )
    path = tmp_path / "best"
    path.mkdir()
    (path / RELEASE).write_text(json.dumps(plain(kept)))
    return path


def test_it_stands_beside_runs_with_the_epsilon_of_the_choice(folder, tmp_path, capsys):
    frame = experiments.table([made("private").path, folder])
    row = frame[frame["folder"] == str(folder)].iloc[0]
    assert row["accuracy_final_mean"] == 0.75
    assert row["certified_third_party_epsilon"] == pytest.approx(certificate().epsilon)
    assert (row["rounds"], row["seeds"], row["trained_noise_multiplier"]) == (20, 1, 1.5)
    shutil.copytree(folder, tmp_path / "several" / "best")  # a folder of such is one of runs
    given = ["--output", str(tmp_path / "t.tex"), str(tmp_path / "t.csv")]
    assert compare.main([str(made("private").path), str(tmp_path / "several"), *given]) == 0
    said = "of the choice of the best of a secret number of trials, 5 on average"
    printed = capsys.readouterr().out
    for text in (printed, " ".join((tmp_path / "t.tex").read_text().split())):
        assert text.count(said) == 2  # its letter, and a note
    assert "every other epsilon is of ONE model" in printed


def test_alone_it_is_not_said_to_be_of_one_model(folder):
    notes = " ".join(experiments.table(folder).attrs["notes"])
    assert "ONE model" not in notes
    assert "the choice of the best" in notes
    page = experiments.report(folder, folder / "page.html").read_text()
    assert "75.00" in page


def test_nothing_of_its_training_can_be_drawn(folder, tmp_path):
    with refused("^runs: of a model that was chosen"):
        experiments.figure(folder, tmp_path / "f.png")
    drawn = experiments.figure([folder, made("private").path], tmp_path / "f.png")
    assert drawn.path.exists()


def test_what_is_no_release_is_refused(folder):
    path = folder / RELEASE
    path.write_text(json.dumps({"certified": plain(certificate())}))
    with refused("holds no model, as every trial diverged; leave it out"):
        experiments.table(folder)
    path.write_text("{")
    with refused("is damaged .*; restore it"):
        experiments.table(folder)


def test_progress_says_of_what_an_epsilon_is(capsys):
    """Of a trial, and of a run."""
    evaluation = made("private").histories[NAME].evaluations[0]
    for of, said in (("of this trial alone (4 of the choice)", 2), ("", 0)):
        bar = RecordedProgress(NAME, 20, certificate(), None, {}, epsilon_of=of)
        bar.update(evaluation, certificate())
        bar.close()
        text = " ".join(capsys.readouterr().err.split())
        assert text.count("of this trial alone") == said
