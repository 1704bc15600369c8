"""What a run waits for at first: benchmark start."""

import json

import pytest

from experiments import benchmark
from experiments.speed import start


@pytest.mark.slow
def test_two_starts_share_a_cache(capsys, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    assert benchmark.main(["start", "--tiny", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["first"], found["second"]
    assert second["compile_seconds"] < first["compile_seconds"]
    assert second["temporary_mb"] == first["temporary_mb"]
    assert 0 < found["cache_mb"] < 10
    assert "second start" in start.table(found)


@pytest.mark.slow
def test_what_a_start_trains():
    """Adapters alone, of a network of the given size."""
    options = start.Options(layers=1, width=16, length=8, vocabulary=32, clients=2)
    algorithm, (_, state, federation), parameters = start.built(options)
    assert parameters > 1000
    assert federation.num_clients == 2
    assert algorithm.sampler.accounting.population == 2
    assert all(set(leaf) == {"A", "B"} for leaf in state.params.values())
