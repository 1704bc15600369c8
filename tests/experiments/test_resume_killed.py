"""Processes that are killed, at any moment, or asked to stop go on to the folder that they would have left."""

import json
import random
import signal
import time

import pytest
from resumed import OFTEN, SMALL, assert_same, launch, lines
from several import PATIENCE, ended, free_port, options, started

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """Environment of processes that compile once, and may be killed while they write what they compiled."""
    folder = str(tmp_path_factory.mktemp("xla"))
    return {"JAX_ENABLE_COMPILATION_CACHE": "true", "JAX_COMPILATION_CACHE_DIR": folder}


def wait_for(condition, process):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    return True


def count(folder):
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


LONG = ["--algorithms", "fed_adam", "rand_k", "--rounds", "8", "--every", "1"]
LONG = ["-m", "experiments.run", *SMALL, *LONG, "--checkpoint.minutes", "0"]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory, cached):
    """16 evaluations with a checkpoint each, never disturbed."""
    folder = tmp_path_factory.mktemp("run") / "long"
    with started([[*LONG, "--output", folder]], [cached]) as processes:
        [done] = ended(processes)
    assert done.code == 0, done
    return folder


def test_killed_at_random_moments(tmp_path, cached, long_run):
    """Twice, each a random time after a random further evaluation; then to its end."""
    folder, rng, kills = tmp_path / "r", random.Random(0), 0
    command = [*LONG, "--output", folder]
    for _ in range(2):
        goal = count(folder) + rng.randint(1, 6)
        with started([command], [cached]) as [process]:
            if wait_for(lambda goal=goal: count(folder) >= goal, process):
                time.sleep(rng.uniform(0, 0.3))
                process.send_signal(signal.SIGKILL)
            [done] = ended([process])
        assert done.code in (-signal.SIGKILL, 0), done
        kills += done.code != 0
        command = ["-m", "experiments.run", "--resume", folder]
    assert kills >= 1
    with started([command], [cached]) as processes:
        [done] = ended(processes)
    assert done.code == 0, done
    assert_same(folder, long_run)


DYING = """
import os, signal, sys, threading, time
from experiments.run import main
from fedpriv.engine.checkpoint import Keeper
save, calls = Keeper._save, []
def dying(keeper, snapshot):
    calls.append(snapshot)
    if len(calls) == 3:
        def kill():
            files = lambda: sum(len(f) for _, _, f in os.walk(keeper._folder))
            before = files()
            while files() < before + int(sys.argv[1]):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=kill).start()
        time.sleep(0.05)
    save(keeper, snapshot)
Keeper._save = dying
main(sys.argv[2:])
"""


def test_killed_while_a_checkpoint_is_written(tmp_path, cached, long_run):
    folder = tmp_path / "r"
    arguments = ["-c", DYING, 1, *LONG[2:], "--output", folder]
    with started([arguments], [cached]) as processes:
        [done] = ended(processes)
    assert done.code == -signal.SIGKILL, done
    with started([["-m", "experiments.run", "--resume", folder]], [cached]) as processes:
        [done] = ended(processes)
    assert done.code == 0, done
    assert_same(folder, long_run)


def test_asked_to_stop_it_takes_a_checkpoint(tmp_path, cached, long_run):
    folder = tmp_path / "r"
    command = [*LONG[:-2], "--output", folder]  # a checkpoint every ten minutes
    with started([command], [cached]) as [process]:
        assert wait_for(lambda: count(folder) >= 2, process)
        process.send_signal(signal.SIGTERM)
        [done] = ended([process])
    assert done.code == 130, done
    assert "error:" not in done.err  # what is asked and what is answered, a line each
    assert "stopping after the next evaluation" in done.err
    assert done.err.endswith(
        f"\ninterrupted\npython -m experiments.run --resume {folder} goes on\n"
    )
    assert (folder / "accuracy.png").exists()
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    recorded = count(folder)
    assert [p.name for p in (folder / "checkpoints" / "fed_adam").iterdir()] == [f"{recorded}.npz"]
    with started([["-m", "experiments.run", "--resume", folder]], [cached]) as processes:
        [done] = ended(processes)
    assert done.code == 0, done
    assert_same(folder, long_run)


def test_a_run_that_goes_on_elsewhere_is_not_disturbed(tmp_path, cached):
    folder = tmp_path / "r"
    endless = [*LONG, "--rounds", "1000000", "--output", folder]
    with started([endless], [cached]) as [process]:
        assert wait_for(lambda: count(folder) >= 1, process)
        with started([["-m", "experiments.run", "--resume", folder]], [cached]) as others:
            [other] = ended(others)
        assert process.poll() is None
    assert other.code == 2
    assert other.err == f"error: {folder}: another process writes to this run; end it first\n"


def test_two_processes_go_on_together(tmp_path):
    """Both are killed; both read the checkpoint; the numbers are those of an undisturbed run."""

    def two(*args):
        address = f"127.0.0.1:{free_port()}"
        command = ["-m", "experiments.run", *args]
        return [[*command, *options(address, 2, i)] for i in range(2)]

    short = [*SMALL, "--algorithms", "rand_k", "--rounds", "9", "--every", "2", "--seeds", "2"]
    folder, dying = tmp_path / "r", tmp_path / "dying.py"
    dying.write_text(
        "import os, signal, sys\n"
        "from fedpriv.engine.checkpoint import Keeper\n"
        "from experiments.run import main\n"
        "offer = Keeper.offer\n"
        "def dies(keeper, round, *args, **kwargs):\n"
        "    offer(keeper, round, *args, **kwargs)\n"
        "    round == 4 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "Keeper.offer = dies\n"
        "main()\n"
    )
    arguments = [[dying, *a[2:]] for a in two(*short, *OFTEN, "--output", folder)]
    with started(arguments) as processes:
        assert {p.code for p in ended(processes)} <= {-signal.SIGKILL, 1}
    assert [p.name for p in (folder / "checkpoints" / "rand_k").iterdir()]
    with started(two("--resume", folder)) as processes:
        said = ended(processes)
    assert [p.code for p in said] == [0, 0], said
    one = [*short, "--layout.devices", "2", "--output", tmp_path / "whole"]
    assert launch(*one) == 0  # the same to the bit, see test_processes
    assert lines(folder) == lines(tmp_path / "whole")
