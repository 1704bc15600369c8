"""Rivals' processes and their environments: answers, failures; no network, no simulator."""

import json
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.speed import memory
from experiments.speed.haar_speed import Transform
from experiments.speed.rivals import comparison, jax_privacy, runner
from experiments.speed.rivals.runner import Rival, Rivals, Settings
from experiments.speed.timing import medians
from fedpriv.mechanisms.mechanisms import gaussian
from fedpriv.mechanisms.per_example import per_example, private_mean

pytestmark = pytest.mark.slow

SETTINGS = Settings("A", {"size": 3}, clients=2, threads=1, device="cpu")

FAKES = {
    "steady": """
        print("a library says hello")
        runs = {"slow": lambda: time.sleep(0.02), "fast": lambda: print("and more")}
        notes = (os.environ.get("XLA_FLAGS", "no flags"), os.environ["OMP_NUM_THREADS"])
        return Baseline(runs, settings.workload.size, ("numpy",), notes)
    """,
    "broken": 'raise RuntimeError("no such model")',
    "mortal": """
        left = iter(range(2))  # the first is used up before the answer about itself
        return Baseline({"run": lambda: next(left)}, 1, ())
    """,
    "silent": 'return Baseline({"run": lambda left=[0]: left.pop() if left else time.sleep(60)}, 1, ())',
}
FAKES["torch"] = FAKES["steady"]


def module(name):
    return f"experiments.speed.rivals.{name}"


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """`runner.py` and what it needs in a folder with the modules above, which is what rivals are started from."""
    folder = tmp_path / "experiments" / "speed" / "rivals"
    folder.mkdir(parents=True)
    shutil.copy(runner.__file__, folder)
    shutil.copy(memory.__file__, folder.parent)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    head = "import os, time\nfrom experiments.speed.rivals.runner import Baseline\ndef build(settings):\n"
    for name, body in FAKES.items():
        lines = [line.strip() for line in body.strip().splitlines()]
        build = head + "".join(f"    {line}\n" for line in lines)
        (folder / f"{name}.py").write_text(build + 'WORKLOADS = {"A": build}\n')
    monkeypatch.setattr(runner, "__file__", str(folder / "runner.py"))
    rivals = {"torch": "AB", "broken": "A", "mortal": "A", "elsewhere": "B"}
    monkeypatch.setattr(runner, "RIVALS", rivals)
    return folder


def test_a_rival_tells_about_itself_and_answers(fakes, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--meant_for_our_jax")
    rival = Rival(module("steady"), SETTINGS)
    about = rival.about()
    assert about["runs"] == ["slow", "fast"]
    assert (about["threads"], about["parameters"]) == (1, 3)
    assert about["notes"] == ["no flags", "1"]
    assert set(about["versions"]) == {"numpy"}
    for name, least in (("slow", 0.02), ("fast", 0.0)):
        answer = rival.run(name)
        assert least <= answer["seconds"] < 10
        assert answer["peak_memory_mb"] > 1
    rival.close()


def test_one_that_hangs_is_given_up(fakes, monkeypatch):
    rival = Rival(module("silent"), SETTINGS)
    rival.about()
    monkeypatch.setattr(runner, "_PATIENCE", 0.2)
    with pytest.raises(ChildProcessError, match=r"no answer in 0\.2 seconds"):
        rival.run("run")
    rival.close()


def test_those_that_fail_are_left_out_and_the_others_go_on(fakes, capfd):
    with Rivals(torch=True, peers=True, settings=SETTINGS) as all_of_them:
        assert set(all_of_them.about()) == {"torch", "mortal"}
        for _ in range(4):
            all_of_them.once()
        assert set(all_of_them.about()) == {"torch"}
        assert "StopIteration" in all_of_them.failures["mortal"]
        assert "exit code 1: RuntimeError: no such model" in all_of_them.failures["broken"]
        times = all_of_them.seconds("torch")
        assert [len(each) for each in times.values()] == [4, 4]
        found = comparison.rounds(all_of_them, [0.01] * 4, clients=2)
    said = [line for line in capfd.readouterr().err.splitlines() if line]
    assert [line.split(":")[0] for line in said] == ["broken", "mortal"]
    assert found["rivals"] == ["torch", "broken", "mortal"]
    assert found["torch"]["best"] == "fast"
    assert found["torch"]["slow"]["all"] == pytest.approx([2 / t for t in times["slow"]])
    assert found["ratios_to_torch"]["all"] == pytest.approx([t / 0.01 for t in times["fast"]])
    json.dumps(found)
    ours = {"slow": [0.01, 0.02], "fast": [0.03, 0.04], "own": [1.0, 1.0]}
    by_run = comparison.steps(all_of_them, ours, group=2)
    for run, each in times.items():
        theirs = medians(each, 2)
        ratios = [b / a for a, b in zip(ours[run], theirs, strict=True)]
        assert by_run["ratios_to_torch"][run]["all"] == pytest.approx(ratios)
        assert by_run["torch"]["ms"][run]["all"] == pytest.approx([1e3 * t for t in theirs])
    assert "ratio_to_torch" in comparison.rows(by_run)["torch slow"]
    rows = comparison.rows(found)
    assert rows["broken"].startswith("left out: ")
    assert rows["ratio_to_torch"].endswith(", to fast")
    assert rows["ratio_to_X above 1:"] == "fedpriv is faster than X"
    assert "no flags" in rows["but torch:"]


def test_on_a_gpu_those_that_need_a_cpu_are_left_out(monkeypatch):
    """And it is shared: nobody takes all of its memory, and products are as precise as ours."""
    monkeypatch.setattr(runner, "RIVALS", {"flower": "A"})
    settings = SETTINGS._replace(device="cuda", precision="tensorfloat32")
    with Rivals(torch=False, peers=True, settings=settings) as none:
        assert "on CPU only" in none.failures["flower"]
    variables = runner._variables(settings, sys.executable)
    assert variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert variables["JAX_DEFAULT_MATMUL_PRECISION"] == "tensorfloat32"


def test_one_run_alone(fakes):
    with closing(Rival(module("steady"), SETTINGS._replace(run="fast"))) as rival:
        assert rival.about()["runs"] == ["fast"]


def test_medians_of_groups():
    assert medians([3, 1, 2, 9, 9, 0], 3) == [2, 9]
    assert medians([3, 1], 1) == [3, 1]


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """Stands for Python: `-m venv --clear DIR` copies it there; `-m pip` is noted, and fails for a bad file."""
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = venv ]; then rm -rf "$4"; mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit; fi\n'
        f'echo "$@" >> {tmp_path}/installed\n'
        'case "$*" in *bad*) echo "ERROR: no matching distribution" >&2; echo hint >&2; exit 1;; esac\n'
    )
    script.chmod(0o755)
    here = SimpleNamespace(executable=str(script), stderr=sys.stderr, version_info=(3, 11))
    monkeypatch.setattr(runner, "sys", here)
    monkeypatch.setattr(runner, "REQUIREMENTS", tmp_path)
    for name in ("good", "bad"):
        (tmp_path / f"{name}.txt").write_text(f"{name}==1\n")
    monkeypatch.setenv("FEDPRIV_PEERS_DIR", str(tmp_path / "peers"))
    return tmp_path


def test_an_environment_is_built_once_for_its_requirements(builder):
    """After a build that was cut off from the start, and again where they changed."""
    here = runner.environment("good")
    (here / "left").mkdir(parents=True)
    assert not runner.built("good")
    assert runner.python_of("good") == str(here / "bin" / "python")
    assert not (here / "left").exists()
    assert runner.built("good")
    runner.python_of("good")
    install = f"-m pip install --quiet -r {builder / 'good.txt'}"
    assert (builder / "installed").read_text().splitlines() == [install]
    (builder / "good.txt").write_text("good==2\n")
    runner.python_of("good")
    assert (builder / "installed").read_text().splitlines() == [install] * 2


def test_a_rival_without_requirements_has_our_environment(builder):
    assert runner.python_of("torch") == runner.sys.executable


def test_on_a_gpu_a_rival_that_is_here_has_our_environment(builder):
    (builder / "numpy.txt").write_text("numpy==1\n")
    assert runner.python_of("numpy", "cuda") == runner.sys.executable
    assert runner.python_of("numpy") != runner.sys.executable


def test_an_environment_that_cannot_be_built_says_why_and_leaves_nothing(builder, monkeypatch):
    why = r"cannot be built.*pip: ERROR: no matching distribution; see .*bad\.txt"
    with pytest.raises(ChildProcessError, match=why):
        runner.python_of("bad")
    assert not runner.environment("bad").exists()
    (builder / "file").touch()
    monkeypatch.setenv("FEDPRIV_PEERS_DIR", str(builder / "file"))
    with pytest.raises(ChildProcessError, match="cannot be built"):
        runner.python_of("good")


def test_a_peer_without_an_environment_is_left_out(builder, monkeypatch):
    monkeypatch.setattr(runner, "RIVALS", {"bad": "A"})
    with Rivals(torch=False, peers=True, settings=SETTINGS) as none:
        none.once()
        assert "no matching distribution" in none.failures["bad"]
        assert none.about() == {}
        assert comparison.rows(comparison.rounds(none, [0.01], clients=2)).keys() == {"bad"}


def test_environments_lie_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPRIV_PEERS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runner.environment("pfl").parent == tmp_path / "fedpriv" / "peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert runner.environment("pfl").parent == Path.home() / ".cache" / "fedpriv" / "peers"


STEP = Transform(3, 8, lot=4, side=8, filters=(2, 3), hidden=(5,), clip_norm=0.7)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jax_privacy calls optax by an old name
@pytest.mark.parametrize("micro", [None, 2])
@pytest.mark.usefixtures("quick_to_compile")
def test_a_private_step_is_that_of_jax_privacy(micro):
    """Without noise; some gradients are clipped."""
    rng = np.random.default_rng(3)
    examples = {"image": rng.integers(0, 256, (4, 8, 8, 1), np.uint8)}
    examples |= {"label": rng.integers(0, 10, 4, np.int32)}
    params = STEP.model().init(jax.random.key(0))
    model = jax_privacy.CNN(STEP.filters, STEP.hidden)
    noiseless = replace(STEP, noise_multiplier=0.0)
    step = jax_privacy.private_step(lambda p, x: model.apply(p, x / 255), noiseless, micro)
    theirs = jax.jit(step)(jax.random.key(0), params, examples["image"], examples["label"])
    mean = private_mean(per_example(STEP.model().loss), gaussian(STEP.clip_norm, 0.0), STEP.lot)
    ours = jax.jit(mean)(jax.random.key(0), params, examples, jnp.ones(STEP.lot, bool))
    for a, b in zip(*map(jax.tree.leaves, (theirs, ours)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
