"""The launcher in two processes: one run folder, the numbers of one process, one end for all."""

import json
import signal

import pytest
from resumed import OFTEN, count, lines
from several import ended, free_port, options, slurm, started, wait_for

import fedpriv as fp
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.runs import read

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile", "compiled_once")]

# Cohorts of 5 on 2 devices, one in each process: one has a slot of padding.
SMALL = ["--clients", "12", "--cohort", "5", "--sampling", "fixed_size"]
SMALL += ["--local.epochs", "1", "--capacity", "5", "--public-examples", "5"]
SHORT = ["--algorithms", "rand_k", "--rounds", "4", "--every", "2", "--seeds", "2", "--secret-seed"]
SHORT += ["--stop-at", "accuracy=0.001"]


def two(folder, *args, program=("-m", "experiments.run")):
    """Arguments of Python for both processes; the second one would write beside the first one's folder."""
    output = [["--output", folder], ["--output", folder / "second"]]
    return both(*program, *SMALL, *args, each=output)


def both(*words, each=((), ())):
    address = f"127.0.0.1:{free_port()}"
    return [[*words, *each[i], *options(address, 2, i)] for i in range(2)]


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run in two processes, and what they said."""
    folder = tmp_path_factory.mktemp("run") / "two"
    with started(two(folder, *SHORT)) as processes:
        said = ended(processes)
    assert [process.code for process in said] == [0, 0], said
    return folder, said


def test_only_the_first_process_speaks_and_writes(finished):
    folder, (first, second) = finished
    assert "Fed-SMP rand_k" in first.out
    assert " eps " in first.err
    assert second[1:] == ("", "")
    assert {f.name for f in folder.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "accuracy.png",
        "model",
        "secret_seed",
    }
    device = summary(folder)["device"]
    assert (device["count"], device["processes"]) == (2, 2)


def test_all_stop_together_before_the_last_round(finished):
    found = summary(finished[0])
    assert (found["status"], found["rounds"]) == ("complete", {"rand_k": 2})
    assert set(found["stopped"]) == {"rand_k"}


def test_the_secret_seed_is_that_of_the_first_process(finished):
    folder, said = finished
    secret = (folder / "secret_seed").read_text().strip()
    assert not any(secret in text for process in said for text in process[1:])
    assert not (folder / "second").exists()


def test_metrics_are_those_of_one_process(finished, tmp_path, monkeypatch):
    """With the same secret seed: to the bit on two devices."""
    folder, _ = finished
    monkeypatch.setattr(fp, "secret_seed", lambda: int((folder / "secret_seed").read_text()))
    own = ["--layout.devices", "2", "--output", str(tmp_path / "one")]
    assert main([*SMALL, *SHORT, *own]) == 0
    assert lines(folder) == lines(tmp_path / "one")


DYING = """
import jax, os, signal
from fedpriv.engine.checkpoint import Keeper
from fedpriv.experiments.commands.run import main
offer = Keeper.offer
def dies(keeper, round, *args, **kwargs):
    offer(keeper, round, *args, **kwargs)
    round == 4 and jax.process_index() == 1 and os.kill(os.getpid(), signal.SIGKILL)
Keeper.offer = dies
main()
"""


def test_when_one_process_dies_all_end_and_go_on_together(tmp_path):
    """The folder has what was recorded; both read the checkpoint; test_cluster has all that are asked to stop."""
    folder, whole = tmp_path / "run", tmp_path / "whole"
    short = ["--algorithms", "fed_avg", "--rounds", "9", "--every", "2", "--seeds", "2"]
    with started(two(folder, *short, *OFTEN, program=("-c", DYING))) as processes:
        first, second = ended(processes)
    assert first.code == 1, first
    assert second.code == -signal.SIGKILL, second
    status = "failed, perhaps because another"
    assert f"\nerror: {status}" in first.err
    assert summary(folder)["status"].startswith(status)
    assert summary(folder)["rounds"]["fed_avg"] in (2, 4)
    assert [p.name for p in (folder / "checkpoints" / "fed_avg").iterdir()]
    with started(both("-m", "experiments.run", "--resume", folder)) as processes:
        said = ended(processes)
    assert [p.code for p in said] == [0, 0], said
    one = ["--layout.devices", "2", "--output", str(whole)]
    assert main([*SMALL, *short, *one]) == 0
    assert lines(folder) == lines(whole)


HASTY = """
import functools, jax
join = jax.distributed.initialize
jax.distributed.initialize = functools.partial(join, heartbeat_timeout_seconds=10)
from fedpriv.experiments.commands.run import main
main()
"""


@pytest.mark.parametrize("which", [0, 1])
def test_when_one_process_is_stopped_the_others_end_and_all_go_on(which, tmp_path):
    """As by SIGSTOP, or on a node that hangs. JAX ends the others, without a word in the folder; here after 10 s."""
    folder, whole = tmp_path / "run", tmp_path / "whole"
    short = ["--algorithms", "fed_avg", "--rounds", "60", "--every", "1", "--seeds", "1"]
    with started(two(folder, *short, *OFTEN, program=("-c", HASTY))) as processes:
        stopped, other = processes[which], processes[1 - which]
        assert wait_for(lambda: count(folder) >= 2, other)
        assert read(folder).status.startswith(f"running: process {processes[0].pid} ")
        stopped.send_signal(signal.SIGSTOP)
        [done] = ended([other])
        assert done.code == -signal.SIGABRT, done
        assert "JAX distributed service" in done.err
        assert stopped.poll() is None
        if which == 0:
            status = read(folder).status
            assert status.startswith(f"interrupted: process {stopped.pid} on "), status
            assert "(stopped)" in status
    status = read(folder).status
    assert status.startswith(f"interrupted: process {processes[0].pid} on "), status
    assert "has ended" in status
    assert count(folder) < 60
    with started(both("-m", "experiments.run", "--resume", folder)) as processes:
        said = ended(processes)
    assert [p.code for p in said] == [0, 0], said
    assert read(folder).status == "complete"
    assert not (folder / "writer.json").exists()
    one = ["--layout.devices", "2", "--output", str(whole)]
    assert main([*SMALL, *short, *one]) == 0
    assert lines(folder) == lines(whole)


def test_a_mistake_in_one_process_ends_all(tmp_path):
    """Here the second one's; Slurm names the processes."""
    folder, port = tmp_path / "never", free_port()
    command = ["-m", "experiments.run", *SMALL, *SHORT, "--output", folder]
    with started(
        [command, [*command, "--p", "0"]], [slurm(i, 2, port) for i in range(2)]
    ) as processes:
        first, second = ended(processes)
    assert (first.code, second.code) == (2, 2)
    assert first.err.startswith("error: process 1: p: 0")
    assert first.err.count("\n") == 1
    assert second[1:] == ("", "")
    assert not folder.exists()


def test_a_process_that_dies_before_training_ends_all(tmp_path):
    folder, port = tmp_path / "never", free_port()
    dying = "import os; from fedpriv import distributed; from fedpriv.experiments.commands.run import main; "
    dying += "distributed.check_equal = lambda *, settings, **_: os._exit(9); main()"
    command = ["-m", "experiments.run", *SMALL, *SHORT, "--output", folder]
    tasks = [slurm(i, 2, port) for i in range(2)]
    with started([command, ["-c", dying]], tasks) as processes:
        first, second = ended(processes)
    assert (first.code, second.code) == (1, 9)
    assert "error: another process ended: " in first.err
    assert not folder.exists()


def test_other_settings_in_one_process_end_all(tmp_path):
    folder = tmp_path / "never"
    one, other = two(folder, *SHORT)
    with started([one, [*other, "--clip-norm", "3"]]) as processes:
        first, second = ended(processes)
    assert (first.code, second.code) == (2, 2)
    assert first.err == (
        "error: settings: process 1 has another than process 0; give every process the same\n"
    )
    assert not folder.exists()
