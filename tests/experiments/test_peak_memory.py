"""Peak memory: of this process alone, of those it started, and where there is no /proc."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.speed import memory

pytestmark = pytest.mark.slow

LINUX = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()

ALONE = f"""
import runpy
peak_mb = runpy.run_path({memory.__file__!r})["peak_mb"]
before = peak_mb()
x = b"x" * 100_000_000
print(before, peak_mb())
"""


@pytest.mark.skipif(not LINUX, reason="elsewhere it starts from the parent's peak")
def test_a_process_does_not_start_from_its_parents_peak():
    """In an interpreter with nothing but the standard library, as rivals' processes begin."""
    assert np.ones(20_000_000).sum() == 20_000_000  # 160 MB, so that this process has had them
    command = [sys.executable, "-I", "-S", "-c", ALONE]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, after = map(float, found.split())
    assert 1 < before < 100 < 160 < memory.peak_mb()
    assert after - before == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_without_proc_it_is_the_systems_maximum_resident_set(monkeypatch, tmp_path, platform, unit):
    monkeypatch.setattr(memory, "PROC", tmp_path / "none")
    monkeypatch.setattr(memory.sys, "platform", platform)
    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = memory.peak_mb()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < least * unit / 1e6 <= found <= most * unit / 1e6
    assert memory.peak_of_all_mb() == pytest.approx(found, rel=0.01)


def test_the_kernel_counts_in_kibibytes(monkeypatch, tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Name:\tpython\nVmHWM:\t    2000 kB\nVmRSS:\t 9 kB\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert memory.peak_mb() == pytest.approx(2.048)


@pytest.mark.skipif(not LINUX, reason="only on Linux")
def test_it_counts_the_processes_that_a_rival_started():
    own = memory.peak_mb()
    grow = "x = b'x' * 50_000_000; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", grow], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert memory.peak_of_all_mb() > own + 50
        process.communicate(b"\n")
