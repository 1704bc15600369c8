"""Whether a process still writes to a run folder is known at the next look, by no clock and without a lock."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import made
from several import ROOT
from small import refused

from fedpriv import experiments
from fedpriv.experiments.base import writer
from fedpriv.experiments.base.writer import WRITER, held, this_process, writer_of
from fedpriv.experiments.runs import read

BOOT, PLACE = "6f1c", "pid:[4026531836]"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with the processes that are set: their number, state and beginning; another boot may be named.

    Other people's may be hidden, also the first, which is always there.
    """

    def runs(pid=7, state="S", began=100, boot=BOOT, name="python", hidden=False):
        proc = tmp_path / "proc"
        shutil.rmtree(proc, ignore_errors=True)
        for folder in ("sys/kernel/random", "self/ns", str(pid), *["1"] * (not hidden)):
            (proc / folder).mkdir(parents=True)
        (proc / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
        (proc / "self/ns/pid").symlink_to(PLACE)
        numbers = " ".join(["0"] * 18)
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {state} {numbers} {began} 0 0\n")
        monkeypatch.setattr(writer, "PROC", proc)

    return runs


OURS = writer.Writer("node1", 7, f"{BOOT} {PLACE}", "100")


@pytest.mark.parametrize(
    ("now", "state"),
    [
        ({}, "running"),
        ({"state": "R", "name": "a) Z 1 (b"}, "running"),
        ({"state": "T"}, "stopped"),
        ({"state": "Z"}, "ended"),
        ({"began": 200}, "ended"),  # another process has its number
        ({"pid": 8}, "ended"),
        ({"boot": "0a2b"}, "unknown"),
        ({"hidden": True}, "running"),  # our own is seen
        ({"pid": 8, "hidden": True}, "unknown"),
    ],
)
def test_the_state_of_a_process(machine, now, state):
    machine(**now)
    assert OURS.state == state


def test_what_may_not_be_read_is_not_known(machine, monkeypatch):
    machine()
    read = Path.read_text

    def refused(path):
        if path.name == "stat":
            raise PermissionError(path)
        return read(path)

    monkeypatch.setattr(Path, "read_text", refused)
    assert OURS.state == "unknown"


def test_without_the_systems_word_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "PROC", tmp_path)
    found = this_process()
    assert (found.pid, found.table, found.state) == (os.getpid(), "", "unknown")


@pytest.mark.parametrize(
    ("now", "begins"),
    [
        ({}, "running: process 7 on node1"),
        ({"state": "T"}, "interrupted: process 7 on node1 (stopped) writes nothing"),
        ({"pid": 8}, "interrupted: process 7 on node1 has ended"),
        ({"boot": "0a2b"}, "running, or interrupted: process 7 on node1 may"),
        (None, "interrupted: no process writes to it"),
    ],
)
def test_every_reader_says_how_it_is_with_a_run_without_a_summary(machine, now, begins, tmp_path):
    shutil.copytree(made("going on").path, tmp_path / "run")
    if now is not None:
        machine(**now)
        (tmp_path / "run" / WRITER).write_text(json.dumps(vars(OURS)))
    run = read(tmp_path / "run")
    assert run.status.startswith(begins)
    assert {*experiments.table(run)["status"]} == {begins.partition(":")[0]}


def test_a_summary_tells_more_than_who_writes(machine, tmp_path):
    """Also where it comes between the two looks: the process first, which has written its summary when it is gone."""
    shutil.copytree(made("private").path, tmp_path / "run")
    machine(pid=8)
    (tmp_path / "run" / WRITER).write_text(json.dumps(vars(OURS)))
    assert read(tmp_path / "run").status == "complete"


@pytest.mark.parametrize("damaged", ["", "{}", "[", '{"host": 1, "pid": "x"}', "[" * 100_000])
def test_a_damaged_file_names_nobody(damaged, tmp_path):
    (tmp_path / WRITER).write_text(damaged)
    assert writer_of(tmp_path) is None


def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / WRITER)
    assert writer_of(tmp_path) is None


def test_whoever_holds_a_folder_is_named_until_it_lets_go(tmp_path):
    with held(tmp_path):
        assert writer_of(tmp_path) == this_process()
        said = rf"process {os.getpid()} on .* writes to this run; end it first"
        with pytest.raises(ValueError, match=said), held(tmp_path):
            pass
        assert writer_of(tmp_path) == this_process()
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(ZeroDivisionError), held(tmp_path):
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def no_locks(monkeypatch):
    def flock(place, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("state", ["S", "T"])
def test_without_locks_a_writer_is_asked_for_by_its_file(state, machine, no_locks, tmp_path):
    machine(state=state)
    text = json.dumps(vars(OURS))
    (tmp_path / WRITER).write_text(text)
    with refused("process 7 on node1.* writes to this run; end it first"), held(tmp_path):
        pass
    assert (tmp_path / WRITER).read_text() == text


@pytest.mark.parametrize("now", [{"pid": 8}, {"boot": "0a2b"}, {"began": 200}])
def test_without_locks_whoever_is_not_seen_keeps_nobody_out(now, machine, no_locks, tmp_path):
    machine(**now)
    (tmp_path / WRITER).write_text(json.dumps(vars(OURS)))
    with held(tmp_path):
        assert writer_of(tmp_path) == this_process()
    assert not (tmp_path / WRITER).exists()


def test_without_locks_one_process_holds_a_folder_once(no_locks, tmp_path):
    with held(tmp_path):
        with refused("writes to this run"), held(tmp_path):
            pass
        assert writer_of(tmp_path) == this_process()
    assert [*tmp_path.iterdir()] == []


def test_only_its_own_name_is_taken_away(tmp_path):
    """Of two who came in at once, the last one's stays."""
    with held(tmp_path):
        (tmp_path / WRITER).write_text(json.dumps(vars(OURS)))
    assert writer_of(tmp_path) == OURS


def test_whoever_is_refused_leaves_no_file_open(tmp_path):
    with held(tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with refused("writes to this run"), held(tmp_path):
                pass
        assert len(os.listdir("/proc/self/fd")) == before


HOLDS = (
    "import os, sys; from pathlib import Path; from fedpriv.experiments.base.writer import held\n"
)
HOLDS += "with held(Path(sys.argv[1])): os._exit(3)"


@pytest.mark.slow
def test_whoever_was_ended_stays_named(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], cwd=ROOT)
    assert process.wait() == 3
    left = writer_of(tmp_path)
    assert (left.pid, left.state) == (process.pid, "ended" if Path("/proc").exists() else "unknown")
    with held(tmp_path):
        assert writer_of(tmp_path) == this_process()
