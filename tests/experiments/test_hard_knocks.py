"""Full disks, closed pipes, Ctrl-C, damaged records: one line, and what was done can be read."""

import errno
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiers

from fedpriv.experiments.base import signals
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.commands import run
from fedpriv.experiments.runs import recorder, run_folder
from fedpriv.experiments.search import sweep_folder
from fedpriv.models.kept_model import is_kept

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")

SMALL = ["quickstart", "--clients", "24", "--cohort", "4", "--local.epochs", "1", "--seeds", "1"]
SMALL += ["--algorithms", "fed_avg", "--every", "1", "--layout.devices", "1"]
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # to compile


def start(*args, **options):
    words = [sys.executable, "-m", "experiments.run", *map(str, args)]
    silent = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"TQDM_DISABLE": "1"} | options.pop("env", {})
    return subprocess.Popen(words, env=environment, **silent | options)


def waited(condition, process):
    for _ in range(1200):
        if condition() or process.poll() is not None:
            return
        time.sleep(0.1)
    raise AssertionError("it never came to that")


def loads_jax(pid):
    """Whether a process has begun to, which it needs a second or more for."""
    maps = Path(f"/proc/{pid}/maps")
    if not Path("/proc/self/maps").exists():
        time.sleep(0.5)
        return True
    return maps.exists() and "jaxlib" in maps.read_text()


@pytest.mark.slow
def test_a_run_that_is_stopped_while_it_imports_says_so_in_one_line(tmp_path):
    """test_resume_killed.py has one that trains."""
    process = start(*SMALL, "--rounds", 1_000_000, "--output", tmp_path / "r")
    waited(lambda: loads_jax(process.pid), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert "error:" not in err  # it is what was asked for


BUSY = """
'Its build stays in C or C++, where Python may hear of no signal.'
import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp
from configs.quickstart import settings

def compute():
    jax.block_until_ready(LOWERED.compile()(jnp.eye(200)))

def compile():
    LOWERED.compile()

def hash():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)

def long(x):
    if {work} is compute:
        return jax.lax.fori_loop(0, 2**30, lambda i, x: jnp.tanh(x @ x), x)
    for i in range(3000):
        x = jnp.sort(jnp.sin(x) * i, axis=i % 2)
    return x

LOWERED = jax.jit(long).lower(jnp.eye(200)) if {work} is not hash else None

def build(settings):
    Path({marker!r}).touch()
    {work}()
"""


def busy(work, tmp_path):
    """A process that would stay there for minutes."""
    file, marker = tmp_path / "busy.py", tmp_path / "begun"
    file.write_text(BUSY.format(work=work, marker=str(marker)))
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    process = start(file, "--output", tmp_path / "never", env=environment)
    waited(marker.exists, process)
    time.sleep(1)
    assert process.poll() is None
    return process


@pytest.mark.slow
@pytest.mark.parametrize("work", ["compute", "compile"])
def test_ctrl_c_ends_what_xla_does(work, tmp_path):
    process = busy(work, tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "interrupted\n"
    assert process.returncode == 130


@pytest.mark.slow
def test_ctrl_c_twice_ends_what_hears_nothing(tmp_path):
    process = busy("hash", tmp_path)
    process.send_signal(signal.SIGINT)
    waited(lambda: select.select([process.stderr], [], [], 0)[0], process)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=30)[1]
    asked = "stopping after the current computation; ask again to stop at once"
    assert err == f"\n{asked}\n\ninterrupted\n"
    assert process.returncode == 130


@pytest.mark.slow
def test_ctrl_c_twice_ends_a_round_that_goes_on_and_the_run_goes_on_later(tmp_path):
    folder = tmp_path / "r"
    long = [*SMALL, "--local.epochs", "200000", "--rounds", "100", "--output", folder]
    process = start(*long, env=QUICK)
    said = iter(process.stderr.readline, "")
    assert any("compiled in" in line for line in said)
    process.send_signal(signal.SIGINT)
    asked = "stopping after the next evaluation; ask again to stop at once\n"
    assert asked in said
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    again = f"fedpriv run --resume {folder} goes on"
    assert err == f"\ninterrupted; {again}\n"
    assert run_folder.read(folder).summary is None


@pytest.mark.slow
def test_a_closed_pipe_and_a_terminal_that_knows_ascii_alone():
    here, there = os.pipe()
    os.close(here)  # nobody reads
    process = start("--list", stdout=there)
    os.close(there)
    assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == signals.PIPE_CLOSED
    plain = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "TERM": "dumb"}
    process = start("é", "\udcff", env=plain)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: config: there is no '\\xe9'")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(("unbuffered", "code"), [("", 1), ("1", 2)])
def test_a_full_standard_output(unbuffered, code):
    with open("/dev/full", "w") as full:
        process = start("--list", stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
        err = process.communicate(timeout=60)[1]
    assert process.returncode == code  # noticed at the end, or at the first line
    assert err.startswith("error: ")
    assert "No space left on device; free some space" in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("where", ["2>&- >&- <&-", "2>&1 | head -1"])
def test_a_run_is_whole_though_nobody_can_read_what_it_prints(where, tmp_path):
    folder = tmp_path / "r"
    words = [*SMALL, "--rounds", "2", "--output", str(folder)]
    typed = shlex.join([sys.executable, "-m", "experiments.run", *words])
    own = os.environ | QUICK | {"PYTHONUNBUFFERED": ""}
    script = f"set -o pipefail; {typed} {where}"
    ended = subprocess.run(["bash", "-c", script], env=own, capture_output=True)
    assert ended.returncode == 0
    assert b"Traceback" not in ended.stderr
    found = run_folder.read(folder)
    assert found.remarks == ()
    assert found.summary.status == "complete"
    assert is_kept(folder, "fed_avg", 0)
    assert {file.name for file in folder.iterdir()} == WHOLE
    assert run.main(["--resume", str(folder)]) == 0


WHOLE = {"accuracy.png", "config.json", "metrics.jsonl", "model", "summary.json"}


class Full:
    """Files with these names cannot be written so many times; one that is begun keeps a part of what is written."""

    def __init__(self, monkeypatch, *names, number=errno.ENOSPC, times=1000):
        left = dict.fromkeys(names, times)
        for method in ("open", "write_text"):
            original = getattr(Path, method)

            def write(path, *args, original=original, **kwargs):
                hit = next((name for name in names if name in path.name and left[name]), None)
                if hit and args[:1] not in (("r",), ("rb",)):
                    left[hit] -= 1
                    with open(path, "ab") as file:
                        file.write(b"{")
                    raise OSError(number, os.strerror(number), str(path))
                return original(path, *args, **kwargs)

            monkeypatch.setattr(Path, method, write)


LOST = {
    "config.json": "config.json",
    "metrics.jsonl": "metrics.jsonl",
    "summary.json": "summary.json",
    "model.safetensors": "model of fed_avg, seed 0",
}
NUMBERS = dict(zip(LOST, [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES], strict=True))


@tiers.every("name", LOST)
def test_a_disk_that_is_full(name, tmp_path, monkeypatch, capsys):
    """What can be written is; it is said as it happens, once, and at the end."""
    folder, number = tmp_path / "r", NUMBERS[name]
    with monkeypatch.context() as patch:
        Full(patch, name, number=number)
        code = run.main([*SMALL, "--rounds", "2", "--output", str(folder)])
    _, err = capsys.readouterr()
    said = [line for line in err.splitlines() if os.strerror(number) in line]
    assert not list(folder.glob("**/*.unfinished"))
    assert "Traceback" not in err
    if name == "config.json":  # before anything is trained
        assert code == 2
        assert len(said) == 1
        return
    assert code == 1
    warned, ended = said
    assert warned.startswith(f"warning: {LOST[name]} cannot be written (")
    assert ended.startswith("error: ")
    assert f"not all is recorded: {LOST[name]} (" in ended
    assert err.splitlines()[-1] == f"fedpriv run --resume {folder} goes on"
    lines = run_folder.read(folder).lines.get("fed_avg", ())
    assert [line.round for line in lines] == ([] if name == "metrics.jsonl" else [1, 2])
    if name != "summary.json":
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["rounds"] == {"fed_avg": 2}
        assert summary["status"].startswith("failed: not all is recorded")
    assert run.main(["--resume", str(folder)]) == 0
    assert is_kept(folder, "fed_avg", 0)
    assert [line.round for line in run_folder.read(folder).lines["fed_avg"]] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [["metrics.jsonl", "accuracy.png"], ["model.safetensors", ".npz"]]
)
def test_a_disk_that_was_full_for_a_while(names, tmp_path, monkeypatch, capsys):
    """What could not be written is, later; a picture, or a checkpoint, is not worth an error."""
    folder = tmp_path / "r"
    with monkeypatch.context() as patch:
        Full(patch, *names, times=1)
        often = ["--checkpoint.rounds", "1"]
        code = run.main([*SMALL, *often, "--rounds", "3", "--output", str(folder)])
    assert code == 0
    err = capsys.readouterr().err
    said = [line for line in err.splitlines() if "No space left on device" in line]
    assert len(said) == len(names)
    found = run_folder.read(folder)
    assert found.summary.status == "complete"
    assert [line.round for line in found.lines["fed_avg"]] == [1, 2, 3]
    assert is_kept(folder, "fed_avg", 0)
    assert {file.name for file in folder.iterdir()} - {"accuracy.png"} == WHOLE - {"accuracy.png"}


@pytest.mark.slow
def test_a_folder_that_is_deleted_during_a_run_is_written_again(tmp_path):
    folder, seen = tmp_path / "r", []

    class Sink:
        def write(self, record):
            seen.append(record["round"])
            if seen == [1]:
                shutil.rmtree(folder)

    words = [*SMALL, "--rounds", "2", "--output", str(folder)]
    assert run.main(words, [Sink()]) == 0
    assert {file.name for file in folder.iterdir()} == WHOLE
    assert [line.round for line in run_folder.read(folder).lines["fed_avg"]] == [1, 2]


def test_a_record_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    recorder._write(path, {"a": 1})

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        recorder._write(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_ctrl_c_waits_for_the_summary_once():
    done = []

    def work(*numbers):
        with signals.undisturbed():
            for number in numbers:
                signal.raise_signal(number)
            done.append("written")

    inherited = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background jobs ignore it
    try:
        for numbers in ([signal.SIGINT], [signal.SIGTERM, signal.SIGINT]):
            with pytest.raises(KeyboardInterrupt):
                work(*numbers)
        assert done == ["written"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_what_is_outside_the_program_is_told_from_bugs():
    said = outside(OSError(errno.ENOSPC, "No space left on device", "a b"))
    assert said == "a b: No space left on device; free some space or choose another folder"
    assert outside(MemoryError()).startswith("not enough memory; fewer clients")
    jax_error = type("JaxRuntimeError", (RuntimeError,), {})
    assert outside(jax_error("RESOURCE_EXHAUSTED: Out of memory")).count("\n") == 0
    assert outside(jax_error("INTERNAL: a bug")) is None
    assert outside(ValueError("a bug")) is None


def test_a_point_of_a_sweep_whose_summary_is_damaged_has_not_ended(tmp_path):
    summary = {part: {"fed_avg": 1} for part in sweep_folder.PARTS} | {"status": "complete"}
    path = tmp_path / "summary.json"
    whole = json.dumps(summary)
    path.write_text(whole)
    assert sweep_folder.point_ended(tmp_path)
    damaged = [whole[:cut] for cut in range(0, len(whole), 37)]
    damaged += ["[]", "null", "1", '"rounds"', "\0", "[" * 100_000]
    damaged += [json.dumps({k: v for k, v in summary.items() if k != name}) for name in summary]
    damaged += [json.dumps(summary | {name: 1}) for name in ("rounds", "privacy", "best")]
    for text in damaged:
        path.write_text(text)
        assert not sweep_folder.point_ended(tmp_path), text
    path.write_bytes(b"\xff\xfe")
    assert not sweep_folder.point_ended(tmp_path)
