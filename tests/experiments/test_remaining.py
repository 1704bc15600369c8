"""Forecasts: from the parts that were timed, and not more often than anybody reads them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fedpriv.core.terminal_text import span
from fedpriv.engine.history import Evaluation
from fedpriv.experiments.base import time_left
from fedpriv.experiments.papers.reproduce import cost
from fedpriv.experiments.papers.reproduce.item import Computation, Scale, Training
from fedpriv.experiments.training.progress import RecordedProgress


@pytest.fixture
def clock(monkeypatch):
    """Goes on where it is told to."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now.seconds)
    return now


def test_what_is_left_follows_from_the_first_part_and_is_said_every_minute(clock, capsys):
    said = []
    parts = time_left.Remaining("views", 20)
    for _ in range(20):
        clock.seconds += 12
        parts.advance()
        said.append(capsys.readouterr().err)
    assert said[0] == "views: 1 of 20 done, about 4 min left on this machine\n"
    assert said[1:5] == [""] * 4
    assert said[5] == "views: 6 of 20 done, about 3 min left on this machine\n"
    assert said[16:] == [""] * 4  # the end is near


def test_parts_may_be_timed_by_others_and_some_take_no_time(clock, capsys):
    parts = time_left.Remaining("rounds", 100)
    parts.skip(50)
    clock.seconds += 1000  # compiling
    parts.advance(10, 300.0)
    assert capsys.readouterr().err == "rounds: 10 of 50 done, about 20 min left on this machine\n"


def test_what_takes_seconds_is_not_forecast(clock, capsys):
    parts = time_left.Remaining("views", 20)
    for _ in range(20):
        clock.seconds += 1
        parts.advance()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "about 1 s"), (89, "about 89 s"), (90, "about 2 min"), (7200, "about 2 h")],
)
def test_a_span_of_time(seconds, said):
    assert span(seconds) == said


def evaluation(round, seconds):
    half = np.array([0.5])
    return Evaluation(round, {"accuracy": half, "loss": half}, half, half, {}, seconds)


def test_a_run_says_what_it_and_all_of_its_algorithms_will_take(capsys):
    certificate = SimpleNamespace(epsilon=float("inf"), assumptions=())
    progress = RecordedProgress("fed_avg", 100, certificate, None, {}, others=3)
    capsys.readouterr()
    progress.update(evaluation(10, 60.0), certificate)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("about 9 min left")
    assert second.startswith(
        "the run: about 39 min left on this machine if the 3 other algorithm(s)"
    )
    progress.update(evaluation(30, 60.0), certificate)
    assert capsys.readouterr().err.endswith("not private, about 4 min left\n")


def recorded(folder, name, algorithm="top_k", speed=2.0, seeds=5, here=True):
    """A run as far as a forecast looks at it."""
    summary = SimpleNamespace(
        device={"platform": "cpu", "kind": "cpu", "instructions": "a" if here else "b", "count": 8},
        rounds_per_second={algorithm: speed},
    )
    path = folder / "runs" / name
    path.mkdir(parents=True)
    (path / "summary.json").write_text(json.dumps({}))
    return path, SimpleNamespace(path=path, config="c", settings={"seeds": seeds}, summary=summary)


def test_trainings_cost_what_the_rounds_of_their_like_cost_here(tmp_path, monkeypatch):
    one, other = Training("c", "top_k", {"p": 1}, rounds=100, seeds=2), Training("c", "top_k")
    unlike, computed = Training("c", "rand_k"), Computation("attack", lambda *_: {})
    made = dict(
        [
            recorded(tmp_path, one.key, speed=2.0, seeds=5),  # 0.1 s per round and seed
            recorded(tmp_path, "another", speed=1.0, seeds=2),  # 0.5 s
            recorded(tmp_path, "elsewhere", speed=1e-3, here=False),
        ]
    )
    monkeypatch.setattr(cost.run_folder, "read", made.__getitem__)
    here = {"platform": "cpu", "kind": "cpu", "instructions": "a", "count": 2}
    monkeypatch.setattr(cost, "device", lambda: here)
    speeds = cost.Speeds(tmp_path)
    assert speeds.of(one) == pytest.approx(0.1)  # its own rounds
    assert speeds.of(other) == pytest.approx(0.3)  # the mean of its like
    assert speeds.of(unlike) is None
    assert speeds.cost([one, other], Scale()).seconds == pytest.approx(0.1 * 200 + 0.3 * 100)
    assert speeds.cost([one], Scale(0.5)).seconds == pytest.approx(0.1 * 50)
    assert str(speeds.cost([one, unlike, computed], Scale())) == "about 20 s and more"
    assert str(speeds.cost([unlike, computed], Scale())) == "?"
