"""The best of a secret number of trials: how many there are, which is chosen, what it costs, what is refused."""

import json
import random

import dp_accounting as dp
import jax
import numpy as np
import pytest
from scipy import stats

import fedpriv as fp
from configs import quickstart
from fedpriv import experiments
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.commands import sweep
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.search import best_of, choose, plan, training_together
from fedpriv.experiments.search.sweep_grid import points

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--algorithms", "dp_fed_avg", "--cohort", "3", "--local.epochs", "1"]
SMALL += ["--rounds", "3", "--every", "3"]
GRID = ["--grid", "noise-multiplier=1,2"]


def launch(*args, output):
    return sweep.main(["quickstart", *map(str, args), "--output", str(output)])


def test_the_number_of_trials_is_geometric_and_points_and_keys_are_uniform():
    """Chi-square and Kolmogorov-Smirnov tests, each a false alarm with probability 1e-4; the seed is fixed."""
    rng, mean = random.Random(0), 4.0
    runs = [best_of.drawn(3, mean, rng) for _ in range(5000)]
    law = stats.geom(1 / mean)
    counts = np.bincount([min(len(run), 16) for run in runs], minlength=17)[1:]
    chances = [*law.pmf(np.arange(1, 16)), law.sf(15)]
    assert stats.chisquare(counts, 5000 * np.array(chances)).pvalue > 1e-4
    points, keys = np.array([trial for run in runs for trial in run]).T
    assert stats.chisquare(np.bincount(points, minlength=3)).pvalue > 1e-4
    assert stats.kstest(keys / 2**63, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("scores", "higher", "at"),
    [
        ([0.2, 0.9, 0.9], True, 1),
        ([0.2, 0.9, 0.1], False, 2),
        ([None, float("nan"), 0.3], True, 2),
        ([None, float("nan")], True, None),
    ],
)
def test_the_first_of_the_best_is_chosen_and_what_diverged_is_not(scores, higher, at):
    assert choose.best(scores, higher) == at


@pytest.mark.slow
@pytest.mark.parametrize("own", [["--fold", "1", "3"], ["--dataset", "synthetic"]])
def test_no_client_chooses_by_records_of_its_own(own, tmp_path, capsys):
    args = [
        "race",
        "--algorithms",
        "dp_fed_avg",
        "--clients",
        "100",
        "--cohort",
        "10",
        "--rounds",
        "2",
    ]
    args += ["--grid", "clip-norm=1,2", "--best-of", "3", *own, "--output", str(tmp_path / "never")]
    assert sweep.main(args) == 2
    said = capsys.readouterr().err
    assert "best_of: accuracy is of test records that are the clients' own, and no cert" in said
    assert not (tmp_path / "never").exists()


DRAWN = [(0, 7), (1, 2**63 - 1), (0, 8)]
PRIVATE = [*SMALL, "--delta", "0.01", "--capacity", "120"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder, key -> its model, key -> its accuracy) of three trials, interrupted within the second."""
    folder = tmp_path_factory.mktemp("best") / "here"
    evaluation, recorded, models, scores = training_together.Recorder.evaluation, [], {}, {}
    keep = best_of.keep_best

    def interrupting(self, *given):
        evaluation(self, *given)
        recorded.append(self.folder.name)
        if len(recorded) == 2:
            raise KeyboardInterrupt

    def keeping(folder, found, *given):
        for point, summary in found:
            models[point.key] = model(folder / point.name, point.key)
            scores[point.key] = summary.final["dp_fed_avg"]["accuracy"].mean
        return keep(folder, found, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_of, "drawn", lambda *_: DRAWN)
        patch.setattr(training_together.Recorder, "evaluation", interrupting)
        patch.setattr("fedpriv.experiments.search.sweep.keep_best", keeping)
        assert launch(*PRIVATE, *GRID, "--best-of", "5", output=folder) == 130
        other = [*GRID, "--best-of", "6"], ["--grid", "noise-multiplier=1,2,4", "--best-of", "5"]
        for args in (*other, [*GRID, "--best-of", "5", "--clip-norm", "2"], GRID):
            assert launch(*PRIVATE, *args, output=folder) == 2  # another choice, or none
        patch.setattr(best_of, "drawn", lambda *_: [(0, 1)])  # of no consequence: they were drawn
        assert launch(*PRIVATE, *GRID, "--best-of", "5", output=folder) == 0
    assert recorded == ["trial-1", "trial-2", "trial-2", "trial-3"]
    return folder, models, scores


def model(folder, key):
    params = fp.models.load_model(folder, "dp_fed_avg", key).params
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


@pytest.mark.slow
def test_a_trial_is_what_its_key_makes_of_the_data_of_seed_0(finished):
    at, key = DRAWN[1]
    noise = f"--noise-multiplier={at + 1}"
    made = experiment_of(
        quickstart, parse(quickstart, "quickstart", [*PRIVATE, "--seeds=1", noise])
    )
    entry, init, score = made.entries["dp_fed_avg"], made.model.init, made.model.score
    options = {"score": score, "rounds": 3, "every": 3, "seeds": [key]}
    history = fp.simulate(entry.algorithm, init, entry.federations, made.test, **options)
    params = np.concatenate([np.ravel(x) for x in jax.tree.leaves(history.params())])
    np.testing.assert_allclose(finished[1][key], params, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_best_trial_alone_is_kept(finished, capsys):
    folder, models, scores = finished
    assert not np.allclose(models[7], models[8], atol=1e-2)  # the same point, another key
    best = max(scores, key=scores.__getitem__)
    about = json.loads((folder / "release.json").read_text())
    assert about["value"] == scores[best]
    row = experiments.table(folder).iloc[0]
    epsilon = row["certified_third_party_epsilon"]
    assert (row["accuracy_final_mean"], epsilon) == (about["value"], about["certified"]["epsilon"])
    assert about["values"] == {
        "noise_multiplier": str(dict(zip(models, (1, 2, 1), strict=True))[best])
    }
    np.testing.assert_array_equal(model(folder, 0), models[best])
    assert {f.name for f in folder.iterdir()} == {"release.json", "model"}
    kept = "".join(str(f) + f.read_bytes().hex() for f in folder.rglob("*") if f.is_file())
    assert not any(str(key).encode().hex() in kept for key in models if key > 8)
    assert launch(*PRIVATE, *GRID, "--best-of", "5", output=folder) == 2  # another release
    assert "holds no sweep; choose another" in capsys.readouterr().err


@pytest.mark.slow
def test_the_certificate_is_that_of_dp_accounting(finished):
    """Three rounds of DP-FedAvg at the lower noise, Poisson cohorts of 3 of 120 clients, composed by hand."""
    event = dp.PoissonSampledDpEvent(3 / 120, dp.GaussianDpEvent(1.0))
    once = dp.SelfComposedDpEvent(event, 3)
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(once, 5.0, 1))
    found = json.loads((finished[0] / "release.json").read_text())["certified"]
    assert found["epsilon"] == pytest.approx(accountant.get_epsilon(0.01), rel=1e-6)
    means = [found[name] for name in ("view", "unit", "relation", "basis")]
    assert means == ["third_party", "client", "add_or_remove", "constructed"]


@pytest.mark.slow
def test_nothing_is_kept_if_every_trial_diverges(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(best_of, "drawn", lambda *_: [(0, 1)])
    grid = ["--grid", "noise-multiplier=1e30,2e30"]
    assert launch(*PRIVATE, *grid, "--best-of", "2", output=tmp_path) == 0
    assert "every trial diverged" in capsys.readouterr().out
    assert {f.name for f in tmp_path.iterdir()} == {"release.json"}


TARGET = {"algorithms": ("dp_fed_avg",), "cohort": 3, "capacity": 120, "delta": 0.01}
TARGET |= {"target_epsilon": 4.0, "seeds": 1}


def points_of(**grid):
    """With a budget for the choice among them."""
    base = changed(quickstart.settings, TARGET)
    return points([*grid.items()], lambda values: changed(base, values))


def choice_of(found, mean=4.0):
    """Epsilon of the best of trials that are each of so many Poisson rounds at such noise, by Papernot and Steinke."""
    accountant, curves = dp.rdp.RdpAccountant, []
    orders = np.array(accountant()._orders)
    for rounds, noise in found:
        event = dp.PoissonSampledDpEvent(3 / 120, dp.GaussianDpEvent(noise))
        curves.append(accountant().compose(dp.SelfComposedDpEvent(event, rounds))._rdp)
    worst = np.max(curves, axis=0)
    of_count = np.min((orders - 1) / orders * worst + np.log(mean) / orders)
    of_best = worst + 2 * of_count + np.log(mean) / (orders - 1)
    return dp.rdp.compute_epsilon(orders, of_best, 0.01)[0]


@pytest.mark.slow
def test_at_the_noise_that_is_found_for_all_points_the_choice_costs_the_target_and_no_more():
    """Each point alone needs less: the orders at which one and a hundred rounds cost most are not the same."""
    every = points_of(rounds=[1, 100])
    alone = [budget.solved(quickstart, one.settings, best_of=4.0) for one in every]
    found = plan._solved(quickstart, every, 4.0)
    noises, together = ([noise["dp_fed_avg"] for noise in each] for each in (alone, found))
    for rounds, noise in zip((1, 100), noises, strict=True):
        assert 4 * (1 - 1e-3) < choice_of([(rounds, noise)]) <= 4
    assert choice_of(zip((1, 100), noises, strict=True)) > 4.01
    assert together[0] / noises[0] == pytest.approx(together[1] / noises[1], rel=1e-12)
    assert choice_of(zip((1, 100), together, strict=True)) <= 4
    less = [0.998 * noise for noise in together]
    assert choice_of(zip((1, 100), less, strict=True)) > 4


@pytest.mark.slow
def test_points_of_equal_releases_get_equal_noise():
    """And a choice whose noise was found for a single run is refused: it costs more."""
    every = points_of(clip_norm=[1.0, 2.0], rounds=[3])
    ((one,), (other,)) = (each.values() for each in plan._solved(quickstart, every, 4.0))
    assert one == other
    assert 4 * (1 - 1e-3) < choice_of([(3, one)]) <= 4
    single = [point.settings for point in every]
    of_one_run = [budget.solved(quickstart, settings) for settings in single]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_solved", lambda *_: of_one_run)
        prepared = plan._prepared(quickstart, every, 4.0)
    with pytest.raises(ValueError, match=r"^target_epsilon: 4 was solved for other .* the choice"):
        best_of.certified(prepared, 4.0)


@pytest.mark.slow
def test_a_release_says_the_noise_that_was_found_for_the_choice(tmp_path, monkeypatch, capsys):
    """As does the folder of each trial, as long as there is one."""
    begun, keep = [], best_of.keep_best

    def keeping(folder, *given):
        begun.append(json.loads((folder / "trial-1" / "config.json").read_text()))
        return keep(folder, *given)

    monkeypatch.setattr(best_of, "drawn", lambda *_: [(1, 9)])
    monkeypatch.setattr("fedpriv.experiments.search.sweep.keep_best", keeping)
    grid = ["--grid", "clip-norm=1,2", "--target-epsilon", "4"]
    assert launch(*PRIVATE, *grid, "--best-of", "4", output=tmp_path / "s") == 0
    about = json.loads((tmp_path / "s" / "release.json").read_text())
    noise = about["solved"]["noise_multiplier"]
    assert begun[0]["noise"] == {"dp_fed_avg": noise}
    assert about["values"] == {"clip_norm": "2"}
    assert 4 * (1 - 1e-3) < about["certified"]["epsilon"] <= 4
    assert about["certified"]["epsilon"] == pytest.approx(choice_of([(3, noise)]), rel=1e-6)
    said = f"noise: noise_multiplier {noise:.6g}, solved for eps 4 of the choice"
    assert said in capsys.readouterr().out
