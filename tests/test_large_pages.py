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
        ("python own.py -m", False),
        ("python -m own fedpriv", False),
        ("python -m pytest -m fedpriv", False),
        ("python -m pdb -m fedpriv run", False),
        ("python -c pass", False),
        ("python", False),
    ],
)
def test_only_what_is_started_as_a_command_is_one(words, ours):
    assert is_a_command(words.split()) == ours


@pytest.mark.slow
def test_a_command_starts_again_once_and_a_program_does_not(tmp_path):
    """The process is the same one, with its arguments and its input."""
    program = "import fedpriv.__main__ as own; own.main()"
    (tmp_path / "own.py").write_text(program)
    env = {k: v for k, v in os.environ.items() if k != large_pages.VARIABLE}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(large_pages.VARIABLE, raising=False)
        here = large_pages.missing()
    off = {large_pages.VARIABLE: f"{large_pages.TUNABLE}=0"}

    def asked_for(*words, **more):
        command = [sys.executable, *words]
        options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": env | more}
        done = subprocess.run(command, check=True, **options)
        return "large pages of memory: asked for\n" in done.stdout

    assert asked_for("-m", "fedpriv", "--version") == here
    assert asked_for("-X", "utf8", "-m", "experiments") == here
    assert not asked_for("-m", "fedpriv", **off)
    assert not asked_for("own.py")
    assert not asked_for("-c", program)
