"""Workloads H, I and J: their sizes, their arithmetic, and their processes at a few hundred parameters."""

import json
from contextlib import ExitStack
from dataclasses import asdict, replace

import jax
import numpy as np
import optax
import pytest

import fedpriv as fp
from experiments import benchmark
from experiments.speed import examples, large
from experiments.speed.large import Measured
from experiments.speed.large_runs import LARGE, SMALL, LargeStep
from experiments.speed.rivals.runner import Settings
from experiments.speed.workloads import parameters

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]

main = benchmark.main

TINY = {"length": 4, "vocabulary": 8, "width": 8, "heads": 2, "layers": 1, "lot": 2, "product": 8}
FEW = {"clients": 2, "steps": 2}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Also processes."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def tiny(name):
    return replace(SMALL[name], **TINY, **(FEW if name != "H" else {}), micro=1)


def test_they_have_the_sizes_they_are_said_to_have():
    """97.8 million parameters; a round is 20 clients by 4 steps by 4 texts."""
    layer = 12 * 768**2 + (4 + 5 + 4) * 768  # kernels; biases of attention, of dense layers, norms
    ends = 2 * 8192 * 768 + 8192 + 256 * 768 + 2 * 768
    assert parameters(LARGE["H"]) == 12 * layer + ends == 97_843_712
    assert LARGE["J"].texts() == 320
    forward = 12 * 12 * 768**2 + 768 * 8192 + 2 * 12 * 256 * 768  # multiply-adds of a token
    assert LARGE["H"].flop() == 3 * 2 * forward * 16 * 256
    assert LARGE["J"].flop() == 3 * 2 * forward * 320 * 256
    assert LARGE["I"].flop() == 2 * 2 * forward * 320 * 256
    assert LARGE["I"].flop_per_client() == LARGE["I"].flop() // 20


def test_adapters_of_all_kernels_are_trained():
    """Rank 8: query, key, value and output 8 + 8 each, dense 8 + 32 twice, logits 8 + 8."""
    assert parameters(tiny("I")) == 8 * (4 * 16 + 2 * 40 + 16)
    assert parameters(tiny("J")) == parameters(tiny("H"))


def test_a_round_is_dp_fed_avg_over_whole_epochs():
    """Of one client, without noise or clipping: a step of SGD by hand."""
    workload = replace(tiny("J"), clients=1, steps=1, noise_multiplier=0.0, clip_norm=1e6)
    federation, algorithm = workload.federation(1), workload.algorithm(1)
    params = jax.jit(workload.init)(jax.random.key(0))
    after, _ = fp.one_round(algorithm)(
        jax.random.key(1), algorithm.init(params, federation), federation
    )
    text = examples.texts(workload, workload.lot)
    batch = {"text": text[:, :-1], "label": text[:, 1:]}
    mean = jax.grad(lambda p: jax.vmap(workload.loss, (None, 0))(p, batch).mean())
    gradient = jax.jit(mean)(params)
    for end, p, g in zip(*map(jax.tree.leaves, (after.params, params, gradient)), strict=True):
        np.testing.assert_allclose(end, p - 0.1 * g, atol=1e-6)
    assert optax.tree.norm(gradient) > 0.1


def measured(name, run, times, **about):
    """As a process that has run."""
    each = Measured.__new__(Measured)
    each.name, each.run, each.times, each.about = name, run, times, about
    return each


def test_numbers_of_each_run():
    workload = tiny("H")
    found = [
        measured("ours", "dp_sgd", [0.5, 0.25], peak_memory_mb=3.0),
        measured("ours", "gradient", [0.1, 0.1]),
        measured("ours", "product", [0.1, 0.2]),
        measured("torch", "gradient", [0.2, 0.3]),
        measured("opacus", "ghost", [1.0, 1.0]),
        measured("jax_privacy", "dp_sgd", [1.0], unavailable="no memory"),
    ]
    runs = large.described(found, workload)
    assert runs["ours dp_sgd"]["tokens_per_second"]["all"] == [16, 32]
    assert runs["ours dp_sgd"]["tflops"]["all"][0] == pytest.approx(workload.flop() / 1e12 / 0.5)
    assert runs["ours product"]["tflops"]["all"][0] == pytest.approx(2 * 8**3 / 1e12 / 0.1)
    assert runs["torch gradient"]["ratio"]["all"] == pytest.approx([2, 3])
    assert runs["opacus ghost"]["ratio"]["all"] == pytest.approx([2, 4])  # to our step
    assert runs["jax_privacy dp_sgd"] == {"unavailable": "no memory"}


@pytest.mark.parametrize(("workload", "runs"), [("H", ("dp_sgd", "gradient")), ("I", ("round",))])
def test_each_run_has_a_process_of_its_own(workload, runs, monkeypatch, capsys):
    """J is I without adapters; the product is timed below."""
    monkeypatch.setitem(large.SMALL, workload, tiny(workload))
    monkeypatch.setitem(large.OURS, workload, runs)
    words = ["--workload", workload, "--sizes", "small", "--repeats", "2"]
    assert main(["large", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["runs"]) == {f"ours {run}" for run in runs}
    for run in found["runs"].values():
        assert len(run["ms"]["all"]) == 2
        assert run["peak_memory_mb"] > 10
    assert "tokens" in large.table(found)


def test_one_that_fails_is_left_out_and_the_others_go_on(monkeypatch, capsys):
    """Where each has the machine alone; and the lot is what is asked for."""
    monkeypatch.setitem(large.SMALL, "H", tiny("H"))
    monkeypatch.setattr(large, "OURS", {"H": ("unknown", "product")})
    monkeypatch.setattr(large, "in_turns", large.one_by_one)
    assert main(["large", "--sizes", "small", "--lot", "3", "--repeats", "1", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["lot"] == 3
    assert "exit code 1: KeyError: 'unknown'" in found["runs"]["ours unknown"]["unavailable"]
    assert found["runs"]["ours product"]["ms"]["median"] > 0
    assert "left out: its process ended" in large.table(found)


def test_a_run_that_cannot_start_says_why(capsys):
    settings = Settings("H", asdict(LargeStep()), 1, 1, "cpu")
    with ExitStack() as alive:
        failed = Measured("nobody", "dp_sgd", settings, alive)
        failed.once()
    assert "nobody" in failed.about["unavailable"]
    assert capsys.readouterr().err.startswith("nobody dp_sgd: its process ended")
