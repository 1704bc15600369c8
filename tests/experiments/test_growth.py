"""The growth command: slopes of growth that is known, sizes that are what they say, and its outputs."""

import json
import signal
import subprocess

import jax
import numpy as np
import pytest
from tiers import every

import fedpriv as fp
from experiments import benchmark
from experiments.speed import growth, growth_point
from experiments.speed.growth import Axis
from experiments.speed.growth_point import Point, built, here, measured, network, xla_mb
from experiments.speed.timing import spread


def main(args):
    return benchmark.main(["growth", *args])


X = [1e2, 1e3, 1e4, 1e5, 1e6]

TINY = {"clients": Axis(("dp_scaffold",), {"cohort": 2, "parameters": 100}, (4, 16))}


def invented(power, memory=1.0):
    """Numbers in place of a measurement: time grows as size^power on every axis, in three turns."""

    def of(point, turns):
        size = point.clients * point.cohort * point.parameters
        return {
            "parameters": point.parameters,
            "compile_seconds": 0.5,
            "seconds": [1e-9 * (1 + turn) * size**power for turn in range(turns)],
            "peak_mb": 1e-3 * size**memory,
            "xla_mb": 2.0,
        }

    return of


def slopes(turns, memory):
    """Of time and of memory, at X."""
    points = [
        {"seconds": spread(t), "peak_mb": m, "xla_mb": 2.0}
        for t, m in zip(turns, memory, strict=True)
    ]
    found = growth._slopes(X, points)
    return found["seconds"], found["peak_mb"]


def test_only_the_largest_sizes_count_and_each_turn_has_its_slope():
    """Neighbours give the range of what was measured once."""
    turns = [[1e9] * 2, [1e9] * 2, [1.0, 1.0], [10.0, 100.0], [100.0, 1e4]]
    time, memory = slopes(turns, [1, 1, 1, 10, 1000])
    medians = [1.0, 55.0, 5050.0]
    assert time["slope"] == pytest.approx(np.polyfit([4, 5, 6], np.log10(medians), 1)[0])
    assert (time["low"], time["high"]) == pytest.approx((1, 2))
    assert [memory[k] for k in ("slope", "low", "high")] == pytest.approx([1.5, 1, 2])


def test_a_sort_counts_as_linear_and_a_root_more_does_not():
    times = [[1.0, 1.0]] * 5
    assert slopes(times, [x * np.log(x) for x in X])[1]["linear"]
    assert not slopes(times, [x**1.5 for x in X])[1]["linear"]


@pytest.mark.parametrize("parameters", [10**4, 10**5, 10**6, 10**7])
def test_models_have_the_parameters_they_are_said_to_have(parameters):
    image = jax.ShapeDtypeStruct((8, 8, 1), np.uint8)
    shapes = jax.eval_shape(network(parameters).init, jax.random.key(0), image)
    d = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert d == pytest.approx(parameters, rel=0.005)


@pytest.mark.slow
@every("algorithm", ["dp_fed_avg", "fed_smp", "dp_scaffold"])
def test_a_point_is_a_round_of_its_algorithm_at_its_size(algorithm):
    made, state, federation = built(Point(algorithm, 12, 5, 200))
    assert federation.rows.shape == (12, 4)
    cohorts = made.sampler.accounting
    assert (cohorts.population, cohorts.most) == (12, 5)
    d = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    if algorithm == "dp_scaffold":
        assert state.controls.shape == (12, d)
    _, metrics = jax.eval_shape(fp.one_round(made), jax.random.key(0), state, federation)
    assert metrics["cohort_size"].shape == ()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
def test_a_fresh_process_measures_what_this_one_would(monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    point = Point("fed_smp", 6, 2, 100)
    there, now = measured(point, 2), here(point, 3)
    assert there.keys() == now.keys()
    assert there["xla_mb"] == now["xla_mb"] > 0
    assert (len(there["seconds"]), len(now["seconds"])) == (2, 3)
    assert min(there["seconds"]) > 0
    assert 0 < there["peak_mb"] < 2000
    assert there["compile_seconds"] > 0


@pytest.mark.slow
def test_memory_is_counted_in_megabytes():
    compiled = jax.jit(lambda x: x + 1).lower(np.zeros(10**6, np.float32)).compile()
    assert xla_mb(compiled) == pytest.approx(8, rel=0.01)
    compiled = jax.jit(lambda x: x + 1, donate_argnums=0).lower(jax.numpy.zeros(10**6)).compile()
    assert xla_mb(compiled) == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(
    ("time", "memory", "code"), [(1.0, 0.5, 0), (2.0, 0.5, 1), (1.0, 1.6, 1), (0.1, 1.1, 0)]
)
def test_the_verdict_is_computed_and_is_the_exit_code(
    time, memory, code, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(growth, "measured", invented(time, memory))
    monkeypatch.setattr(growth, "picture", lambda found, path: None)
    assert main(["--repeats", "3", "--output", str(tmp_path)]) == code
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "growth.json").read_text())
    assert found["linear"] == (code == 0)
    assert ("nothing grows worse than linearly" in out) == (code == 0)
    assert ("(!)" in out) == (code == 1)
    for one in found["series"]:
        expected = {"seconds": time, "peak_mb": memory, "xla_mb": 0}
        for name, slope in expected.items():
            assert one["slopes"][name]["slope"] == pytest.approx(slope, abs=1e-9)
            assert one["slopes"][name]["high"] == pytest.approx(slope, abs=1e-9)
            assert one["slopes"][name]["linear"] == (slope <= 1.25)
        assert one["failed"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
def test_an_axis_is_measured(tmp_path, capsys, monkeypatch):
    """In this process, whose peak is past; tiny sizes say nothing, so that the verdict may be either."""
    monkeypatch.setattr(growth, "measured", lambda *given: here(*given) | {"peak_mb": 1.0})
    monkeypatch.setattr(growth, "AXES", TINY)
    code = main(["--repeats", "2", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "growth.json").read_text())
    assert code == (not found["linear"])
    assert out.strip() == (tmp_path / "growth.md").read_text().strip()
    assert [s["axis"] for s in found["series"]] == ["clients"]


def test_a_size_that_fails_is_said_in_words_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    """The largest cohort of 1000; then DP-SCAFFOLD has one size left, which has no slope."""

    def of(point, turns):
        if point.cohort == 1000 or (point.algorithm == "dp_scaffold" and point.clients > 100):
            raise ChildProcessError("killed; too little memory?")
        return invented(1.0)(point, turns)

    monkeypatch.setattr(growth, "measured", of)
    monkeypatch.setattr(growth, "picture", lambda found, path: None)
    assert main(["--repeats", "2", "--output", str(tmp_path)]) == 1
    out, error = capsys.readouterr()
    words = "DP-FedAvg with n = 1,000, r = 1,000, d = 10,000: killed; too little memory?"
    assert f"error: {words}" in error.splitlines()
    assert len([line for line in error.splitlines() if line.startswith("error: ")]) == 2 + 4
    assert "6 SIZE(S) COULD NOT BE MEASURED" in out
    assert "of what was measured, nothing grows" in out
    assert "| DP-FedAvg | 1,000 | 1,000 | 10,000 | failed |" in out
    found = json.loads((tmp_path / "growth.json").read_text())
    assert found["linear"] is None
    first, last = found["series"][0], found["series"][-1]
    assert [p["cohort"] for p in first["points"]] == [10, 30, 100, 300]
    sizes = {"clients": 1000, "cohort": 1000, "parameters": 10_000}
    assert first["failed"] == [sizes | {"why": "killed; too little memory?"}]
    assert first["slopes"]["seconds"]["slope"] == pytest.approx(1)
    assert (len(last["points"]), len(last["failed"]), last["slopes"]) == (1, 4, {})


@pytest.mark.parametrize(
    ("code", "stderr", "why"),
    [
        (-signal.SIGKILL, "a warning", "killed; too little memory?"),
        (1, "Traceback\nRESOURCE_EXHAUSTED: 9 GB", "RESOURCE_EXHAUSTED: 9 GB"),
        (3, "", "its process ended with exit code 3"),
    ],
)
def test_why_a_process_failed(code, stderr, why, monkeypatch):
    ended = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(growth_point.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(ChildProcessError) as failed:
        measured(Point("dp_fed_avg", 8, 2, 100), 2)
    assert str(failed.value) == why


@pytest.mark.slow
def test_what_was_measured_before_an_interruption_is_kept(tmp_path, capsys, monkeypatch):
    """By default in a folder of its own under runs."""
    points = iter(range(3))

    def of(point, turns):
        if next(points, None) is None:
            raise KeyboardInterrupt
        return invented(1.0)(point, turns)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(growth, "measured", of)
    assert main(["--repeats", "2"]) == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("growth-2")
    assert [file.name for file in folder.iterdir()] == ["growth.json"]
    found = json.loads((folder / "growth.json").read_text())
    assert [len(s["points"]) for s in found["series"]] == [3]
    assert found["linear"] is None
    assert main(["--output", str(folder)]) == 2
