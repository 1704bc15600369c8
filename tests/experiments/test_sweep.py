"""Sweeps over the quickstart: the same results as single runs, few compilations, resuming, tables, wrong input."""

import csv
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import quickstart
from experiments import compare, run, sweep, sweep_table, sweep_train
from experiments.sweep_grid import UNFINISHED, axes, begin, ended, points
from fedpriv import fitting, privacy

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "20", "--cohort", "3", "--sampling", "fixed_size", "--local.epochs", "1"]
SMALL += ["--rounds", "3", "--every", "2", "--seeds", "2"]
PRIVATE = [*SMALL, "--algorithms", "dp_fed_avg"]
NOISES, RATES = ("0.5", "1"), ("0.05", "0.1", "0.2")
GRID = [f"noise-multiplier={','.join(NOISES)}", f"local.learning_rate={','.join(RATES)}"]


def launch(*args, output):
    return sweep.main(["quickstart", *map(str, args), "--output", str(output)])


def read(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), [json.loads(x) for x in lines]


def point(noise, rate):
    return f"noise_multiplier={noise},local.learning_rate={rate}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A grid of 2 x 3 numbers for a private algorithm and one that half of the grid does not touch."""
    assert jax.device_count() == 2  # starts JAX, before the quickstart asks for one device
    folder = tmp_path_factory.mktemp("sweep") / "here"
    both = [*SMALL, "--algorithms", "fed_avg", "dp_fed_avg"]
    assert launch("--grid", *GRID, *both, output=folder) == 0
    return folder


def without_times(line):
    return {k: v for k, v in line.items() if k != "seconds"}


@pytest.mark.parametrize(("noise", "rate"), [("0.5", "0.05"), ("1", "0.2")])
def test_a_point_is_the_run_that_the_launcher_makes(finished, noise, rate, tmp_path):
    given = ["--noise-multiplier", noise, "--local.learning-rate", rate]
    assert run.main(["quickstart", *PRIVATE, *given, "--output", str(tmp_path / "r")]) == 0
    single, expected = read(tmp_path / "r")
    ours, lines = read(finished / point(noise, rate))
    found = [line for line in lines if line["algorithm"] == "dp_fed_avg"]
    for f, e in zip(found, expected, strict=True):
        assert (f["round"], f["privacy"]) == (e["round"], e["privacy"])
        # Rounding: constants that became inputs may be folded in another order.
        np.testing.assert_allclose(f["loss"]["per_seed"], e["loss"]["per_seed"], rtol=1e-5)
        np.testing.assert_allclose(f["accuracy"]["per_seed"], e["accuracy"]["per_seed"], atol=0.003)
    assert ours["privacy"]["dp_fed_avg"] == single["privacy"]["dp_fed_avg"]
    assert ours.keys() - single.keys() == {"reused_from", "diverged"}
    settings = dict(single["settings"], algorithms=["fed_avg", "dp_fed_avg"])
    assert ours["settings"] | {"output": None} == settings | {"output": None}


def test_points_differ_where_their_settings_do(finished):
    """Or equality with the launcher's would mean little."""
    losses = {
        (algorithm, noise, rate): tuple(
            line["loss"]["mean"]
            for line in read(finished / point(noise, rate))[1]
            if line["algorithm"] == algorithm
        )
        for algorithm in ("fed_avg", "dp_fed_avg")
        for noise in NOISES
        for rate in RATES
    }
    assert len({losses[key] for key in losses if key[0] == "dp_fed_avg"}) == 6
    assert len({losses[key] for key in losses if key[0] == "fed_avg"}) == 3


def test_what_noise_does_not_touch_is_trained_once(finished):
    """FedAvg; with its numbers and the traffic in both folders, and a word on where they come from."""
    for rate in RATES:
        (first, ours), (second, theirs) = (read(finished / point(noise, rate)) for noise in NOISES)
        assert first["reused_from"] == {}
        assert second["reused_from"] == {"fed_avg": point(NOISES[0], rate)}
        fed_avg = [[x for x in lines if x["algorithm"] == "fed_avg"] for lines in (ours, theirs)]
        assert fed_avg[0] == fed_avg[1]
        assert second["compile_seconds"]["fed_avg"] == 0


def test_one_compilation_for_each_algorithm_and_a_table(finished):
    text = (finished / "table.md").read_text()
    assert "compiled programs: 2 for 9 trainings" in text
    assert "trainings whose result is another point's: 3" in text
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:14]]
    assert rows[0][:3] == ["noise_multiplier", "local.learning_rate", "algorithm"]
    expected = [[n, r, a] for n in NOISES for r in RATES for a in ("FedAvg", "DP-FedAvg")]
    assert [row[:3] for row in rows[2:]] == expected
    for row in rows[2:]:
        summary, _ = read(finished / point(row[0], row[1]))
        name = {"FedAvg": "fed_avg", "DP-FedAvg": "dp_fed_avg"}[row[2]]
        assert row[3:] == compare.cells(summary, name)[1:]
        assert "+-" in row[4]
    assert "of ONE model released alone" in text


def test_the_table_is_there_for_machines_too(finished):
    with (finished / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        summary, _ = read(finished / point(row["noise_multiplier"], row["local.learning_rate"]))
        name = row["algorithm"]
        assert float(row["accuracy_best_std"]) == summary["accuracy"]["best"][name]["std"]
        server = summary["privacy"][name]["certified"]["server"]
        assert float(row["certified_server_epsilon"]) == float(server["epsilon"])
        assert row["certified_server_relation"] == server["relation"]
        for view in privacy.VIEWS:
            certified = summary["privacy"][name]["certified"][view]
            assert row[f"certified_{view}_epsilon"] == str(certified["epsilon"])
        assert row["reused_from"] == summary["reused_from"].get(name, "")
    assert math.isinf(float(rows[0]["certified_third_party_epsilon"]))


def test_compare_reads_the_folders(finished, capsys):
    folders = [str(finished / point(noise, RATES[0])) for noise in NOISES]
    assert compare.main(folders) == 0
    assert "noise_multiplier 0.5 | FedAvg" in capsys.readouterr().out


def test_a_finished_sweep_is_not_trained_again(finished, capsys, monkeypatch):
    monkeypatch.delattr(sweep_train, "train_one")
    before = {f: f.read_bytes() for f in finished.glob("*/*")}
    both = [*SMALL, "--algorithms", "fed_avg", "dp_fed_avg"]
    assert launch("--grid", *GRID, *both, "--json", output=finished) == 0
    answer, said = capsys.readouterr()
    answer = json.loads(answer)
    assert "6 of 6 points are done" in said
    assert (answer["trained"], answer["compiled"], len(answer["rows"])) == (0, 0, 12)
    assert answer["grid"] == {
        "noise_multiplier": list(NOISES),
        "local.learning_rate": list(RATES),
    }
    assert {f: f.read_bytes() for f in finished.glob("*/*")} == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([*PRIVATE], "algorithms ['fed_avg', 'dp_fed_avg'] there, ['dp_fed_avg'] here"),
        ([*SMALL, "--algorithms", "fed_avg", "dp_fed_avg", "--p", "0.3"], "p 0.1 there, 0.3 here"),
    ],
)
def test_another_sweep_is_not_mixed_in(finished, args, said, capsys):
    before = {f: f.read_bytes() for f in finished.glob("**/*.*") if f.is_file()}
    assert launch("--grid", *GRID, *args, output=finished) == 2
    assert said in capsys.readouterr().err
    assert launch("--grid", "delta=0.1,0.2", *args, output=finished) == 2
    assert "holds another sweep: grid noise_multiplier=0.5,1" in capsys.readouterr().err
    assert {f: f.read_bytes() for f in finished.glob("**/*.*") if f.is_file()} == before


def test_an_interrupted_sweep_goes_on_with_the_same_command(
    finished, tmp_path, monkeypatch, capsys
):
    """In the middle of its second point, of which a killed one leaves no summary. On two devices, for a change."""
    args = ["--grid", "noise_multiplier=0.5,1,2", *PRIVATE, "--layout.devices", "2"]
    recorded, evaluation = [], sweep_train.Recorder.evaluation

    def interrupting(self, *given):
        evaluation(self, *given)
        recorded.append(self.folder.name)
        if len(recorded) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep_train.Recorder, "evaluation", interrupting)
    assert launch(*args, output=tmp_path) == 130
    assert f"the same command with --output {tmp_path} goes on" in capsys.readouterr().err
    cut = tmp_path / "noise_multiplier=1"
    assert read(cut)[0]["status"] == "interrupted"
    assert not (tmp_path / "noise_multiplier=2").exists()
    assert not (tmp_path / "table.md").exists()
    assert not ended(cut)
    (cut / "summary.json").unlink()
    assert not ended(cut)
    first = (tmp_path / "noise_multiplier=0.5" / "metrics.jsonl").read_text()
    assert launch(*args, "--json", output=tmp_path) == 0
    shown, said = capsys.readouterr()
    assert "1 of 3 points are done" in said
    assert json.loads(shown)["trained"] == 2
    assert (tmp_path / "noise_multiplier=0.5" / "metrics.jsonl").read_text() == first
    for noise in ("0.5", "1", "2"):
        summary, lines = read(tmp_path / f"noise_multiplier={noise}")
        assert summary["status"] == "complete"
        assert [line["round"] for line in lines] == [2, 3]
        if noise in NOISES:
            one_device = read(finished / point(noise, "0.1"))[1][-1]
            assert lines[-1]["loss"]["mean"] == pytest.approx(one_device["loss"]["mean"], rel=1e-4)


def test_what_changes_shapes_is_compiled_again(tmp_path, capsys):
    """p = 0.10001 keeps as many coordinates as 0.1, but is another number."""
    args = ["--cohort", "3", "--sampling", "fixed_size", "--local.epochs", "1", "--rounds", "1"]
    args += ["--seeds", "1", "--algorithms", "rand_k", "--grid", "p=0.1,0.2,0.10001", "--json"]
    assert launch(*args, output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["compiled"] == 2
    assert answer["trained"] + answer["reused"] == len(answer["rows"]) == 3


def test_the_width_that_fits_is_found_once_and_shared(tmp_path, capsys, monkeypatch):
    """A trial and the program of that width, however many points, and both are counted."""
    memory = iter([2**40])  # asked for a second time, it would end in an error
    monkeypatch.setattr(fitting, "free_memory", lambda: next(memory))
    compiled, compile_ = [], jax.stages.Lowered.compile

    def counting(lowered, *args, **kwargs):
        compiled.append(lowered)
        return compile_(lowered, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counting)
    args = [*PRIVATE, "--cohort", "10", "--rounds", "1", "--seeds", "1", "--layout.clients", "fit"]
    assert launch("--grid", "noise-multiplier=0.5,1", *args, "--json", output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trained"], answer["compiled"], len(compiled)) == (2, 2, 2)
    assert next(memory, None) is None
    monkeypatch.undo()
    assert run.main(["quickstart", *args, "--noise-multiplier", "1", f"--output={tmp_path}/r"]) == 0
    losses = [read(tmp_path / f)[1][0]["loss"]["mean"] for f in ("r", "noise_multiplier=1")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_what_concerns_accounting_alone_is_trained_once(tmp_path, capsys):
    assert launch("--grid", "delta=1e-3,1e-2", *PRIVATE, "--json", output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trained"], answer["reused"], answer["compiled"]) == (1, 1, 1)
    strict, loose = (row["certified_server_epsilon"] for row in answer["rows"])
    assert strict > loose
    found = [read(tmp_path / f"delta={delta}")[1][-1] for delta in ("1e-3", "1e-2")]
    assert found[0]["accuracy"] == found[1]["accuracy"]
    assert found[0]["privacy"] != found[1]["privacy"]


def test_points_that_diverge_are_recorded_and_the_sweep_goes_on(tmp_path, capsys):
    args = ["--grid", "noise_multiplier=1e30,1", *SMALL, "--algorithms", "dp_fed_avg", "fed_avg"]
    assert launch(*args, output=tmp_path) == 0
    shown, said = capsys.readouterr()
    assert "diverged: dp_fed_avg: the model or its test loss became NaN" in said
    assert "| 1e30 | DP-FedAvg | 0 | diverged | - |" in shown
    summary, _ = read(tmp_path / "noise_multiplier=1e30")
    assert summary["status"].startswith("diverged: dp_fed_avg")
    assert summary["rounds"] == {"fed_avg": 3}
    assert read(tmp_path / "noise_multiplier=1")[0]["rounds"] == {"dp_fed_avg": 3, "fed_avg": 3}
    with (tmp_path / "table.csv").open() as file:
        rows = [(r["algorithm"], r["status"], r["rounds"]) for r in csv.DictReader(file)]
    assert rows[:2] == [("fed_avg", "complete", "3"), ("dp_fed_avg", "diverged", "0")]
    assert launch(*args, output=tmp_path) == 0
    assert "2 of 2 points are done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--rounds", "3"], "--grid: none is given"),
        (["--grid", "rounds"], "--grid: 'rounds' is not field=a,b,c"),
        (["--grid", "rounds=1,,2"], "--grid: 'rounds=1,,2' is not field=a,b,c"),
        (
            ["--grid", "rounds=1,2", "p=0.1", "rounds=3"],
            "'rounds=3' names a field or a value again",
        ),
        (["--grid", "p=0.1,0.1"], "'p=0.1,0.1' names a field or a value again"),
        (["--grid", "p=0.1,0.10"], "p 0.1 and p 0.10 are the same settings"),
        (["--grid", "p=0.1,0.2", "--p", "0.3"], "--p: swept by --grid, too"),
        (["--grid", "roundz=1,2"], "--roundz: unknown field; did you mean --rounds"),
        (["--grid", "local.epoch=1,2"], "did you mean --local.epochs"),
        (["--grid", "rounds=1,many"], "many"),
        (["--grid", "rounds=1,0"], "rounds: 0 is not at least 1 (at rounds 0)"),
        (["--grid", "local.learning_rate=0.1,-1"], "learning_rate: -1.0 is not positive"),
        (["--grid", "sampling=poisson,sometimes"], "sometimes"),
        (
            ["--grid", "cohort=3,500"],
            "cohort: 500 exceeds the 120 clients; choose fewer (at cohort",
        ),
        (["--grid", "p=0.1,1e-9"], "k = 0"),
        (["--grid", "output=a,b"], "leave output out"),
        (["--grid", "p=0.1,0.2", "--rouns", "3"], "--rouns: unknown field; did you mean --rounds"),
    ],
)
def test_bad_input_gets_one_line_and_nothing_runs(args, said, tmp_path, capsys):
    folder = tmp_path / "never"
    assert launch(*args, output=folder) == 2
    shown, error = capsys.readouterr()
    assert shown == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error
    assert not folder.exists()


def test_yes_and_no_are_swept_as_true_and_false():
    from configs import dp_scaffold_synthetic

    grid = axes(["authors.per_tensor=true,false", "--record-sampling=subsets"])
    found = points(dp_scaffold_synthetic, "dp_scaffold_synthetic", ["--records", "50"], grid)
    assert [p.config.authors.per_tensor for p in found] == [True, False]
    assert [p.config.records for p in found] == [50, 50]
    with pytest.raises(ValueError, match=r"authors.per_tensor: maybe is not true or false"):
        points(dp_scaffold_synthetic, "x", [], {"authors.per_tensor": ["maybe"]})


def test_missing_data_get_the_point_that_lacks_them(tmp_path, capsys, monkeypatch):
    def build(config):
        raise FileNotFoundError("digits: not there")

    monkeypatch.setattr(quickstart, "build", build)
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


def test_training_that_fails_says_where_and_how_to_go_on(tmp_path, capsys, monkeypatch):
    """A bug in the middle of a sweep is no wrong input."""
    trained = []

    def failing(self, prepared):
        if trained:
            raise ValueError("a bug")
        trained.append(prepared)
        return "complete"

    monkeypatch.setattr(sweep.Sweep, "announce", lambda *_: None)
    monkeypatch.setattr(sweep.Sweep, "train", failing)
    with pytest.raises(ValueError, match=r"^a bug$"):
        launch("--grid", "p=0.1,0.2,0.3", output=tmp_path)
    said = capsys.readouterr().err
    assert f"error: failed at p 0.2; the same command with --output {tmp_path} goes on\n" in said
    assert [prepared.point.title for prepared in trained] == ["p 0.1"]


@pytest.mark.parametrize("when", ["build", "announce"])
def test_the_folder_is_known_however_early_it_is_interrupted(when, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    where = {"build": quickstart, "announce": sweep.Sweep}
    monkeypatch.setattr(where[when], when, interrupted)
    assert sweep.main(["quickstart", "--grid", "p=0.1,0.2"]) == 130
    *before, last = capsys.readouterr().err.splitlines()
    folder = last.partition("--output ")[2].partition(" ")[0]
    assert last == f"error: interrupted; the same command with --output {folder} goes on"
    assert Path(folder).match("runs/sweep-quickstart-*")
    if when == "announce":
        assert before == [f"sweep folder: {folder}"]
        assert (Path(folder) / "sweep.json").exists()


def test_other_code_is_noted_below_the_table():
    def found(revision, jax_version):
        return None, {"git_revision": revision, "versions": {"python": "3", "jax": jax_version}}

    assert sweep_table.origins([found("a", "1"), found("a", "1")]) == []
    assert sweep_table.origins([found("a", "1"), found("b+", "1"), found("a", "1")]) == [
        "the points were not trained with the same code: a in 2, b+ in 1 of 3"
    ]
    assert sweep_table.origins([found(None, "1"), found(None, "2")]) == [
        "the points were not trained with the same jax: 1 in 1, 2 in 1 of 2"
    ]


def test_values_of_several_words_and_names_that_are_too_long():
    from configs import mspdq_mnist

    rest = ["--unstable"]
    found = points(mspdq_mnist, "mspdq_mnist", rest, axes(["submodels=1 1,2 18", "seeds=1,2"]))
    assert [(p.config.submodels, p.config.seeds) for p in found] == [
        ((1, 1), 1),
        ((1, 1), 2),
        ((2, 18), 1),
        ((2, 18), 2),
    ]
    assert found[2].name == "submodels=2-18,seeds=1"
    long = " ".join(["fed_avg", "msp_fl", "mspdq_fl", "ldp_fed_avg", "jopeq", "msp_laplace"])
    grid = axes([f"algorithms={long} msp_gaussian fed_avg_qsgd,{long}", "ldp.epsilon=1.5,2.25"])
    names = [p.name for p in points(mspdq_mnist, "mspdq_mnist", rest, grid)]
    assert len(set(names)) == 4
    assert max(map(len, names)) < 130


def test_a_folder_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert launch("--grid", "p=0.1,0.2", output=tmp_path) == 2
    assert "is there and holds no sweep" in capsys.readouterr().err
    assert [f.name for f in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_sweep_json_gets_a_remedy_and_is_not_made_by_being_stopped(
    tmp_path, capsys, monkeypatch
):
    with monkeypatch.context() as stopped:

        def stop(*_):
            raise KeyboardInterrupt

        stopped.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, {})
    assert [f.name for f in tmp_path.iterdir()] == [UNFINISHED]
    monkeypatch.setattr(sweep.Sweep, "announce", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # it goes on to train
        launch("--grid", "p=0.1,0.2", output=tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["sweep.json"]
    (tmp_path / "sweep.json").write_text("{")
    capsys.readouterr()
    assert launch("--grid", "p=0.1,0.2", output=tmp_path) == 2
    said = capsys.readouterr().err
    assert "cannot read" in said
    assert said.endswith("; choose another folder\n")


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert launch("--grid", "p=0.1,0.2", output=tmp_path / "file" / "sweep") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --output: cannot write to ")
    assert said.count("\n") == 1


def test_help_and_list(capsys):
    assert sweep.main(["--list"]) == 0
    assert "quickstart" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        sweep.main(["quickstart", "--help"])
    assert stop.value.code == 0
    page = capsys.readouterr().out
    for word in ("--grid", "--json", "--noise-multiplier", "goes on where it was stopped"):
        assert word in page.replace("\n", " ")
    assert "\n\nThe same command with the same DIR" in page  # paragraphs
    assert "runs/sweep-CONFIG-DATE-TIME" in "".join(page.split())
