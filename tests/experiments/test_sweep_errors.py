"""Sweeps that are given something wrong, fail or are stopped: one line, a remedy, nothing lost."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tiers import every

from configs import quickstart
from fedpriv.experiments.base.writer import held
from fedpriv.experiments.commands import run, sweep
from fedpriv.experiments.config.options import split_options
from fedpriv.experiments.search import sweep_table
from fedpriv.experiments.search.sweep_folder import UNFINISHED, begin_sweep_folder
from fedpriv.experiments.search.sweep_grid import points
from fedpriv.experiments.search.training_together import Sweep

pytestmark = pytest.mark.usefixtures("quick_to_compile")


ONE = ["--algorithms", "rand_k"]


def launch(*args, output):
    return sweep.main(["quickstart", *map(str, args), "--output", str(output)])


def planned(config, rest, *grid):
    """The points that the command's words ask for."""
    name = config.__name__.rpartition(".")[2]
    options, rest = split_options(sweep.AllOptions, [name, "--grid", *grid, *rest])
    asked = sweep._asked(rest, options)
    return points(asked.grid, asked.settle)


def test_yes_and_no_are_swept_as_true_and_false():
    from configs import dp_scaffold_synthetic

    grid = ["authors.per_tensor=true,false", "--record-sampling=subsets"]
    found = planned(dp_scaffold_synthetic, ["--records", "50"], *grid)
    assert [p.settings.authors.per_tensor for p in found] == [True, False]
    assert [p.settings.records for p in found] == [50, 50]
    with pytest.raises(ValueError, match=r"yes or no as --field true or --field false"):
        planned(dp_scaffold_synthetic, [], "authors.per_tensor=maybe")


def test_missing_data_get_the_point_that_lacks_them(tmp_path, capsys, monkeypatch):
    def load(config):
        raise FileNotFoundError("digits: not there")

    monkeypatch.setattr(quickstart, "load", load)
    assert launch("--grid", "p=0.1,0.2", output=tmp_path / "never") == 2
    assert capsys.readouterr().err == "error: digits: not there (at p 0.1)\n"


def test_one_process_only(tmp_path, capsys, monkeypatch):
    for name in ("JOB_ID", "STEP_NODELIST", "PROCID", "LOCALID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    for name in ("NTASKS", "STEP_NUM_TASKS"):
        monkeypatch.setenv(f"SLURM_{name}", "2")
    assert launch("--grid", "p=0.1,0.2", output=tmp_path / "never") == 2
    said = capsys.readouterr().err
    assert said == "error: sweep: runs in one process; start it without srun\n"


@pytest.mark.slow
def test_training_that_fails_says_where_and_how_to_go_on(tmp_path, monkeypatch):
    """A bug in the middle of a sweep is no wrong input."""
    trained = []

    def failing(self, prepared):
        if trained:
            raise ValueError("a bug")
        trained.append(prepared)
        return "complete"

    monkeypatch.setattr(Sweep, "announce", lambda *_: None)
    monkeypatch.setattr(Sweep, "train", failing)
    with pytest.raises(ValueError, match=r"^a bug") as caught:
        launch(*ONE, "--grid", "p=0.1,0.2,0.3", "--traceback", output=tmp_path)
    assert caught.value.__notes__ == ["failed at p 0.2; the same sweep with its folder continues"]
    assert [prepared.point.title for prepared in trained] == ["p 0.1"]


@every("when", ["load", "announce"])
def test_the_folder_is_known_however_early_it_is_interrupted(when, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    where = {"load": quickstart, "announce": Sweep}
    monkeypatch.setattr(where[when], when, interrupted)
    assert sweep.main(["quickstart", *ONE, "--grid", "p=0.1,0.2"]) == 130
    *before, last = capsys.readouterr().err.splitlines()
    folder = last.partition("--output ")[2].partition(" ")[0]
    assert last == f"interrupted; the same command with --output {folder} goes on"
    assert Path(folder).match("runs/sweep-quickstart-*")
    if when == "announce":
        assert before == [f"sweep folder: {folder}"]
        assert (Path(folder) / "sweep.json").exists()


def test_other_code_is_noted_below_the_table():
    def found(revision, jax_version, prng=None):
        versions = {"jax": jax_version}
        return None, SimpleNamespace(git_revision=revision, versions=versions, prng=prng)

    assert sweep_table.origins([found("a", "1"), found("a", "1")]) == []
    assert sweep_table.origins([found("a", "1"), found("b+", "1"), found("a", "1")]) == [
        "the points were not trained with the same code: a in 2, b+ in 1 of 3"
    ]
    assert sweep_table.origins([found(None, "1"), found(None, "2")]) == [
        "the points were not trained with the same jax: 1 in 1, 2 in 1 of 2"
    ]
    assert sweep_table.origins([found(None, "1", "rbg"), found(None, "1")]) == [
        "the points were not trained with the same prng: rbg in 1, unknown in 1 of 2"
    ]


def test_values_of_several_words_and_names_that_are_too_long():
    from configs import mspdq_mnist

    rest = ["--unstable"]
    found = planned(mspdq_mnist, rest, "submodels=1 1,2 18", "seeds=1,2")
    assert [(p.settings.submodels, p.settings.seeds) for p in found] == [
        ((1, 1), 1),
        ((1, 1), 2),
        ((2, 18), 1),
        ((2, 18), 2),
    ]
    assert found[2].name == "submodels=2-18,seeds=1"
    long = " ".join(["fed_avg", "msp_fl", "mspdq_fl", "ldp_fed_avg", "jopeq", "msp_laplace"])
    grid = [f"algorithms={long} msp_gaussian fed_avg_qsgd,{long}", "ldp.epsilon=1.5,2.25"]
    names = [p.name for p in planned(mspdq_mnist, rest, *grid)]
    assert len(set(names)) == 4
    assert max(map(len, names)) < 130


def test_a_damaged_sweep_json_gets_a_remedy_and_is_not_made_by_being_stopped(
    tmp_path, capsys, monkeypatch
):
    with monkeypatch.context() as stopped:

        def stop(*_):
            raise KeyboardInterrupt

        stopped.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            begin_sweep_folder(tmp_path, {})
    assert not [*tmp_path.iterdir()]
    (tmp_path / UNFINISHED).write_text("{")  # as where it was killed
    monkeypatch.setattr(Sweep, "announce", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # it goes on to train
        launch(*ONE, "--traceback", "--grid", "p=0.1,0.2", output=tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["sweep.json"]


STREAMED = '''"""Its records stay on the host."""
from dataclasses import replace

import numpy as np

import fedpriv as fp
from configs import quickstart

settings = quickstart.settings


def build(settings):
    made = quickstart.on(settings, quickstart.load(settings))
    rows = np.array_split(np.arange(len(made.test["label"])), 120)
    examples = {k: np.asarray(v) for k, v in made.test.items()}
    streamed = [fp.StreamedFederation.from_arrays(examples, rows)] * settings.seeds
    entries = {n: e._replace(federations=streamed) for n, e in made.entries.items()}
    return replace(made, entries=entries)
'''


@pytest.mark.slow
def test_a_streamed_federation_is_refused_before_training(tmp_path, capsys):
    file, folder = tmp_path / "streamed.py", tmp_path / "never"
    file.write_text(STREAMED)
    grid = ["--grid", "rounds=1,2", "--algorithms", "fed_avg"]
    assert sweep.main([str(file), *grid, "--output", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: federation: fed_avg trains on a StreamedFederation")
    assert error.count("\n") == 1
    assert not folder.exists()


@pytest.mark.slow
def test_a_run_trains_on_a_streamed_federation(tmp_path):
    file = tmp_path / "streamed.py"
    file.write_text(STREAMED)
    alone = ["--algorithms", "fed_avg", "--rounds", "1", "--seeds", "1"]
    assert run.main([str(file), *alone, "--output", str(tmp_path / "run")]) == 0


def test_a_point_that_another_process_trains_is_left_alone(tmp_path):
    """Nothing of it is cleared, or trained."""
    folder, prepared = tmp_path / "a=1", SimpleNamespace(point=SimpleNamespace(name="a=1"))
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("recorded")
    with held(folder), pytest.raises(ValueError, match="writes to this run; end it first"):
        Sweep("quickstart", tmp_path).train(prepared)
    assert (folder / "metrics.jsonl").read_text() == "recorded"
