"""`fedpriv audit --parts many_runs`: whole trainings with and without a canary, kept and gone on with."""

import json
import signal
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import beta
from small import classification, refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.canaries import SCORED_VIEWS, with_canaries
from fedpriv.devices.layout import Strategy
from fedpriv.experiments.attacks.audit import many_runs, repeated_training, whole_runs
from fedpriv.experiments.attacks.audit.canary import data_of
from fedpriv.experiments.attacks.audit.many_runs import _exact_pairs, certified_errors, seen_errors
from fedpriv.experiments.attacks.audit.mechanisms import exact_pair
from fedpriv.experiments.attacks.audit.repeated_training import NOTHING, Asked, KeptScores, Scored
from fedpriv.experiments.attacks.audit.whole_runs import Outcome, compiled_trainer
from fedpriv.experiments.commands import audit
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.training.prepare import built
from fedpriv.experiments.training.shared_arrays import SharedArrays

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = {"rounds": 2, "clients": 60, "cohort": 6, "local.epochs": 1, "noise_multiplier": 1.0}
ARGS = ["--parts", "many_runs", "--runs", "100", "--algorithms", "dp_fed_avg"]
ARGS += [
    word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))
]


@pytest.fixture
def untrained(monkeypatch):
    """Scores that depend on the seed alone, of no training at all; few draws choose thresholds."""
    monkeypatch.setattr(repeated_training, "compiled_trainer", lambda *_: (drawn_by_seed, 16))
    monkeypatch.setattr(many_runs, "CHOOSING", 2_000)


def drawn_by_seed(seeds) -> Outcome:
    each = [np.random.default_rng(int(seed)) for seed in seeds]
    present = np.array([rng.random() < 0.5 for rng in each])
    scores = np.array([rng.normal(size=3) for rng in each], np.float32).T
    return Outcome(present, scores, np.ones(len(each), bool))


def ask(capsys, *args):
    code = audit.main([*ARGS, *args])
    return code, capsys.readouterr()


def loaded(file):
    with np.load(file) as kept:
        return dict(kept)


def scored(runs: int, seed: int = 0) -> Scored:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(3, runs)).astype(np.float32)
    return Scored(rng.random(runs) < 0.5, scores, float(runs))


class TestKeptScores:
    SETTINGS = {"rounds": 2, "local": {"epochs": 1}}  # noqa: RUF012

    def test_what_is_kept_is_loaded(self, tmp_path):
        kept = KeptScores(tmp_path / "scores" / "a.npz", self.SETTINGS)
        assert kept.load() is NOTHING
        kept.save(scored(5))
        for mine, loaded in zip(scored(5), kept.load(), strict=True):
            np.testing.assert_array_equal(mine, loaded)
        assert [p.name for p in (tmp_path / "scores").iterdir()] == ["a.npz"]

    def test_scores_of_other_settings_are_refused(self, tmp_path):
        KeptScores(tmp_path / "a.npz", self.SETTINGS).save(scored(5))
        other = KeptScores(tmp_path / "a.npz", {"rounds": 3, "local": {"epochs": 1}})
        with refused(r"output: .*a.npz holds scores of other settings \(rounds: 2 then, 3 now\)"):
            other.load()

    @pytest.mark.parametrize("content", [b"", b"no zip", None])
    def test_a_damaged_file_is_refused(self, tmp_path, content):
        kept = KeptScores(tmp_path / "a.npz", self.SETTINGS)
        kept.save(scored(50))
        whole = kept.path.read_bytes()
        kept.path.write_bytes(whole[: len(whole) // 2] if content is None else content)
        with refused("output: .*a.npz is damaged"):
            kept.load()

    def test_the_first_runs_took_their_share_of_the_time(self):
        first = scored(10).first(4)
        assert (first.runs, first.scores.shape, first.seconds) == (4, (3, 4), 4.0)
        assert scored(3).first(4).runs == 3


def test_the_errors_that_are_seen_are_those_of_counts():
    """Against counts and beta quantiles of our own."""
    made = scored(400)
    present, absent = made.scores[0, made.present], made.scores[0, ~made.present]
    points = seen_errors(present, absent)
    assert len(points) > 5
    for point in points:
        x, n = point["false_positives"], len(absent)
        k = round(x["rate"] * n)
        assert x["rate"] == pytest.approx(k / n)
        assert x["low"] == pytest.approx(beta.ppf(0.025, k, n - k + 1) if k else 0.0)
        assert x["high"] == pytest.approx(beta.ppf(0.975, k + 1, n - k) if k < n else 1.0)
        threshold = np.sort(absent)[n - k] if k else np.inf
        assert point["false_negatives"]["rate"] == pytest.approx(
            (present < threshold).mean(), abs=0.01
        )


def test_the_certified_curve_is_that_of_a_gaussian_pair():
    from scipy.stats import norm

    everyone = fp.privacy.Everyone(10)
    seen = fp.privacy.declared("third_party", "client", 2.0, everyone, 1)
    certificate = fp.privacy.certify_seen([seen], 1e-5, "third_party")
    curve = certified_errors(certificate)
    rates = np.array(curve["false_positive_rates"])
    exact = norm.cdf(norm.isf(rates) - 0.5)
    np.testing.assert_allclose(curve["false_negative_rates"], exact, atol=2e-4)
    assert certified_errors(replace(certificate, epsilon=np.inf)) is None


def test_on_what_each_kind_of_canary_trains():
    federation, _, _ = classification()
    given = {"image": np.ones((3, 2, 2, 1)), "label": np.array([0, 1, 2])}
    assert data_of("worst_case", federation) is None
    assert data_of("natural", federation)(given) is given
    changed = data_of("mislabelled", federation)(given)
    assert changed["image"] is given["image"]
    np.testing.assert_array_equal(changed["label"], [1, 2, 0])
    bytes_ = fp.Federation.from_arrays({"label": np.array([0, 255], np.uint8)}, [[0, 1]])
    moved = data_of("mislabelled", bytes_)({"label": jnp.array([0, 7, 255], jnp.uint8)})["label"]
    assert moved.tolist() == [1, 8, 0]
    assert moved.dtype == jnp.uint8


@pytest.fixture(scope="module")
def experiment():
    _, module = modules.named("quickstart")
    settings = changed(module.settings, SMALL | {"algorithms": ("dp_fed_avg",)})
    return built(module, settings, {}, SharedArrays()), settings


@pytest.mark.slow
def test_the_runs_are_those_of_simulate(experiment):
    """Run s is the training of seed s on the first federation: the same coins and, up to rounding, scores."""
    made, settings = experiment
    entry, model = made.entries["dp_fed_avg"], made.model
    seen = made.ledger.trace("dp_fed_avg").seen(1)[0]
    algorithm = with_canaries(entry.algorithm, 1, seen)
    given = (algorithm, model.init(jax.random.key(3)), entry.federations[0])
    train, runs = compiled_trainer(*given, settings.rounds, Strategy())
    assert runs == whole_runs.CPU_RUNS * jax.local_device_count()
    seeds = np.arange(runs)
    outcome = train(seeds)
    assert outcome.finite.all()
    state = fp.simulate(
        *given, made.test, score=model.score, rounds=settings.rounds, every=2, seeds=range(runs)
    ).state
    np.testing.assert_array_equal(outcome.present, np.asarray(state.present)[:, 0])
    np.testing.assert_allclose(outcome.scores.T, state.scores[:, :, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_exact_pair_is_drawn_where_it_is_affordable(experiment, monkeypatch):
    made, settings = experiment
    traced = made.ledger.trace("dp_fed_avg")
    drawn = exact_pair(traced, "third_party", settings.rounds, 300, 0)
    other = exact_pair(traced, "third_party", settings.rounds, 300, 1)
    assert drawn.present.shape == (300,)
    assert not np.array_equal(drawn.present, other.present)
    fixed = best_thresholds(other, 1e-5, 0.05, runs=600)
    certified = made.ledger.certify("dp_fed_avg", settings.rounds).epsilon
    assert lower_bounds(drawn, 1e-5, 0.05, threshold=fixed).clopper_pearson <= certified * 2
    monkeypatch.setattr("fedpriv.experiments.attacks.audit.mechanisms.AFFORDABLE", 100)
    assert exact_pair(traced, "third_party", settings.rounds, 300, 0) is None


PAIRS = {
    "poisson": (fp.poisson(20, 0.5, 20), fp.gaussian(1.0, 1.0), False, True),
    "replaced": (fp.fixed_size(20, 10), fp.gaussian(1.0, 1.0), False, False),
    "laplace": (fp.everyone(20), fp.laplace(1.0, 1.0), False, False),
    "local": (fp.everyone(20), fp.gaussian(1.0, 1.0), True, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_thresholds_are_of_the_pair_only_where_scores_have_its_scale(name):
    """Others would guess "absent", or "present", nearly always, and show nothing."""
    sampler, used, local, fixed = PAIRS[name]
    make = fp.papers.ldp_fed_avg if local else fp.fed_avg
    algorithm = make(
        squared,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=used,
    )
    traced = fp.trace_round(algorithm, start(), regression([4] * 20))
    ledger = SimpleNamespace(trace=lambda name: traced)
    asked = Asked("", 200, (1e-3,), 0, None)
    limit, thresholds = _exact_pairs(ledger, "", 2, "third_party", asked)
    assert limit is not None
    assert (thresholds is not None) == fixed


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_rows_picture_and_going_on(capsys, tmp_path, monkeypatch):
    """Interrupted and gone on with, an audit finds what it finds in one go; with more runs it keeps the first."""
    folder, deltas = tmp_path / "a", ["--deltas", "5e-3", "1e-5"]
    code, shown = ask(capsys, *deltas, "--output", str(folder))
    assert code == 0
    assert "Many runs" in shown.out
    whole = json.loads((folder / "audit.json").read_text())["many_runs"]
    assert (folder / "audit.png").read_bytes()[:4] == b"\x89PNG"
    assert [row["views"] for row in whole] == [[view] for view in SCORED_VIEWS for _ in deltas[1:]]
    assert [row["certified"]["delta"] for row in whole] == [5e-3, 1e-5] * 3
    for row in whole:
        assert (row["algorithm"], row["runs"], row["rounds"]) == ("dp_fed_avg", 100, 2)
        audited = row["audited"]
        assert audited["method"] == "Clopper-Pearson"
        assert audited["surely"] <= audited["least"] <= row["certified"]["epsilon"]
        assert {"limit", "share", "estimate"} <= set(audited)
        assert ("errors" in audited) == (row["certified"]["delta"] == 5e-3)

    saved = []
    save = KeptScores.save

    def interrupt(kept, scores):
        save(kept, scores)
        saved.append(scores.runs)
        if len(saved) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(KeptScores, "save", interrupt)
    code, _ = ask(capsys, *deltas, "--output", str(tmp_path / "b"))
    assert code == 130
    assert len(saved) == 2
    assert not (tmp_path / "b" / "audit.json").exists()
    code, _ = ask(capsys, *deltas, "--output", str(tmp_path / "b"))
    assert code == 0
    assert saved[2] - saved[1] == saved[0]  # it began where it had stopped
    again = json.loads((tmp_path / "b" / "audit.json").read_text())["many_runs"]
    for row in (*whole, *again):
        del row["seconds"]
    assert again == whole

    first = np.load(folder / "scores" / "dp_fed_avg_worst_case.npz")["scores"]
    assert ask(capsys, "--runs", "130", "--output", str(folder))[0] == 0
    more = np.load(folder / "scores" / "dp_fed_avg_worst_case.npz")["scores"]
    assert more.shape[1] >= 130 > first.shape[1]
    np.testing.assert_array_equal(more[:, : first.shape[1]], first)
    code, shown = ask(capsys, "--rounds", "3", "--output", str(folder))
    assert code == 2
    assert "holds scores of other settings (" in shown.err
    assert "settings.rounds: 2 then, 3 now" in shown.err


@pytest.mark.slow
def test_weaker_canaries_have_rows_and_scores_of_their_own(capsys, tmp_path):
    kinds = ("natural", "mislabelled")
    args = ["--rounds", "1", "--canary", *kinds, "--output", str(tmp_path / "a")]
    code, shown = ask(capsys, *args)
    assert code == 0
    rows = json.loads((tmp_path / "a" / "audit.json").read_text())["many_runs"]
    said = [(row["canary"], row["views"][0]) for row in rows]
    assert said == [(kind, view) for kind in kinds for view in SCORED_VIEWS]
    assert all(row["audited"]["least"] <= row["certified"]["epsilon"] for row in rows)
    assert all(f"{kind}\n" in shown.out for kind in kinds)  # the last column
    files = sorted((tmp_path / "a" / "scores").iterdir())
    assert [file.stem for file in files] == [f"dp_fed_avg_{kind}" for kind in sorted(kinds)]
    mislabelled, natural = map(loaded, files)
    np.testing.assert_array_equal(mislabelled["present"], natural["present"])
    assert not np.array_equal(mislabelled["scores"], natural["scores"])
    assert json.loads(str(natural["settings"]))["canary"] == "natural"


@pytest.mark.slow
def test_of_records_one_is_the_canary(capsys):
    args = "dp_scaffold_synthetic --rounds 1 --warm-start 0 --clients 10 --client-rate 0.5 --records 50"
    args += " --local-steps 1 --algorithms dp_fed_avg --parts many_runs --runs 100 --json"
    code = audit.main(args.split())
    rows = json.loads(capsys.readouterr().out)["many_runs"]
    assert code == 0
    assert {row["certified"]["unit"] for row in rows} == {"record"}
    assert [row["views"][0] for row in rows] == list(SCORED_VIEWS)


@pytest.mark.slow
def test_a_model_that_is_not_finite_ends_it(capsys, monkeypatch):
    def failing(seeds):
        return drawn_by_seed(seeds)._replace(finite=np.arange(len(seeds)) != 3)

    monkeypatch.setattr(repeated_training, "compiled_trainer", lambda *_: (failing, 16))
    code, shown = ask(capsys)
    assert code == 1
    assert (
        shown.err.strip() == "error: diverged: dp_fed_avg: a model became NaN or infinite (seed 3)"
    )
