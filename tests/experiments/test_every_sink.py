"""Laws of every sink, offline: after a run that was killed and resumed no step twice, and no private number unasked."""

import json
import subprocess
import sys
from contextlib import ExitStack

import pytest
from read_sinks import held
from recorded import made
from resumed import SMALL

from fedpriv.core.json_values import MARK
from fedpriv.experiments.runs import sinks
from fedpriv.experiments.runs.scalars import scalars
from fedpriv.experiments.runs.sinks import LIBRARIES

pytestmark = [
    pytest.mark.usefixtures("quick_to_compile"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's, of SQLAlchemy
]
ABOUT = {"id": "some", "config": "quickstart", "settings": {"p": 0.1, "layout": {"devices": 1}}}


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """W&B writes files, MLflow a database of its own."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def expected(given):
    """What a sink holds that got these records once."""
    return sorted(
        (record["algorithm"], name, record["round"], value)
        for record in given
        for name, value in scalars(record).items()
    )


def check(name, folder, given):
    found, wanted = held(name, folder), expected(given)
    assert [each[:3] for each in found] == [each[:3] for each in wanted]
    assert [each[3] for each in found] == pytest.approx([each[3] for each in wanted], rel=1e-6)


def write(name, folder, given, private):
    """What a run does that records so many lines; a later one, that goes on, gives them again."""
    with ExitStack() as until_end:
        (sink,) = sinks.opened([name], folder, ABOUT, until_end)
        sink = sinks.guarded(sink, private)
        for record in given:
            sink.write(record)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", LIBRARIES)
def test_records_that_are_given_again_are_there_once(name, private, tmp_path, capsys):
    pytest.importorskip(LIBRARIES[name])
    given, folder = records(made("private").path), tmp_path / "r"
    assert any(MARK in tag for _, tag, *_ in expected(given))
    folder.mkdir()
    write(name, folder, given[:-2], private)
    write(name, folder, given, private)
    assert "warning" not in capsys.readouterr().err
    check(name, folder, given if private else map(sinks.released, given))
    assert private or not any(MARK in tag for _, tag, *_ in held(name, folder))


def test_mlflow_s_files_hold_what_a_database_does(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    given, folder = records(made("private").path), tmp_path / "r"
    write("mlflow", folder, given[:-2], True)
    write("mlflow", folder, given, True)
    check("mlflow", folder, given)


ODD = ["acc@1", "f<0.5", "f>0.5", 'it\'s "so"', "..", "/", "//a", "é:b c-d_e"]


@pytest.fixture
def client():
    """Of the store of `_offline`."""
    return pytest.importorskip("mlflow").MlflowClient()


def test_mlflow_takes_every_name(client, tmp_path, capsys):
    """Of metrics and algorithms, each for itself, also where they are given again."""
    record, *_ = records(made("private").path)
    metric = next(iter(record["metrics"].values()))
    given = [
        record | {"algorithm": name, "metrics": dict.fromkeys(ODD, metric)} for name in ("a", *ODD)
    ]
    for _ in range(2):
        write("mlflow", tmp_path / "r", given, True)
    assert "warning" not in capsys.readouterr().err
    runs = client.search_runs([client.get_experiment_by_name("fedpriv").experiment_id])
    assert sorted(run.data.tags["fedpriv.algorithm"] for run in runs) == sorted(["a", *ODD])
    for run in runs:
        assert len(run.data.metrics) == len(scalars(given[0]))
        assert run.data.metrics["acc_at_1"] == metric["mean"]
        assert all(
            len(client.get_metric_history(run.info.run_id, n)) == 1 for n in run.data.metrics
        )


def test_an_experiment_of_mlflow_by_its_number(client, tmp_path, monkeypatch):
    """Where no name is given, which goes first in MLflow, too."""
    record = records(made("private").path)[0]
    numbers = [client.create_experiment(name) for name in ("by number", "by name")]
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", numbers[0])
    write("mlflow", tmp_path / "r", [record], False)
    assert len(client.search_runs(numbers[:1])) == 1
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "by name")
    write("mlflow", tmp_path / "r", [record], False)
    assert [len(client.search_runs([number])) for number in numbers] == [1, 1]
    assert client.get_experiment_by_name("fedpriv") is None


def test_what_is_released_has_no_private_key_at_any_depth():
    given = {"a": 1, f"b{MARK}": 2, "c": {"d": 3, f"e{MARK}": {"f": 4}, "g": {f"h{MARK}": 5}}}
    assert sinks.released(given) == {"a": 1, "c": {"d": 3, "g": {}}}


RUN = [*SMALL, "--algorithms", "rand_k", "fed_avg", "--rounds", "6", "--every", "2"]
KILLED = """
import os, signal, sys
from fedpriv.experiments.commands.run import main

class Kill:
    def write(self, record):
        if (record["algorithm"], record["round"]) == ("fed_avg", 4):
            os.kill(os.getpid(), signal.SIGKILL)

main(sys.argv[1:], sinks=[Kill()])
"""


@pytest.mark.slow
def test_a_run_that_was_killed_and_resumed_has_every_step_once(tmp_path, monkeypatch):
    """In all sinks that are installed, by SIGKILL after a record that no checkpoint has."""
    names = [name for name in LIBRARIES if sinks.importlib.util.find_spec(LIBRARIES[name])]
    if not names:
        pytest.skip("none of tensorboardX, wandb and mlflow is installed")
    folder = tmp_path / "r"
    often = ["--checkpoint.rounds", "4", "--output", str(folder), "--record", *names]
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # a process of W&B that this one has started

    def launch(*args):
        return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False)

    killed = launch("-c", KILLED, *RUN, *often)
    assert killed.returncode == -9, killed.stderr
    for name in names:
        steps = {step for algorithm, _, step, _ in held(name, folder) if algorithm == "rand_k"}
        assert steps == {2, 4, 6}
    resumed = launch("-m", "fedpriv", "run", "--resume", str(folder))
    assert (resumed.returncode, "warning: record" in resumed.stderr) == (0, False), resumed.stderr
    for name in names:
        check(name, folder, map(sinks.released, records(folder)))
