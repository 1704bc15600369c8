"""Private numbers: none chooses a round in silence, and none stands under a name that does not say so."""

import json
import math
import re
import shutil
from dataclasses import dataclass, replace
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from reported import record_experiment

import fedpriv as fp
from fedpriv import experiments
from fedpriv.core.json_values import MARK
from fedpriv.experiments.commands import compare
from fedpriv.experiments.config import Entry, Experiment, Settings, public
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.config.stopping import decided
from fedpriv.experiments.runs.contents import Line, Summary
from fedpriv.experiments.runs.curves import frame
from fedpriv.experiments.runs.recorder import described
from fedpriv.experiments.runs.scalars import scalars
from fedpriv.experiments.tables import plots, terminal
from fedpriv.experiments.training import train as training
from fedpriv.privacy import VIEWS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

MODEL = fp.models.classifier(fp.models.LogisticRegression(2), np.zeros(3, np.float32), inputs="x")
OF_SCORE = ("accuracy", "loss")
OF_TEST = ("test[a]_accuracy_mean", "test_loss_worst_group")
HELD_OUT = ("held_out_accuracy_mean", "held_out[a]_loss_mean", "held_out_accuracy_below_0.5")
PRIVATE = (
    *("train_loss", "mean_update_norm", "not_finite_messages", "log_gap", "objective"),
    *("per_client_accuracy_mean", "personal_accuracy_mean", "personal_per_client_loss_median"),
    *("per_client[a]_accuracy_mean", "per_client_accuracy_worst_group"),
)


@dataclass(frozen=True)
class Own(Settings):
    """With a measure on training records, and what is said of test and held-out records."""

    own_test: bool = False
    """Whether the test records are the clients' own."""
    declared: bool = False
    """Whether what clients hold out is declared public."""
    spoofed: bool = False
    """Whether the measure has a public number's name."""


def build(settings):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    data = {"x": x, "label": (x[:, 0] > 0).astype(np.int32)}
    test = {name: column[:20] for name, column in data.items()}
    rows = np.split(np.arange(20, 60), 8)
    federation = fp.Federation.from_arrays(
        data, [own[:3] for own in rows], held_out=[own[3:] for own in rows]
    )
    algorithm = fp.dp_fed_avg(
        MODEL.loss,
        sampler=fp.poisson(8, rate=0.5),
        batches=fp.epochs(1, batch_size=3),
        optimizer=lambda t: optax.sgd(0.1),
        clip_norm=1.0,
        noise_multiplier=4.0,
    )
    name = OF_TEST[0] if settings.spoofed else "train_loss"

    def measured(state, federation):
        losses = jax.vmap(lambda example: MODEL.loss(state.params, example))
        return {name: losses(federation.examples).mean()}

    return Experiment(
        MODEL,
        test,
        1e-3,
        {"dp_fed_avg": Entry(algorithm, [federation] * settings.seeds)},
        measure=lambda: measured,
        own_test=settings.own_test,
        public_held_out=settings.declared,
        groups_of_test=["a", "b"] * 10,
    )


CONFIG = SimpleNamespace(settings=Own(rounds=3, every=1, per_client=4), build=build)


def trained(folder, **settings):
    return experiments.run(CONFIG, folder=folder, progress=False, **settings)


@pytest.mark.parametrize("own_test", [False, True])
@pytest.mark.parametrize("held_out", [False, True])
def test_what_is_known_to_be_public_is_public_and_nothing_else(own_test, held_out):
    known = Public(OF_SCORE, own_test, held_out)
    expected = dict.fromkeys((*OF_SCORE, *OF_TEST), not own_test)
    expected |= dict.fromkeys(HELD_OUT, held_out) | dict.fromkeys(PRIVATE, False)
    assert {name: name in known for name in expected} == expected
    assert {name: known.marked(name) == name for name in expected} == expected


@pytest.mark.parametrize("own_test", [False, True])
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("way", ["stop_at", "patience", "metric"])
def test_a_round_is_chosen_by_a_public_number_or_by_one_that_is_named(way, own_test, held_out):
    known = Public(OF_SCORE, own_test, held_out)
    for name in (*OF_SCORE, *OF_TEST, *HELD_OUT, *PRIVATE):
        given = {"stop_at": {"stop_at": f"{name}=0.5"}, "patience": {"patience": 3, "metric": name}}
        settings = given.get(way, {"metric": name})
        named = settings | {"not_covered": (name,)}
        if name in known:
            public.check(settings, known)
            with pytest.raises(ValueError, match=r"^not_covered: .*public"):
                public.check(named, known)
            assert public.by_what(settings, known) == {}
            continue
        if way == "metric":  # its last value is shown, and nothing is chosen
            public.check(settings, known)
        else:
            with pytest.raises(ValueError, match=rf"^{way}: .*--not-covered") as refused:
                public.check(settings, known)
            assert name in str(refused.value)
            assert "\n" not in str(refused.value)
        public.check(named, known)
        chosen = public.BEST if way == "metric" else public.LAST
        assert public.by_what(named, known) == {chosen: (name,)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"patience": 1, "metric": "train_loss"}, "patience: 1 by train_loss"),
        ({"stop_at": "held_out_accuracy_mean=0.5"}, "stop_at: held_out_accuracy_mean=0.5"),
        ({"patience": 1, "own_test": True}, "patience: 1 by accuracy"),
        ({"not_covered": ["loss"], "patience": 1, "metric": "loss"}, "not_covered: 'loss'; it is"),
        ({"not_covered": ["train_loss"]}, "not_covered: 'train_loss'; nothing is chosen by it"),
        (
            {"not_covered": ["loss"], "own_test": True, "metric": "loss", "target_epsilon": 1.0},
            "target_epsilon: 1.0; every epsilon is infinite with not_covered",
        ),
        (
            {"metric": OF_TEST[0], "spoofed": True},
            f"measure: '{OF_TEST[0]}'; it would be taken for",
        ),
    ],
)
def test_before_anything_is_trained_it_is_refused_in_one_line(settings, said, tmp_path):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        trained(tmp_path / "run", **settings)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


CHOICE = {"stop_at": "train_loss=100", "metric": "train_loss", "not_covered": ("train_loss",)}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run whose end the training loss chose, after the first of three rounds; recorded without training."""
    folder = tmp_path_factory.mktemp("private") / "run"
    settings = changed(CONFIG.settings, {**CHOICE, "seeds": 1})
    experiment = experiment_of(CONFIG, settings)
    record_experiment(
        folder, "own", settings, experiment, (1,), of_clients=4, measured={"train_loss": 1.0}
    )
    return experiments.runs.read(folder)


@pytest.mark.slow
def test_the_training_loss_ends_a_run(tmp_path):
    run = trained(tmp_path / "run", seeds=1, **CHOICE)
    assert run.summary.rounds == {"dp_fed_avg": 1}
    assert decided(run.summary.stopped["dp_fed_avg"]) == "train_loss"
    assert run.summary.not_covered == ("not covered: the last round was chosen by train_loss",)
    with pytest.raises(ValueError, match="not_covered"):  # nothing would be chosen by train_loss
        experiments.resume(run.folder, config=CONFIG, not_covered=[], progress=False)
    again = experiments.resume(run.folder, config=CONFIG, progress=False, metric="loss")
    assert again.summary.not_covered == run.summary.not_covered


def test_a_private_choice_is_repeated_wherever_an_epsilon_would_stand(
    stopped, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(plots, "save", lambda figure, paths: None)
    why = "not covered: the last round was chosen by train_loss"
    held = json.loads((stopped.path / "summary.json").read_text())
    assert held["not_covered"] == [why]
    assert why in held["privacy_notes"]
    assert held["settings"]["not_covered"] == ["train_loss"]
    assert json.loads((stopped.path / "config.json").read_text())["settings"]["not_covered"]
    for view in VIEWS:
        certificate = stopped.certificates["dp_fed_avg"][view]
        assert math.isinf(certificate.epsilon)
        assert certificate.assumptions[0] == why
    run = stopped
    assert run.history["dp_fed_avg"].not_covered == ("train_loss",)
    assert all(math.isinf(x.privacy.certified.epsilon) for x in run.lines["dp_fed_avg"])
    assert decided(run.summary.stopped["dp_fed_avg"]) == "train_loss"
    assert compare.main([str(stopped.path), "--best", "--output", str(tmp_path)]) == 0
    capsys.readouterr()
    table = experiments.table(stopped.path)
    assert table["not_covered"].tolist() == [why]
    assert np.isinf(table["certified_third_party_epsilon"]).all()
    for kind in ("md", "csv", "tex"):
        text = (tmp_path / f"table.{kind}").read_text().replace(r"\_", "_")
        assert why in text.replace("Not covered", "not covered")
    page = experiments.report(stopped.path, tmp_path / "page.html").read_text()
    assert f"is infinite: DP-FedAvg ({why})" in page  # and no assumption of what is not certified
    assert f"Nothing is certified: {why}.</p>" in page
    (account,) = experiments.privacy(CONFIG, **CHOICE)
    assert all(math.isinf(c.epsilon) for c in account.certificates)


@pytest.mark.slow
def test_noise_that_is_not_covered_is_not_called_no_noise(stopped, tmp_path, capsys):
    """Its epsilon is infinite, its noise is told, and of several runs those are named which are not covered."""
    settings = changed(CONFIG.settings, {"seeds": 1})
    covered = tmp_path / "covered"
    record_experiment(covered, "own", settings, experiment_of(CONFIG, settings), (1, 3))
    assert "  inf  " in terminal.table(stopped.summary)
    folders = [stopped.path, covered]
    assert compare.main([*map(str, folders), "--output", str(tmp_path)]) == 0
    one, other = (x for x in capsys.readouterr().out.splitlines() if "| DP-FedAvg |" in x)
    assert re.search(r"∞ \[.\] not covered", one)
    assert "∞" not in other
    assert r"$\infty$" in (tmp_path / "table.tex").read_text()
    (note,) = (x for x in experiments.table(folders).attrs["notes"] if "chosen by train_loss" in x)
    assert note.endswith(" (run)")
    drawn = experiments.figure(folders, tmp_path / "x.png", by="epsilon", metric="accuracy")
    assert "Not covered: " in drawn.caption
    assert "Not private" not in drawn.caption


def _check_named(held, known, of_clients=False):
    """Each number that is not public stands under a key that says so."""
    for *above, name in _leaves(held):
        said = any(key.endswith(MARK) for key in above) or name.endswith(MARK)
        metric = next((m for m in (*OF_SCORE, *OF_TEST, "train_loss") if m in (*above, name)), None)
        if metric:
            assert said or (metric in known and not of_clients), (above, name)
        if "mb" in name.split("_") or "second" in name or name == "seconds":
            assert said or name == "compile_seconds", (above, name)


def _recorded(folder):
    """The summary and every line, and whether it is of single clients."""
    yield json.loads((folder / "summary.json").read_text()), False
    for file in ("metrics.jsonl", "clients.jsonl"):
        for line in (folder / file).read_text().splitlines():
            yield json.loads(line), file == "clients.jsonl"


def test_every_number_of_a_folder_stands_under_a_name_that_says_what_it_is(stopped):
    for held, of_clients in _recorded(stopped.path):
        _check_named(held, Public(OF_SCORE), of_clients)


@pytest.mark.slow
def test_where_test_records_are_the_clients_own_nothing_is_public(tmp_path):
    settings = changed(CONFIG.settings, {"own_test": True, "seeds": 1})
    experiment = experiment_of(CONFIG, settings)
    more = {"of_clients": 4, "about": described(experiment, {}, {})}
    record_experiment(tmp_path / "run", "own", settings, experiment, (1, 3), **more)
    for held, of_clients in _recorded(tmp_path / "run"):
        _check_named(held, Public(OF_SCORE, own_test=True), of_clients)
        assert not held.get("best", {}).get("dp_fed_avg")


@pytest.mark.slow
def test_every_private_number_stands_under_a_name_that_says_so(tmp_path):
    """In every file of the folder, in sinks, and in tables; metrics of a public test set alone do not."""
    got = []
    sink = SimpleNamespace(write=got.append)
    run = trained(tmp_path / "run", metric="train_loss", sinks=[sink], record_private=True)
    known = Public(OF_SCORE)
    summary = json.loads((run.folder / "summary.json").read_text())
    for held, of_clients in [*_recorded(run.folder), *((one, False) for one in got)]:
        _check_named(held, known, of_clients)
    assert set(summary["best"]["dp_fed_avg"]) == set(OF_SCORE)
    assert summary["best_not_private"] == {}
    assert "train_loss" in summary["final_not_private"]["dp_fed_avg"]
    for name in (key for record in got for key in scalars(record)):
        said = name.endswith(MARK) or f"{MARK}/" in name or name.startswith("epsilon/")
        assert said or name.partition("/")[0] in known
    table = experiments.table(run, metric=["loss", "train_loss", *OF_TEST, HELD_OUT[0]])
    curves = set(run_curves := experiments.runs.read(run.folder).curves["metric"])
    assert len(run_curves) > len(curves)
    for name in ("loss", "train_loss", *OF_TEST, HELD_OUT[0]):
        assert f"{known.marked(name)}_final_mean" in table
        assert known.marked(name) in curves
    assert (run.folder / f"train_loss{MARK}.png").exists()


def test_a_private_number_of_a_public_ones_name_is_not_taken_for_it(stopped):
    """Such as a diagnostic of clients that is called like a metric of the score."""
    run = experiments.runs.read(stopped.path)
    line = run.lines["dp_fed_avg"][-1]
    (public,) = line.metrics["loss"].per_seed
    private = replace(line.metrics["loss"], per_seed=(public + 1,))
    named = replace(line, diagnostics_not_private={"loss": private})
    found = frame([named], run.begun).set_index("metric")["value"]
    assert (found["loss"], found[f"loss{MARK}"]) == (public, public + 1)


def _leaves(value, above=()):
    """The keys that lead to every value."""
    inside = value.items() if isinstance(value, dict) else ()
    for key, each in inside:
        yield from _leaves(each, (*above, key)) if isinstance(each, dict) else [(*above, key)]


def test_a_folder_of_an_older_version_is_read_with_its_numbers_in_place(stopped, tmp_path):
    """It had private metrics in `best` and `final`, and an epsilon though they had chosen the end."""
    folder = shutil.copytree(stopped.path, tmp_path / "run")
    old = json.loads((folder / "summary.json").read_text())
    for which in ("best", "final"):
        for name, spreads in old.pop(f"{which}_not_private").items():
            old[which][name] |= spreads
    finite = {
        view: c | {"epsilon": 1.0} for view, c in old["privacy"]["dp_fed_avg"]["certified"].items()
    }
    old["privacy"]["dp_fed_avg"]["certified"] = finite
    old |= {"privacy_notes": [], "best_note": "chosen on the test records"}
    for gone in ("not_covered", "of_score", "public_held_out"):
        del old[gone]
    (folder / "summary.json").write_text(json.dumps(_unmarked(old)))
    config = json.loads((folder / "config.json").read_text())
    for held in (old, config):
        del held["settings"]["not_covered"]
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("metrics.jsonl", "clients.jsonl"):
        each = [_unmarked(json.loads(x)) for x in (folder / file).read_text().splitlines()]
        (folder / file).write_text("".join(json.dumps(x) + "\n" for x in each))
    (folder / "summary.json").write_text(json.dumps(_unmarked(old)))
    found = experiments.runs.read(folder)
    assert isinstance(found.summary, Summary)
    assert isinstance(found.lines["dp_fed_avg"][-1], Line)
    assert set(found.summary.final["dp_fed_avg"]) == set(OF_SCORE)
    assert set(found.summary.final_not_private["dp_fed_avg"]) == {"train_loss"}
    assert found.summary.best_not_private == {}  # nobody had asked for it by name
    assert found.summary.not_covered == stopped.summary.not_covered
    assert all(math.isinf(c.epsilon) for c in found.certificates["dp_fed_avg"].values())
    assert found.client_lines[0].metrics.keys() == {"accuracy", "auc"}


def _unmarked(held):
    """As an older version wrote it, which marked two keys alone."""
    kept = ("diagnostics_not_private", "per_client_not_private", "not_finite_not_private")
    held = {key: each for key, each in held.items() if each or key != f"metrics{MARK}"}
    return {key if key in kept else key.removesuffix(MARK): each for key, each in held.items()}


@pytest.mark.slow
def test_a_run_with_a_secret_seed_names_each_sink_that_gets_private_numbers_once(
    tmp_path, capsys, monkeypatch
):
    """Before it trains."""

    class Mine:
        def write(self, record):
            pass

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_algorithms", stop)
    for private in (False, True):
        given = {"rounds": 1, "seeds": 1, "secret_seed": True, "record_private": private}
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / f"{private}", sinks=[Mine()], **given)
        said = [x for x in capsys.readouterr().err.splitlines() if x.startswith("note: ")]
        assert str(tmp_path / f"{private}") in said[0]
        assert ["Mine" in line for line in said[1:]] == [True] * private


@pytest.mark.slow
def test_held_out_records_that_are_declared_public_may_choose(tmp_path):
    given = {"seeds": 1, "declared": True, "stop_at": "held_out_accuracy_mean=0.01"}
    settings = changed(CONFIG.settings, given)
    experiment = experiment_of(CONFIG, settings)
    assert experiment.stopping(settings)
    more = {"of_clients": 4, "about": described(experiment, {}, {})}
    record_experiment(tmp_path / "run", "own", settings, experiment, (1, 3), **more)
    run = experiments.runs.read(tmp_path / "run")
    assert run.summary.not_covered == ()
    assert run.summary.public_held_out
    assert any("declared public" in note for note in run.summary.privacy_notes)
    assert math.isfinite(run.certificates["dp_fed_avg"]["third_party"].epsilon)
