"""The race: what its algorithms cost, on what it chooses settings, who wins."""

import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from made_runs import run_folder
from scipy import stats

import configs.race as entered
import fedpriv as fp
from fedpriv.experiments.accounting import budget, found
from fedpriv.experiments.commands import race as command
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.papers.reproduce.item import Training
from fedpriv.experiments.runs.run_folder import read, read_all
from fedpriv.experiments.search import race, race_page

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = replace(entered.settings, rounds=4, target_epsilon=2.0)


def shapes(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def test_the_networks_have_the_sizes_that_the_page_states():
    sizes = {name: fp.dimension(shapes(task.network())) for name, task in entered.TASKS.items()}
    assert list(sizes.values()) == [4_810, 410, 28_874, 36_954, 10_730]


@pytest.mark.slow
def test_a_character_is_predicted_by_the_eight_up_to_it():
    model = entered.TASKS["shakespeare"].network()
    params = model.init(jax.random.key(0))
    text = np.arange(80) % 90
    for changed in (20, 27, 28, 40):
        other = text.copy()
        other[changed] += 1
        moved = np.any(model.apply(params, text) != model.apply(params, other), axis=1)
        assert set(np.flatnonzero(moved)) <= set(range(changed, changed + 8))
        assert moved[changed]


@pytest.mark.slow
def test_every_private_entrant_costs_its_budget_and_calibrated_waves_what_plain_noise_costs():
    names = tuple(e.algorithm for e in race.ENTRANTS.values())
    config = replace(TINY, algorithms=tuple(dict.fromkeys(names)))
    noise = budget.solved(entered, config)
    assert set(names) - set(noise) == {"fed_avg", "fed_adam"}
    ledger = budget.made(partial(ledger_of, entered), config, noise)
    for name in noise:
        assert 2 * (1 - 1e-3) < ledger.certify(name, 4).epsilon <= 2
        assert ledger.certify(name, 4).basis == "constructed"
    assert noise["dp_fed_avg_wav_sound"] == pytest.approx(noise["dp_fed_avg"], rel=1e-3)
    # Each client's noise alone hides it from the server; of the sum that is less than what hides it from others.
    assert ledger.certify("ldp_fed_avg", 4, view="server").epsilon == pytest.approx(2, rel=1e-3)


@pytest.mark.slow
def test_a_sweep_solves_a_noise_once_where_the_releases_are_equal(monkeypatch):
    config = replace(TINY, algorithms=("dp_fed_avg",))
    known = []
    first = budget.solved(entered, config, known)
    ledger = budget.made(partial(ledger_of, entered), config, first)
    assert 2 * (1 - 1e-3) < ledger.certify("dp_fed_avg", 4).epsilon <= 2
    monkeypatch.setattr(found, "calibrate_noise", None)
    other = replace(config, clip_norm=0.1, local=replace(config.local, learning_rate=1.0))
    assert budget.solved(entered, other, known) == first
    with pytest.raises(TypeError):
        budget.solved(entered, replace(other, rounds=5), known)
    with pytest.raises(TypeError):
        budget.solved(entered, replace(other, target_epsilon=3.0), known)


def result(entrant, budget, accuracy, dataset="digits"):
    work = Training("race", "dp_fed_avg", {}, rounds=2, seeds=3)
    return race_page.Result(
        dataset, entrant, budget, run_folder(work, [[0.1] * len(accuracy), accuracy]), {}, ()
    )


def test_who_wins_by_how_much():
    best, near, base = [0.8, 0.9, 1.0], [0.85, 0.8, 0.81], [0.6, 0.61, 0.62]
    found = [result("A", "2", near), result("B", "2", best), result("DP-FedAvg", "2", base)]
    found += [result("FedAvg", "", [0.99] * 3), result("DP-FedAvg", "8", [0.95, 0.95, 0.95])]
    _, _, two, eight = race_page.winners(found).splitlines()[:4]
    low, high = 100 * np.array(stats.ttest_rel(best, base).confidence_interval(0.95))
    lead = 100 * (np.mean(best) - np.mean(base))
    said = f"{lead:+.1f} ({low:+.1f} to {high:+.1f})"
    assert two == f"| digits | 2 | B | 90.0 ± 10.0 | 3 | A | {said} |"
    assert eight == "| digits | 8 | DP-FedAvg | 95.0 ± 0.0 | 3 | nobody | - |"


def test_two_seeds_win_nothing():
    found = [result("A", "2", [0.9, 0.91]), result("DP-FedAvg", "2", [0.5, 0.51])]
    assert "| A | 90.5 ± 0.7 | 2 | DP-FedAvg | +40.0 (too few seeds) |" in race_page.winners(found)


def test_a_data_set_that_has_only_begun_is_left_out():
    ended = [result("FedAvg", "", [0.9] * 3), result("DP-FedAvg", "8", [0.8] * 3)]
    begun = result("FedAvg", "", [0.9] * 3, "cifar10")
    assert race_page.comparable([*ended, begun]) == ended


@pytest.mark.slow
def test_settings_are_chosen_on_training_records_and_a_race_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(race, "BUDGETS", ("8",))
    rates = {race.RATE: (0.03, 0.3)}
    own = {"p": (0.05,), race.CLIP: (0.3, 3)}
    few = {"DP-FedAvg": rates, "rand_k": own}
    for name, grid in few.items():
        monkeypatch.setitem(race.ENTRANTS, name, race.ENTRANTS[name]._replace(grid=grid))
    course = race.COURSES["digits"]
    once = course._replace(settings=course.settings | {"local": race.TWO_STEPS})
    monkeypatch.setitem(race.COURSES, "digits", once)
    seen = set()
    on = entered.on

    def spy(config, data):
        experiment = on(config, data)
        if config.fold:
            seen.update(row.tobytes() for row in np.asarray(experiment.test["image"]))
        return experiment

    monkeypatch.setattr(entered, "on", spy)
    args = ["--datasets", "digits", "--rounds", "3", "--seeds", "2", "--output", str(tmp_path)]
    entrants = ["DP-FedAvg", "rand_k"]
    assert command.main([*args, "--entrants", *entrants]) == 0
    data = entered.load(entered.settings)
    assert seen <= {row.tobytes() for row in data.train["image"]}
    contest = race.Contest(tmp_path / "digits", "digits", {})
    trials, _ = read_all([contest.trials("rand_k", "8")])
    assert len(trials) == 2
    scores = [t.lines["rand_k"][-1].of_score["accuracy"].mean for t in trials]
    best, final = trials[int(np.argmax(scores))], read(contest.final("rand_k", "8"))
    for field in ("p", "clip_norm"):
        assert final.settings[field] == best.settings[field]
    assert final.settings["fold"] is None
    assert final.lines["rand_k"][-1].seeds == 2
    plain = contest.best_trial("DP-FedAvg", "8").settings["local"]["learning_rate"]
    assert final.settings["local"]["learning_rate"] == plain
    for file in ("race.md", "race_epsilon.png", "race_uplink.png"):
        assert (tmp_path / file).stat().st_size > 500
    assert "| C 0.3 3 |" in (tmp_path / "race.md").read_text()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("metrics.jsonl")}
    capsys.readouterr()
    assert command.main([*args, "--entrants", *entrants]) == 0
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("metrics.jsonl")}
    summary = json.loads((contest.final("rand_k", "8") / "summary.json").read_text())
    assert 8 * (1 - 1e-3) < summary["privacy"]["rand_k"]["certified"]["third_party"]["epsilon"] <= 8
