"""The best of a secret number of trials: how many there are, which is chosen, what it costs, what is refused."""

import json
import random
import stat

import dp_accounting as dp
import jax
import numpy as np
import pytest
from commands import sweep
from scipy import stats

import fedpriv as fp
from configs import quickstart
from experiments import compare
from experiments.config.options import parse
from experiments.runs import run_folder
from experiments.search import best_of, training_together

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
    assert best_of.best(scores, higher) == at


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--best-of", "0.5"], "--best-of: 0.5 is not a finite mean number of trials above 1"),
        (["--best-of", "inf"], "--best-of: inf is not a finite mean"),
        (["--best-of", "nan"], "--best-of: nan is not a finite mean"),
        (["--best-of", "many"], "--best-of: invalid float value: 'many'"),
        (["--best-of", "3", "--seeds", "2"], "seeds: 2 does not go with --best-of"),
        (["--best-of", "3", "--grid", "seeds=1,2"], "--grid: seeds cannot be swept"),
        (["--best-of", "3", "--view", "server"], "view: server does not go with --best-of"),
        (["--best-of", "3", "--views", "all"], "views: all does not go with --best-of"),
        (["--best-of", "3", "--target-epsilon", "2"], "target_epsilon: 2 is of one training"),
        (["--best-of", "3", "--keep-model", "false"], "keep_model: False does not go with"),
        (
            ["--best-of", "3", "--algorithms", "dp_fed_avg", "rand_k"],
            "dp_fed_avg rand_k are several",
        ),
        (
            ["--best-of", "3", "--algorithms", "fed_avg"],
            "fed_avg has no finite epsilon (not private",
        ),
        (["--best-of", "3", "--grid", "delta=0.01,0.02"], "delta must be the same at every point"),
        (["--best-of", "3", "--grid", "clients=60,120"], "the clients' records must be the same"),
        (["--best-of", "3", "--grid", "metric=loss,accuracy"], "metric must be the same"),
        (
            ["--best-of", "3", "--grid", "sampling=poisson,fixed_size"],
            "relation: ['add_or_remove', 'replace_one']; choose among settings of one kind",
        ),
    ],
)
def test_bad_input_gets_one_line_and_nothing_runs(args, said, tmp_path, capsys):
    grid = [] if "--grid" in args else GRID
    delta = [] if any("delta=" in a for a in args) else ["--delta", "0.01"]
    assert launch(*SMALL, *delta, *grid, *args, output=tmp_path / "never") == 2
    shown, error = capsys.readouterr()
    assert shown == ""
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("own", [["--dataset", "synthetic"], ["--folds", "3"]])
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
    assert "--best-of: the test records are the clients'" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


DRAWN = [(0, 7), (1, 2**63 - 1), (0, 8)]
PRIVATE = [*SMALL, "--delta", "0.01", "--capacity", "120"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Three trials, two of them at the same point, interrupted within the second."""
    folder = tmp_path_factory.mktemp("best") / "here"
    evaluation, recorded = training_together.Recorder.evaluation, []

    def interrupting(self, *given):
        evaluation(self, *given)
        recorded.append(self.folder.name)
        if len(recorded) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_of, "drawn", lambda *_: DRAWN)
        patch.setattr(training_together.Recorder, "evaluation", interrupting)
        assert launch(*PRIVATE, *GRID, "--best-of", "5", output=folder) == 130
        assert not (folder / "release").exists()
        patch.setattr(best_of, "drawn", None)  # nothing is drawn again
        assert launch(*PRIVATE, *GRID, "--best-of", "5", output=folder) == 0
    assert recorded == ["trial-1", "trial-2", "trial-2", "trial-3"]
    return folder


def model(folder, key):
    params = fp.load_model(folder, "dp_fed_avg", key).params
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "at", "key"), [(n, *drawn) for n, drawn in enumerate(DRAWN, 1)])
def test_a_trial_is_what_its_key_makes_of_the_data_of_seed_0(finished, n, at, key):
    noise = f"--noise-multiplier={at + 1}"
    made = quickstart.build(parse(quickstart, "quickstart", [*PRIVATE, "--seeds=1", noise]))
    entry, init, score = made.entries["dp_fed_avg"], made.model.init, made.model.score
    options = {"score": score, "rounds": 3, "every": 3, "seeds": [key]}
    history = fp.simulate(entry.algorithm, init, entry.federations, made.test, **options)
    params = np.concatenate([np.ravel(x) for x in jax.tree.leaves(history.params())])
    np.testing.assert_allclose(
        model(finished / "secret" / f"trial-{n}", key), params, rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_the_best_model_is_released_and_nothing_tells_of_the_others(finished, capsys):
    folders = [finished / "secret" / f"trial-{n}" for n in (1, 2, 3)]
    ends = [
        run_folder.read(folder).results.final["dp_fed_avg"]["accuracy"].mean for folder in folders
    ]
    models = [model(folder, key) for folder, (_, key) in zip(folders, DRAWN, strict=True)]
    assert not np.allclose(models[0], models[2], atol=1e-2)  # the same point, another key
    before = {f: f.read_bytes() for f in finished.glob("**/*") if f.is_file()}
    assert launch(*PRIVATE, *GRID, "--best-of", "5", "--json", output=finished) == 0
    shown = capsys.readouterr().out
    release, best = json.loads(shown), int(np.argmax(ends))
    assert json.loads((finished / "release" / "release.json").read_text()) == release
    assert release["value"] == ends[best]
    assert release["values"] == {"noise_multiplier": str(DRAWN[best][0] + 1)}
    np.testing.assert_array_equal(model(finished / "release", 0), models[best])
    assert launch(*PRIVATE, *GRID, "--best-of", "5", output=finished) == 0
    shown += capsys.readouterr().out
    assert not any(secret in shown for secret in ("trial-", str(2**63 - 1), str(finished)))
    assert len({f.stat().st_mtime for f in (finished / "release").rglob("*")}) == 1
    assert {f: f.read_bytes() for f in finished.glob("**/*") if f.is_file()} == before
    assert {f.name for f in finished.iterdir()} == {"secret", "release"}
    assert stat.S_IMODE((finished / "secret").stat().st_mode) == 0o700
    assert compare.main([str(finished)]) == 2  # of it a table would tell of the others
    assert "trial" not in "".join(capsys.readouterr())


@pytest.mark.slow
def test_the_certificate_is_that_of_dp_accounting(finished):
    """Three rounds of DP-FedAvg at the lower noise, Poisson cohorts of 3 of 120 clients, composed by hand."""
    event = dp.PoissonSampledDpEvent(3 / 120, dp.GaussianDpEvent(1.0))
    once = dp.SelfComposedDpEvent(event, 3)
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(once, 5.0, 1))
    found = json.loads((finished / "release" / "release.json").read_text())["certified"]
    assert found["epsilon"] == pytest.approx(accountant.get_epsilon(0.01), rel=1e-6)
    means = [found[name] for name in ("view", "unit", "relation", "basis")]
    assert means == ["third_party", "client", "add_or_remove", "constructed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([*GRID, "--best-of", "6"], "best_of 5.0 there, 6.0 here"),
        (["--grid", "noise-multiplier=1,2,4", "--best-of", "5"], "1 2 there, 1 2 4 here"),
        ([*GRID, "--best-of", "5", "--clip-norm", "2"], "clip_norm 1.0 there, 2.0 here"),
        (GRID, "is there and holds no sweep"),
    ],
)
def test_another_choice_is_not_mixed_in(finished, args, told, capsys):
    before = {f: f.read_bytes() for f in finished.glob("**/*") if f.is_file()}
    assert launch(*PRIVATE, *args, output=finished) == 2
    assert told in capsys.readouterr().err
    assert {f: f.read_bytes() for f in finished.glob("**/*") if f.is_file()} == before


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("")
    assert launch(*PRIVATE, *GRID, "--best-of", "5", output=tmp_path) == 2
    assert "holds no sweep --best-of; choose another folder" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_is_released_if_every_trial_diverges(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(best_of, "drawn", lambda *_: [(0, 1)])
    grid = ["--grid", "noise-multiplier=1e30,2e30"]
    assert launch(*PRIVATE, *grid, "--best-of", "2", output=tmp_path) == 0
    assert "every trial has diverged" in capsys.readouterr().out
    assert not (tmp_path / "release").exists()
