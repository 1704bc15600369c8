"""The benchmark of integers times what it says, on a model of a few hundred parameters."""

import json

import pytest

from experiments import benchmark
from experiments.speed import integers
from experiments.speed.workloads import Images

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


def test_rounds_with_integers_stand_beside_floats(monkeypatch, capsys):
    tiny = Images(2, examples=2, epochs=2, side=4, filters=(), hidden=(3,))
    monkeypatch.setattr(integers, "WORKLOAD", tiny)
    monkeypatch.setattr(integers, "KEPT", 0.2)
    assert benchmark.main(["integers", "--clients", "2", "--repeats", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["rounds"]) == {"dense", "rand_k"}
    for rounds in found["rounds"].values():
        assert set(rounds) == {"float", "discrete_gaussian", "skellam"}
        assert rounds["float"]["ratios_to_float"]["all"] == [1.0, 1.0]
        for each in rounds.values():
            ours, real = each["seconds"]["all"], rounds["float"]["seconds"]["all"]
            assert each["ratios_to_float"]["all"] == [
                a / b for a, b in zip(ours, real, strict=True)
            ]
    assert all(part["min"] > 0 for name, part in found["parts_ms"].items() if name != "table, once")
