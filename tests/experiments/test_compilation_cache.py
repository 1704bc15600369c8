"""The launcher's compilation cache: the same numbers with it, faster to start, and never a run's end.

Each run is a process of its own, with a cache folder of its own.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import fedpriv as fp
from fedpriv.engine import compilation_cache
from fedpriv.experiments import commands
from fedpriv.experiments.base import provenance

# Runs the launcher and prints, as its last line, how many programs XLA compiled and how many came from the cache.
LAUNCH = """
import json, sys
import jax
counts = {"cache_misses": 0, "cache_hits": 0, "backend_compile_duration": 0}
def count(name, *_, **__):
    if (last := name.rsplit("/")[-1]) in counts:
        counts[last] += 1
jax.monitoring.register_event_listener(count)
jax.monitoring.register_event_duration_secs_listener(count)
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.training import train_algorithms
train_algorithms.picture = lambda *_: None  # Matplotlib would make a cache of fonts in the folder first
code = main(sys.argv[1:])
print(json.dumps(counts))
sys.exit(code)
"""

RUN = ["--algorithms", "rand_k", "--rounds", "2", "--every", "1", "--seeds", "2"]
SMALL = ["--algorithms", "fed_avg", *RUN[2:], "--clients", "12", "--cohort", "4"]
SMALL += ["--local.epochs", "1", "--layout.devices", "2"]


def launch(folder, **provenance):
    """(what the run found, counts, stderr)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    kept |= {"TQDM_DISABLE": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, *SMALL, "--output", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env=kept | provenance,
    )
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    numbers = [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]
    return numbers, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that fills the cache, one that uses it, one whose entries were damaged."""
    root = tmp_path_factory.mktemp("runs")
    home = {"XDG_CACHE_HOME": str(root / "cache")}
    found = {"fills": launch(root / "fills", **home)}
    entries = sorted((root / "cache" / "fedpriv" / "xla").glob("*/*-cache"))
    found["uses"] = launch(root / "uses", **home)
    for i, entry in enumerate(entries):
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 255
        entry.write_bytes([content[: len(content) // 2], b"", content][i % 3])
    found["damaged"] = launch(root / "damaged", **home)
    return found, entries


@pytest.mark.slow
def test_the_cache_is_filled_and_used(runs):
    found, entries = runs
    assert found["fills"][1]["cache_misses"] == len(entries)
    assert found["uses"][1]["cache_misses"] == 0
    assert found["uses"][1]["cache_hits"] >= len(entries)
    # What a run spends its start on: the rounds, on two devices, with donated buffers.
    assert len([e for e in entries if e.name.startswith("jit_on_each_device-")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("which", ["uses", "damaged"])
def test_numbers_are_the_same_to_the_bit(runs, which):
    assert runs[0][which][0] == runs[0]["fills"][0]


@pytest.mark.slow
def test_nothing_is_said_of_the_cache_but_that_entries_are_damaged(runs):
    found, _ = runs
    for which in ("fills", "uses"):
        assert not re.search("cache|warning|error", found[which][2])
    said = found["damaged"][2]
    assert "Error reading persistent compilation cache entry for 'jit_" in said
    assert "Traceback" not in said


COMMANDS = {
    "run": RUN,
    "sweep": ["--grid", "p=0.1,0.2", *RUN],
    "audit": RUN,
    "inversion": ["--data", "digits"],
    "race": ["--datasets", "digits"],
    "reproduce": ["fed_smp", "table1"],
}
WITHOUT = {
    "compare",
    "privacy",
    "uplink",
    "uploads",
    "report",
}  # or they train what is tiny


def test_every_command_is_thought_of():
    assert {*commands.listed()} == {*COMMANDS, *WITHOUT}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_train_turn_it_on_before_anything_is_compiled(command, tmp_path, monkeypatch):
    class Enabled(BaseException):  # no mistake in a user's code, which would be reported
        pass

    def enable():
        raise Enabled

    def never(*_, **__):
        raise AssertionError("compiled before the cache was on")

    monkeypatch.chdir(tmp_path)  # for what a command leaves in its default folder
    monkeypatch.setattr(compilation_cache, "cache_programs", enable)
    monkeypatch.setattr(jax.stages.Lowered, "compile", never)
    with pytest.raises(Enabled):
        commands.call(command, COMMANDS[command])


@pytest.fixture
def config():
    """JAX's own settings of the cache, which is off; those of all tests are restored."""
    names = (
        "jax_enable_compilation_cache",
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    yield jax.config
    for name, value in before.items():
        jax.config.update(name, value)


def test_what_jax_was_told_comes_first(config, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config.update("jax_persistent_cache_min_compile_time_secs", 7.0)
    compilation_cache.cache_programs()  # it is off
    assert config.jax_compilation_cache_dir is None
    config.update("jax_enable_compilation_cache", True)
    config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    compilation_cache.cache_programs()
    assert config.jax_compilation_cache_dir == str(tmp_path / "own")
    assert config.jax_persistent_cache_min_compile_time_secs == 7
    assert not (tmp_path / "cache").exists()


def test_a_script_gets_one_with_one_call(config, tmp_path):
    config.update("jax_enable_compilation_cache", True)
    jax.jit(lambda x: x + 2)(1.0)  # compiled before
    for folder in (tmp_path / "mine", str(tmp_path / "other")):
        config.update("jax_compilation_cache_dir", None)
        kept = fp.cache_programs(folder)
        assert kept.parent == Path(folder)
        assert fp.cache_programs(tmp_path / "second") == kept
        jax.jit(lambda x: x * 3)(1.0)
        assert [*kept.glob("*-cache")]
    before = len([*kept.iterdir()])
    compilation_cache.keep_no_programs()
    jax.jit(lambda x: x * 5)(1.0)
    assert len([*kept.iterdir()]) == before
    assert fp.cache_programs(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_where_no_folder_can_be_made_nothing_is_kept(config, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    config.update("jax_enable_compilation_cache", True)
    assert compilation_cache.cache_programs() is None
    assert config.jax_compilation_cache_dir is None


def test_versions_of_jax_that_would_complain_of_good_programs_get_none(config, monkeypatch):
    config.update("jax_enable_compilation_cache", True)
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 1))
    compilation_cache.cache_programs()
    assert config.jax_compilation_cache_dir is None


def test_old_programs_are_forgotten_and_other_cpus_have_their_own(config, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config.update("jax_enable_compilation_cache", True)
    compilation_cache.cache_programs()
    folder = tmp_path / "fedpriv" / "xla"
    (mine,) = folder.iterdir()
    assert str(mine) == config.jax_compilation_cache_dir
    assert mine.stat().st_mode & 0o077 == 0  # programs are run as they are found
    old, new = mine / "old-cache", mine / "new-cache"
    for entry, days in ((old, 31), (new, 29)):
        entry.touch()
        os.utime(entry, (time.time() - days * 86400,) * 2)
    config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(provenance.platform, "machine", lambda: "another")
    compilation_cache.cache_programs()
    assert len(list(folder.iterdir())) == 2
    assert old.exists()
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config.update("jax_compilation_cache_dir", None)
    compilation_cache.cache_programs()
    assert not old.exists()
    assert new.exists()
