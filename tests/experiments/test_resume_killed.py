"""Processes that are killed, at any moment, or asked to stop go on to the folder that they would have left.

test_processes.py has two of which one is killed.
"""

import random
import signal
import socket
import time

import pytest
from resumed import SMALL, assert_same, count, launch
from several import ended, started, wait_for

from fedpriv.experiments.runs import read

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile", "compiled_once")]

LONG = [*SMALL, "--algorithms", "fed_adam", "--every", "1", "--rounds", "40"]
LONG += ["--checkpoint.minutes", "0"]


DYING = """
import os, signal, sys, threading, time
from fedpriv.experiments.commands.run import main
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


def test_killed_while_a_checkpoint_is_written_and_at_a_random_moment(tmp_path):
    """40 evaluations with a checkpoint each; the run that nothing disturbed is trained first, and fills the cache."""
    whole, folder, rng = tmp_path / "whole", tmp_path / "r", random.Random(0)
    assert launch(*LONG, "--output", whole) == 0
    with started([["-c", DYING, 1, *LONG, "--output", folder]]) as processes:
        [done] = ended(processes)
    assert done.code == -signal.SIGKILL, done
    goal = count(folder) + rng.randint(1, 6)
    with started([["-m", "experiments.run", "--resume", folder]]) as [process]:
        assert wait_for(lambda: count(folder) >= goal, process)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        [done] = ended([process])
    assert done.code == -signal.SIGKILL, done
    assert count(folder) < 40
    assert read(folder).status.startswith(f"interrupted: process {process.pid} ")
    assert launch("--resume", folder) == 0
    assert_same(folder, whole)


def test_asked_to_stop_it_takes_a_checkpoint(tmp_path, capsys):
    """Before, it is not disturbed by another process that goes on with it."""
    folder = tmp_path / "r"
    often = ["--rounds", "1000000", "--checkpoint.minutes", "10"]
    with started([["-m", "experiments.run", *LONG, *often, "--output", folder]]) as [process]:
        assert wait_for(lambda: count(folder) >= 2, process)
        assert read(folder).status.startswith("running: ")
        assert launch("--resume", folder) == 2
        who = f"process {process.pid} on {socket.gethostname()}"
        said = capsys.readouterr().err
        assert said == f"error: {folder}: {who} writes to this run; end it first\n"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        [done] = ended([process])
    assert done.code == 130, done
    assert "error:" not in done.err  # what is asked and what is answered, a line each
    assert "stopping after the next evaluation" in done.err
    assert done.err.endswith(f"\ninterrupted\nfedpriv run --resume {folder} goes on\n")
    assert (folder / "accuracy.png").exists()
    assert read(folder).status == "interrupted"
    recorded = count(folder)
    assert [p.name for p in (folder / "checkpoints" / "fed_adam").iterdir()] == [f"{recorded}.npz"]
