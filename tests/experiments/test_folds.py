"""Folds of the training records: what they hold, that training does not see them, and which point is chosen by them."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiers

import configs.race
import fedpriv as fp
from configs import dp_scaffold_synthetic, quickstart
from fedpriv import experiments
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config.experiment import Experiment, federations
from fedpriv.experiments.config.folds import held_out, without_fold
from fedpriv.experiments.config.ledger import Entry
from fedpriv.experiments.config.made import experiment_of, ledger_of
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.search import choose
from fedpriv.experiments.search.choose import Score

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def numbered(keys=None):
    """Records that are their own numbers; test records are negative."""
    train = {"image": np.arange(103)[:, None], "label": np.arange(103) % 10}
    test = {"image": -np.arange(1, 9)[:, None], "label": np.zeros(8, int)}
    return Dataset("numbers", train, test, 10, keys)


@pytest.mark.parametrize("keys", [None, np.repeat([5, 2, 9, 1], [4, 58, 40, 1])])
@pytest.mark.parametrize("n", [2, 5])
def test_folds_are_parts_of_the_training_records_and_leave_every_client_some(keys, n):
    parts = [without_fold(numbered(keys), (k, n)) for k in range(1, n + 1)]
    held = [p.test["image"][:, 0].tolist() for p in parts]
    alone = [] if keys is None else [102]  # a client's only record
    assert sorted(sum(held, alone)) == list(range(103))
    for part, out in zip(parts, held, strict=True):
        kept = part.train["image"][:, 0].tolist()
        assert sorted(kept + out) == list(range(103))
        assert np.array_equal(part.train["label"], part.train["image"][:, 0] % 10)
        if keys is not None:
            assert np.array_equal(part.keys, keys[kept])
            assert set(part.keys) == set(keys)
            assert abs(np.sum(keys[out] == 2) - 58 / n) < 1


def test_no_fold_is_all_of_the_data_and_an_empty_one_is_refused():
    data = numbered()
    assert without_fold(data, None) is data
    with pytest.raises(ValueError, match="fold: part 1 of 200 holds no record; use fewer parts"):
        without_fold(data, (1, 200))


PERSON = np.random.default_rng(3).integers(0, 40, 103)
PAIRS = np.stack([PERSON, np.where(np.arange(103) % 4, -1, (PERSON + 1) % 40)], axis=1)


@pytest.mark.parametrize("persons", [PERSON, PAIRS], ids=["one", "several"])
@pytest.mark.parametrize("keys", [None, np.arange(103) % 3])
def test_folds_keep_persons_whole(persons, keys):
    """Each person is in one fold; with one person a record, so is each record."""
    data = numbered(keys)._replace(persons=persons)
    seen = []
    for k in (1, 2, 3):
        part = without_fold(data, (k, 3))
        kept, held = (of["image"][:, 0] for of in (part.train, part.test))
        assert np.array_equal(part.persons, persons[kept])
        whose = [set(persons[rows].ravel().tolist()) - {-1} for rows in (held, kept)]
        assert whose[0]
        assert not whose[0] & whose[1]
        assert keys is None or set(part.keys) == set(keys)
        seen += held.tolist()
        assert persons.ndim == 2 or len(held) + len(kept) == 103
    assert len(seen) == len(set(seen))
    assert persons.ndim == 2 or len(seen) == 103


def test_a_fold_that_would_split_persons_is_refused():
    """Where only a federation knows whose each record is; and a fold that takes all that a client has."""

    class OfPersons:
        settings = quickstart.settings

        @staticmethod
        def load(settings):
            return numbered(np.arange(103) % 3)

        @staticmethod
        def on(settings, data):
            rows = fp.partition.natural(data.keys)
            whose = PERSON[: len(data.keys)]
            federation = fp.Federation.from_arrays(data.train, rows, person=whose)
            entries = {"fed_avg": Entry(None, [federation])}
            return Experiment(None, data.test, delta=1e-5, entries=entries)

    of = changed(quickstart.settings, {"fold": (1, 3)})
    assert experiment_of(OfPersons, quickstart.settings).entries
    with pytest.raises(ValueError, match=r"^fold: it would split persons, .* Dataset"):
        experiment_of(OfPersons, of)


def test_federations_of_a_data_set_with_persons_hold_out_whole_ones():
    data = numbered()._replace(persons=PERSON)
    rows = np.array_split(np.arange(103), 3)
    how = {"held_out": 0.3, "per_person": 2}
    each = federations(data, 2, lambda rng: rows, **how)
    for one in each:
        (trained,), (out,) = one.rows_on_host, one.held_out.rows_on_host
        whose = np.bincount(PERSON[trained.rows])
        assert whose.max() == 2
        assert not np.intersect1d(PERSON[trained.rows], PERSON[out.rows]).size
        assert one.examples is each[0].examples
    time = np.arange(103)
    with pytest.warns(UserWarning, match=r"^held_out: \d+ of \d+ persons who are trained on"):
        (later,) = federations(data, 1, lambda rng: rows, held_out=0.3, time=time)
    (trained,), (out,) = later.rows_on_host, later.held_out.rows_on_host
    ends = (np.cumsum(of.size)[:-1] for of in (trained, out))
    parts = (np.split(of.rows, end) for of, end in zip((trained, out), ends, strict=True))
    assert all(own.max() < last.min() for own, last in zip(*parts, strict=True))


NATURAL = {"dataset": "synthetic", "clients": 20, "cohort": 4, "public_examples": 20}
CONFIGS = {
    "one pool": (quickstart, {"clients": 12, "cohort": 4, "local": {"epochs": 1}}, "dp_fed_avg"),
    "natural clients, of whom some are public": (
        configs.race,
        {**NATURAL, "local": {"epochs": 1}},
        "top_k",
    ),
    "records as units": (
        dp_scaffold_synthetic,
        {"clients": 4, "records": 53, "client_rate": 0.5, "local_steps": 2, "warm_start": 0},
        "dp_fed_avg",
    ),
}


def settled(case, fold):
    module, settings, name = CONFIGS[case]
    settings = {**settings, "algorithms": (name,), "rounds": 2, "seeds": 1, "fold": fold}
    return module, changed(module.settings, settings), name


@tiers.every("case", CONFIGS)
def test_no_client_holds_a_record_of_the_fold(case):
    module, config, name = settled(case, (3, 3))
    made = experiment_of(module, config)
    assert made.own_test
    (federation,) = made.entries[name].federations
    rows = np.concatenate(
        [own[:n] for own, n in zip(federation.rows, federation.size, strict=True)]
    )
    held = {row.tobytes() for row in np.asarray(made.test["image"])}
    images = np.asarray(federation.examples["image"])
    assert held
    assert not held & {images[row].tobytes() for row in rows}


@pytest.mark.slow
def test_nothing_of_the_fold_or_of_the_test_records_is_trained_on(monkeypatch):
    """Of one config; what clients hold is above."""
    module, config, name = settled("one pool", (3, 3))
    load = module.load

    def trained():
        """(parameters, loss on the fold, images of the fold)."""
        made = experiment_of(module, config)
        assert made.own_test
        entry = made.entries[name]
        options = {"score": made.model.score, "rounds": 2, "every": 2}
        history = fp.simulate(
            entry.algorithm, made.model.init, entry.federations, made.test, **options
        )
        loss = history.evaluations[-1].metrics["loss"]
        return jax.tree.leaves(history.params()), loss, np.asarray(made.test["image"])

    params, loss, images = trained()
    held = {row.tobytes() for row in images}

    def changed_records(config):
        """Other images in the fold; no test records at all."""
        data = load(config)
        other = [row.tobytes() in held for row in np.asarray(data.train["image"])]
        images = np.where(np.reshape(other, (-1, 1, 1, 1)), 7, data.train["image"])
        images = images.astype(data.train["image"].dtype)
        return data._replace(train={**data.train, "image": images}, test={})

    monkeypatch.setattr(module, "load", changed_records)
    others, other_loss, _ = trained()
    for ours, theirs in zip(params, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loss != other_loss


@tiers.every("case", CONFIGS)
def test_a_fold_costs_what_its_config_says_without_data(case):
    module, config, name = settled(case, (3, 3))
    ledgers = ledger_of(module, config), experiment_of(module, config).ledger
    assert ledgers[0].certify(name, 2) == ledgers[1].certify(name, 2)


def test_a_config_that_builds_in_one_piece_is_refused():
    own = SimpleNamespace(build=lambda settings: None)
    with pytest.raises(ValueError, match=r"^fold: the config has only build, .* by load and on$"):
        experiment_of(own, changed(quickstart.settings, {"fold": (1, 3)}))


def score(algorithm, value, *folds, metric="accuracy"):
    return Score(algorithm, {"p": value}, metric, Spread.of(np.array(folds)) if folds else None)


def test_the_best_mean_of_each_algorithm_is_chosen():
    found = [score("a", "1", 0.9, 0.1), score("a", "2", 0.6, 0.6), score("b", "1", 0.2, 0.2)]
    found += [score("a", "3"), score("b", "2", 0.1, 0.2), score("c", "1")]
    won = choose.chosen(found, ())
    assert {name: one.values["p"] for name, one in won.items()} == {"a": "2", "b": "1"}
    rows = choose.table(found, won, 2).rows
    assert [row[0] + row[1] for row in rows if row[-1] == "*"] == ["2a", "1b"]
    assert [row[2] for row in rows][:4] == [
        "50.00 ± 56.57",
        "60.00 ± 0.00",
        "20.00 ± 0.00",
        "diverged",
    ]
    errors = [score("a", "1", 0.4, 0.2, metric="error"), score("a", "2", 0.1, 0.2, metric="error")]
    assert choose.chosen(errors, ())["a"].values["p"] == "2"
    assert choose.chosen(errors, ["error"])["a"].values["p"] == "1"


def test_a_metric_of_single_clients_is_not_said_to_be_of_the_fold():
    """They hold records out of their own, or train on them; neither are those of the fold."""
    for metric in (
        "personal_accuracy_mean",
        "held_out_loss_pooled",
        "per_client_accuracy_below_0.5",
    ):
        found = [score("a", "1", 0.9, 0.1, metric=metric)]
        assert "on records of single clients, which are not of the fold" in caption_of(found)
    assert "after the last round, on the fold that" in caption_of([score("a", "1", 0.9, 0.1)])


def caption_of(found):
    return choose.table(found, {}, 2).notes[0]


@pytest.mark.slow
def test_a_sweep_chooses_the_point_whose_models_are_best_on_what_they_did_not_see(tmp_path):
    """Scored anew by the models that it kept, on records that are held out here."""
    small = {"algorithms": ("fed_avg",), "rounds": 2, "seeds": 2, "clients": 12, "cohort": 6}
    rates = [1e-4, 0.1]
    swept = experiments.sweep(
        "quickstart",
        {"local.learning_rate": rates},
        folder=tmp_path / "s",
        folds=3,
        progress=False,
        **small,
    )
    data = fp.datasets.load("digits").train
    order, means = np.random.default_rng(0).permutation(len(data["label"])), []
    for rate in rates:
        folds = []
        for k in (1, 2, 3):
            rows = order[held_out(len(order), (k, 3))]
            folder = tmp_path / "s" / f"local.learning_rate={rate},fold={k}-3"
            models = [fp.models.load_model(folder, "fed_avg", seed) for seed in (0, 1)]
            right = [
                m.predict(data["image"][rows]).argmax(-1) == data["label"][rows] for m in models
            ]
            folds.append(np.mean(right))
        means.append(np.mean(folds))
        found = next(s for s in swept.scores if s.values["local.learning_rate"] == str(rate))
        np.testing.assert_allclose(found.spread.per_seed, folds, rtol=1e-6)
    assert swept.complete
    assert swept.chosen["fed_avg"].values == {"local.learning_rate": str(rates[np.argmax(means)])}
    assert len(swept.runs) == 6
    text = (tmp_path / "s" / "table.md").read_text()
    assert "no epsilon covers a choice by these scores" in text
    assert "compiled programs: 1 for 6 trainings" in text
