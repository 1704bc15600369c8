"""Commands ask glibc for large pages by starting themselves once more; a program that imports the library does not."""

import os
import subprocess
import sys

import pytest

from fedpriv.core import large_pages
from fedpriv.experiments.commands import is_a_command


@pytest.mark.parametrize(
    ("given", "glibc", "tunables", "missing"),
    [
        ("always [madvise] never", "glibc 2.36", "", True),
        ("always [madvise] never", "glibc 2.36", "glibc.malloc.check=1", True),
        ("always [madvise] never", "glibc 2.36", "glibc.malloc.hugetlb=1", False),
        ("always [madvise] never", "glibc 2.36", "glibc.malloc.hugetlb=0", False),
        ("always [madvise] never", "glibc 2.31", "", False),
        ("always [madvise] never", None, "", False),
        ("[always] madvise never", "glibc 2.36", "", False),
        ("always madvise [never]", "glibc 2.36", "", False),
        (None, "glibc 2.36", "", False),
    ],
)
def test_they_are_missing_where_the_system_gives_them_to_who_asks(
    given, glibc, tunables, missing, tmp_path, monkeypatch
):
    """And nobody said a word about them."""
    if given is not None:
        (tmp_path / "enabled").write_text(f"{given}\n")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(large_pages, "SYSTEMS", tmp_path / "enabled")
    monkeypatch.setattr(os, "confstr", lambda name: glibc)
    monkeypatch.setenv(large_pages.VARIABLE, tunables)
    assert large_pages.missing() == missing


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("python /venv/bin/fedpriv run quickstart", True),
        ("python -m fedpriv run -m", True),
        ("python -X dev -m experiments.run --list", True),
        ("python /venv/bin/fedpriv run -m other", True),
        ("python -X utf8 /venv/bin/fedpriv run", True),
        ("python -W error -m fedpriv", True),
        ("python own.py -m", False),
        ("python own.py -m fedpriv", False),
        ("python -c pass -m fedpriv", False),
        ("python -m coverage run -m fedpriv", False),
        ("python -mown fedpriv", False),
        ("python -Im fedpriv", False),  # it only does without
        ("python -m own fedpriv", False),
        ("python -m pytest -m fedpriv", False),
        ("python -m pdb -m fedpriv run", False),
        ("python -c pass", False),
        ("python", False),
    ],
)
def test_only_what_is_started_as_a_command_is_one(words, ours):
    assert is_a_command(words.split()) == ours


PROGRAM = """
import os, sys
sys.stderr.write("started\\n")
import fedpriv.__main__ as own
code = own.main()
print(os.getpid(), sys.argv[1:], sys.stdin.read(), code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tunables", "starts"),
    [("fedpriv", "", 2), ("fedpriv", "glibc.malloc.hugetlb=0", 1), ("own", "", 1)],
)
def test_a_command_starts_again_once_and_a_program_does_not(name, tunables, starts, tmp_path):
    """It is the same process, with its arguments and its input."""
    here = large_pages.available()
    (tmp_path / name).write_text(PROGRAM)
    env = {k: v for k, v in os.environ.items() if k != large_pages.VARIABLE}
    env |= {large_pages.VARIABLE: tunables} if tunables else {}
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-X", "utf8", str(tmp_path / name), "--version"]
    process = subprocess.Popen(command, env=env, cwd=tmp_path, text=True, **options)
    out, err = process.communicate("typed")
    assert err.splitlines().count("started") == (starts if here else 1)
    assert f"{process.pid} ['--version'] typed 0\n" in out
    asked = starts == 2 and here
    assert ("large pages of memory: asked for\n" in out) == asked


def test_where_it_cannot_start_again_it_goes_on(monkeypatch):
    """As where the word is dropped on the way, or there is no Python to start."""
    started = []

    def execve(path, command, env):
        started.append(env[large_pages.VARIABLE])
        raise OSError("no")

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv(large_pages.VARIABLE, "glibc.malloc.check=1")
    large_pages.restart_once()
    assert started == ["glibc.malloc.check=1:glibc.malloc.hugetlb=1"]
    assert os.environ[large_pages.VARIABLE] == "glibc.malloc.check=1"
    monkeypatch.setenv("FEDPRIV_STARTED_AGAIN", "1")
    large_pages.restart_once()
    assert len(started) == 1
