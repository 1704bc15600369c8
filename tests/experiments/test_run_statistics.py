"""--statistics: a share of the target epsilon goes to mean and variance of the features, and training gets the rest."""

import json
import math
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import optax
import pytest
from resumed import SMALL, assert_same, launch

import fedpriv as fp
from configs import quickstart
from fedpriv import experiments
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.commands import privacy
from fedpriv.experiments.config import statistics
from fedpriv.experiments.config.ledger import Entry, Ledger, image, text
from fedpriv.experiments.config.made import experiment_of, ledger_of
from fedpriv.experiments.config.statistics import axis_of, limits_of, planned
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.terminal import table
from fedpriv.experiments.training import statistics as training_statistics
from fedpriv.experiments.training.shared_arrays import SharedArrays

pytestmark = [
    pytest.mark.usefixtures("quick_to_compile"),
    pytest.mark.filterwarnings("ignore:.*noise hides the number"),  # of few clients
]

CONFIG = replace(
    quickstart.settings,
    clients=30,
    cohort=6,
    rounds=4,
    algorithms=("fed_avg", "dp_fed_avg"),
    target_epsilon=2.0,
    statistics=0.25,
)
RUN = [*SMALL, "--algorithms", "fed_avg", "rand_k", "--rounds", "4", "--every", "2"]
RUN += ["--seeds", "2", "--target-epsilon", "8", "--statistics", "0.25"]
RUN += ["--statistics-bounds", "image=0:255"]


def test_statistics_and_training_are_composed():
    """By dp-accounting, from the multipliers alone."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    ledger = ledger_of(quickstart, replace(CONFIG, delta=1e-3, capacity=30))  # no cut
    alone = PLDAccountant().compose(
        GaussianDpEvent(ledger.statistics("dp_fed_avg").noise_multiplier)
    )
    assert alone.get_epsilon(1e-3) == pytest.approx(0.25 * 2, rel=1e-3)
    then = GaussianDpEvent(CONFIG.noise_multiplier)
    both = alone.compose(PoissonSampledDpEvent(6 / 30, then), 4)
    assert ledger.certify("dp_fed_avg", 4).epsilon == pytest.approx(
        both.get_epsilon(1e-3), rel=1e-3
    )


@pytest.mark.slow
def test_statistics_cost_their_share_and_give_no_epsilon_to_what_has_none():
    ledger = ledger_of(quickstart, CONFIG)
    assert ledger.of_statistics("dp_fed_avg", "third_party").epsilon == pytest.approx(0.5, rel=1e-3)
    assert math.isinf(ledger.certify("fed_avg", 4).epsilon)
    assert "(training)" in ledger.certify("fed_avg", 4).why_infinite()
    assert not ledger.claim("dp_fed_avg", 4).sound


@pytest.mark.slow
def test_neighbours_of_the_statistics_are_those_of_the_training():
    """Of cohorts of one size a client is replaced, which moves a sum twice as far."""
    for view, relation in (("third_party", "replace_one"), ("server_secagg", "zero_out")):
        config = replace(CONFIG, sampling="fixed_size", view=view)
        ledger = ledger_of(quickstart, config)
        both = (
            ledger.certify("dp_fed_avg", 4, view=view),
            ledger.of_statistics("dp_fed_avg", view),
        )
        assert {c.relation for c in both} == {relation}
        assert both[1].epsilon == pytest.approx(0.5, rel=1e-3)


def ledger_of_few(sampler, **whose):
    """Of ten clients with four pictures each, of which statistics cost a quarter."""
    rng = np.random.default_rng(0)
    pictures = {
        "image": rng.integers(0, 256, (40, 4, 4, 1)).astype(np.uint8),
        "label": rng.integers(0, 3, 40).astype(np.int32),
    }
    model = fp.models.classifier(fp.models.LogisticRegression(3), (4, 4, 1))
    training = fp.dp_fed_avg(
        model.loss,
        sampler=sampler,
        batches=fp.full_batch(),
        optimizer=lambda t: optax.sgd(0.1),
        clip_norm=1.0,
        noise_multiplier=3.0,
    )
    clients = np.split(np.arange(40), 10)
    federation = fp.Federation.from_arrays(
        {**pictures, **whose}, clients, person=next(iter(whose), None)
    )
    plan = partial(planned, federation=federation, settings=CONFIG, delta=1e-3)
    return Ledger({"it": Entry(training, [federation], statistics=plan)}, 1e-3, model.init)


@pytest.mark.slow
def test_public_groups_pay_for_the_same_statistics():
    """Beside what each group's own rate costs."""
    own = {name: fp.poisson(5, rate, 5) for name, rate in (("a", 0.3), ("b", 0.6))}
    ledger = ledger_of_few(fp.grouped(["a"] * 5 + ["b"] * 5, own))
    of = ledger.certify("it", 3).of_groups
    for name, rate in (("a", 0.3), ("b", 0.6)):
        alike = ledger_of_few(fp.poisson(10, rate, 10)).certify("it", 3)
        assert of[name].epsilon == pytest.approx(alike.epsilon, rel=1e-3)
    assert ledger.of_statistics("it", "third_party").epsilon == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("draw", ["clients", "persons"])
def test_statistics_of_persons_cost_persons_their_share(draw):
    """All of whose clients count at once: of two each the multiplier is half as large."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    of = {"person": np.repeat(np.arange(5), 8)}
    ledger = ledger_of_few(fp.poisson(10, 0.3, 10), **of)
    if draw == "persons":
        (federation,) = ledger.entries["it"].federations
        ledger = ledger_of_few(fp.by_person(fp.poisson(5, 0.3, 5), federation), **of)
    noise = ledger.statistics("it").noise_multiplier
    alone = PLDAccountant().compose(GaussianDpEvent(noise / 2)).get_epsilon(1e-3)
    assert alone == pytest.approx(0.25 * 2, rel=1e-3)
    assert ledger.of_statistics("it", "third_party").epsilon == pytest.approx(alone, rel=1e-3)
    whole = ledger.certify("it", 3)
    assert whole.unit == "person"
    assert alone < whole.epsilon < np.inf


@pytest.mark.slow
def test_statistics_of_a_persons_records_count_all_of_them():
    """Two records of a person move a sum by 2, and the noise of four hospitals hides them: half of it does."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    table = {"x": np.zeros((80, 2), np.float32), "y": np.zeros(80, np.float32)}
    rows, person = np.arange(80).reshape(4, 20), np.arange(80) % 40
    federation = fp.Federation.from_arrays(table, rows, person=person)
    gradients = fp.per_example(lambda w, e: (e["x"] @ w - e["y"]) ** 2)
    steps = fp.LocalSteps(
        gradients, fp.poisson(20, 0.1, 20), 2, lambda t: optax.sgd(0.1), fp.gaussian(1.0, 2.0)
    )
    settings = replace(CONFIG, statistics_bounds=("x=-5:5",))
    plan = partial(planned, federation=federation, settings=settings, delta=1e-3)
    training = fp.dp_sgd(steps, sampler=fp.everyone(4))
    entries = {"it": Entry(training, [federation], statistics=plan)}
    found = Ledger(entries, 1e-3, np.zeros(2, np.float32)).statistics("it")
    assert list(found.features.asked) == ["x"]
    event = GaussianDpEvent(found.noise_multiplier * np.sqrt(4) / 2)
    alone = PLDAccountant().compose(event).get_epsilon(1e-3)
    assert alone == pytest.approx(0.25 * 2, rel=1e-3)


def test_a_persons_groups_leave_no_place_for_statistics():
    own = {name: fp.poisson(5, rate, 5) for name, rate in (("a", 0.3), ("b", 0.6))}
    grouped = fp.grouped(["a", "b"] * 5, own)
    ledger = ledger_of_few(grouped, person=np.repeat(np.arange(5), 8))
    with pytest.raises(ValueError, match=r"^statistics: 0\.25; a person's clients [^\n]*$"):
        ledger.certify("it", 3)


@pytest.fixture
def unsolved(monkeypatch):
    """More noise than the target takes, which need not be sought."""
    monkeypatch.setattr(budget, "noise_for", lambda *_, **__: 5.0)


@pytest.mark.slow
@pytest.mark.usefixtures("unsolved")
def test_privacy_shows_the_statistics_beside_the_whole(capsys):
    args = ["quickstart", "--algorithms", "dp_fed_avg", "--rounds", "4", "--json"]
    args += ["--target-epsilon", "2", "--statistics", "0.25"]
    assert privacy.main(args) == 0
    found = json.loads(capsys.readouterr().out)
    (third,) = [c for c in found["certified"] if c["view"] == "third_party"]
    assert 0.5 < third["epsilon"] <= 2
    assert found["statistics"]["third_party"]["epsilon"] == pytest.approx(0.5, rel=1e-3)


def test_what_cannot_be_normalised_is_refused_in_one_line():
    assert limits_of(image(8, 8, 3), None) == {"image": (0.0, 255.0)}
    assert axis_of((8, 8, 3)) == (0, 1)  # by channel
    assert axis_of((60, 1, 1)) == axis_of(()) == ()
    scaled = image(8, 8, 1, dtype=np.float32)
    with pytest.raises(ValueError, match=r"^statistics: .* give --statistics-bounds LOW HIGH"):
        limits_of(scaled, None)
    with pytest.raises(ValueError, match=r"^statistics: 'text mask'; no leaf of the examples"):
        limits_of(text(5), (0.0, 1.0))


def test_each_feature_has_bounds_of_its_own():
    """Those that are named are normalised, and no other; each interval is one of numbers."""
    number = np.zeros((), np.float32)
    columns = {"age": number, "lab": number, "there": number, "label": np.zeros((), np.int32)}
    assert limits_of(columns, (0.0, 1.0)) == dict.fromkeys(["age", "lab", "there"], (0.0, 1.0))
    named = limits_of(columns, ("lab=0:300", "age=-1e2:110"))
    assert named == {"lab": (0.0, 300.0), "age": (-100.0, 110.0)}
    with pytest.raises(ValueError, match=r"^statistics_bounds: 'label'; name features [^\n]*$"):
        limits_of(columns, ("label=0:1",))


@pytest.mark.slow
def test_where_there_is_nothing_to_share_it_is_said_in_one_line():
    with pytest.raises(ValueError, match=r"^statistics: 0\.25; none of fed_avg has an epsilon"):
        budget.solved(quickstart, replace(CONFIG, algorithms=("fed_avg",)))


@pytest.mark.slow
def test_statistics_are_not_part_of_a_best_of(monkeypatch):
    """Refused before any noise is sought."""
    monkeypatch.setattr(budget, "noise_for", None)
    monkeypatch.setattr(statistics, "least_noise", None)
    given = {"algorithms": ("dp_fed_avg",), "target_epsilon": 2.0, "statistics": 0.1}
    with pytest.raises(ValueError, match=r"^best_of: [^\n]*$"):
        experiments.privacy("quickstart", best_of=3, rounds=2, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "whole"
    assert launch(*RUN, "--output", folder) == 0
    return folder


@pytest.mark.slow
def test_a_run_keeps_what_it_released_and_its_epsilon_counts_it(whole):
    run = read(whole)
    first, second = run.statistics.values()
    assert first == second  # of the same clients
    certified = run.certificates["rand_k"]["third_party"]
    assert certified.epsilon == pytest.approx(8, rel=1e-3)
    assert certified.epsilon <= 8
    assert first.certified.epsilon == pytest.approx(2, rel=1e-3)
    report = run.summary.privacy["rand_k"]
    assert report.statistics["third_party"] == first.certified
    assert f"multiplier {first.noise_multiplier:.4g}" in certified.event
    data = fp.datasets.load("digits")
    of = first.features["image"]
    assert abs(of.mean[0] - data.train["image"].mean()) < 5 * of.mean_error[0]  # or once in 2e6
    images = fp.normalised(data.test, by=first.by)["image"]
    for seed, accuracy in enumerate(run.history["rand_k"].accuracy[-1]):
        trained = fp.models.load_model(whole, "rand_k", seed)
        right = trained.predict(images).argmax(-1) == data.test["label"]
        assert right.mean() == pytest.approx(accuracy)


@pytest.mark.slow
def test_a_run_and_its_report_say_what_was_spent_before_training(whole, tmp_path):
    said = " ".join(table(read(whole).summary).split())
    assert "statistics released before training, which alone cost 2 (third_party), 25 %" in said
    page = experiments.report(whole, tmp_path / "report.html").read_text()
    assert "of these the statistics, alone" in page


@pytest.mark.slow
def test_bounds_are_of_each_feature_or_of_all_in_older_files(whole, tmp_path):
    ours = read(whole).statistics["rand_k"]
    assert ours.bounds == {"image": (0.0, 255.0)}
    folder = shutil.copytree(whole, tmp_path / "older")
    content = json.loads((folder / "statistics.json").read_text())
    for of in content.values():
        of["bounds"] = [0.0, 255.0]
    (folder / "statistics.json").write_text(json.dumps(content))
    older = read(folder).statistics["rand_k"]
    assert older.relative_error == ours.relative_error
    assert [of.statistic.name for of in older.by] == [of.statistic.name for of in ours.by]


@pytest.mark.slow
def test_damage_is_said_in_one_line(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "copy")
    (folder / "statistics.json").write_text('{"rand_k": {"features": 3}}')
    with pytest.raises(ValueError, match=r"^[^\n]*statistics.json is damaged [^\n]*$"):
        _ = read(folder).statistics


@pytest.mark.slow
def test_a_run_that_goes_on_releases_nothing_again(whole, tmp_path, monkeypatch):
    """As if it had been killed in its second algorithm, which trains again."""
    folder = shutil.copytree(whole, tmp_path / "killed")
    (folder / "summary.json").unlink()
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:3]))
    monkeypatch.setattr(training_statistics, "_released", None)
    assert launch("--resume", folder) == 0
    assert (folder / "statistics.json").read_bytes() == (whole / "statistics.json").read_bytes()
    assert_same(folder, whole)


@pytest.mark.slow
@pytest.mark.usefixtures("unsolved")
def test_nothing_trains_on_what_is_not_yet_released(tmp_path, monkeypatch):
    """A statistic that cannot be kept is not used: training does not begin."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedpriv.experiments.runs.statistics.write_text", full)
    assert launch(*RUN, "--output", tmp_path / "run") != 0
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_all_seeds_train_on_the_clients_that_the_statistics_are_of():
    """Clients of top_k hold less, as some examples are the server's: statistics of others, with noise of their own."""
    little = {"target_epsilon": 100.0}  # noise, so that it is far below the variance
    config = replace(CONFIG, seeds=2, algorithms=("fed_avg", "dp_fed_avg", "top_k"), **little)
    given = SharedArrays().experiment(experiment_of(quickstart, config))
    made, found = training_statistics.on_normalised(given, config, {}, None)
    noise = {}
    for name, entry in made.entries.items():
        first, of = given.entries[name].federations[0], found[name].features["image"]
        assert entry.federations == [entry.federations[0]] * 2
        np.testing.assert_array_equal(entry.federations[0].rows, first.rows)
        for raw, normalised in (
            (first.examples["image"], entry.federations[0].examples["image"]),
            (given.test["image"], entry.test["image"]),
        ):
            wanted = (np.float64(raw) - of.mean[0]) / np.sqrt(of.variance[0])
            np.testing.assert_allclose(normalised, wanted, atol=1e-4)
        pixels = np.asarray(first.examples["image"], float).mean((1, 2, 3))
        held = zip(np.asarray(first.rows), np.asarray(first.size), strict=True)
        noise[name] = of.mean[0] - np.mean([pixels[rows[:n]].mean() for rows, n in held])
    assert found["dp_fed_avg"] == found["fed_avg"]
    assert abs(noise["top_k"] - noise["fed_avg"]) > 1e-3 * of.mean_error[0]
