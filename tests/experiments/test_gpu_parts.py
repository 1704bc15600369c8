"""The parts of `benchmark gpu`: their time, what is kept of them, and their commands' words."""

import json
import time
from pathlib import Path

import pytest

from experiments import benchmark
from experiments.speed import gpu, gpu_parts, large, rounds
from experiments.speed.gpu_parts import EVERY, PARTS, Part
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import only_options, parse

main = benchmark.main


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Parts that are modules of a line each, where a command's modules are looked for."""
    bodies = {
        "quick": "print('begun', file=sys.stderr); print('x'); print(json.dumps({'ms': 3}))",
        "broken": "print('some'); sys.exit('no such thing')",
        "endless": "print('one of two', file=sys.stderr, flush=True)\nsubprocess.run(['sleep', '60'])",
        "seen": "print(json.dumps({k: v for k, v in os.environ.items() if k[:3] in ('JAX', 'XLA')}))",
    }
    for name, body in bodies.items():
        (tmp_path / f"part_{name}.py").write_text(f"import json, os, subprocess, sys\n{body}\n")
    made = {name: Part([f"part_{name}"], 1, 20, []) for name in bodies}
    made["endless"] = Part(["part_endless"], 1, 1, [])
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "EVERY", made)
    monkeypatch.setattr(gpu, "PARTS", made)
    return tmp_path


def lines(folder):
    return {
        line["part"]: line
        for line in map(json.loads, (folder / "parts.jsonl").read_text().splitlines())
    }


@pytest.mark.slow
def test_one_that_fails_or_takes_too_long_leaves_the_rest(scripts, capsys):
    began = time.monotonic()
    assert main(["gpu", "--output", str(scripts / "out")]) == 1
    assert time.monotonic() - began < 40
    found = lines(scripts / "out")
    assert list(found) == ["quick", "broken", "endless", "seen"]
    assert found["quick"]["ended"] == "done"
    assert found["quick"]["result"] == {"ms": 3}
    assert found["quick"]["said"] == ["begun"]
    assert found["broken"]["ended"] == "exit code 1"
    assert (found["broken"]["printed"], found["broken"]["said"]) == (["some"], ["no such thing"])
    assert found["endless"]["ended"] == "out of time"
    assert found["endless"]["said"] == ["one of two"]
    assert found["seen"]["result"]["JAX_DEFAULT_MATMUL_PRECISION"] == "tensorfloat32"
    assert found["seen"]["result"]["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "quick: done after" in capsys.readouterr().out


def test_what_there_is_no_time_for_is_said(scripts):
    words = ["--output", str(scripts / "out"), "--minutes", "1e-12", "--parts", "quick", "seen"]
    assert main(["gpu", *words]) == 0
    found = lines(scripts / "out")
    assert {name: each["ended"] for name, each in found.items()} == {
        "quick": "no time left",
        "seen": "no time left",
    }


def test_all_end_within_ten_minutes():
    """As expected, or cut off; and small ones come first."""
    assert sum(part.expected for part in PARTS.values()) <= 60 * 8
    assert gpu.Options().minutes <= 9.5
    assert all(part.expected < part.limit <= 600 for part in EVERY.values())
    assert next(iter(PARTS)) == "smoke"
    assert min(part.expected for part in PARTS.values()) == PARTS["smoke"].expected


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("name", EVERY)
def test_each_is_a_command_that_there_is(name, small, tmp_path):
    """Its options are those of the command; the files of its tests exist."""
    module, *words = gpu_parts.words(EVERY[name], tmp_path, tmp_path, small)
    if module == "pytest":
        files = [word for word in words if word.endswith(".py")]
        assert files
        assert all((Path(gpu.ROOT) / file).exists() for file in files)
    elif module == "experiments.benchmark":
        part = {"rounds": rounds, "large": large}[words[0]]
        options = only_options(part.Options, words[1:], f"benchmark {words[0]}", part.__doc__)
        assert options.json
        assert options.repeats == (1 if small else 2 if name == "smoke" else 5)
    elif module == "experiments.run":
        settings = parse(modules.load(words[0]), words[0], words[1:], "run")
        assert (settings.data_dir, settings.rounds) == (tmp_path, 2 if small else 300)
    else:
        assert module == "experiments.reproduce"
        assert words[words.index("--data-dir") + 1] == str(tmp_path)
