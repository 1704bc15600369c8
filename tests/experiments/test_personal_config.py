"""The config of personal models: what it holds out, and a metric of these records that the launcher shows."""

from dataclasses import replace

import numpy as np
import pytest
from prepared import write_random
from small import refused

from configs import personal
from fedpriv import experiments
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.terminal import table

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = {"clients": 6, "cohort": 3, "batch_size": 10, "rounds": 2, "every": 1, "seeds": 2}
NAME = "personal_accuracy_mean"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "fashion_mnist", train=90, test=20)
    return folder


@pytest.mark.slow
def test_a_metric_of_held_out_records_is_one_like_any_other(data_dir, tmp_path):
    """In the table, for stopping, and in the summary, which says that it is private."""
    run = experiments.run(
        "personal",
        algorithms=("dp_fed_avg", "fed_per"),
        metric=NAME,
        bound=0.7,
        patience=5,
        not_covered=(NAME,),
        data_dir=data_dir,
        folder=tmp_path / "run",
        **SMALL,
    )
    summary = read(run.folder).results
    assert summary.metric == NAME
    for name, history in run.history.items():
        assert NAME not in summary.final[name]
        assert summary.final_not_private[name][NAME].per_seed == pytest.approx(
            history.metric(NAME)[-1]
        )
        assert "held_out_accuracy_below_0.7" in summary.per_client_not_private[name]
    shared = run.history["dp_fed_avg"]
    assert shared.metric(NAME).tolist() == shared.metric("held_out_accuracy_mean").tolist()
    own = run.history["fed_per"]
    count = own.metric("personal_accuracy_trained")[-1]
    assert (count < 6).any()  # cohorts of about three, twice
    assert "personal_accuracy_trained" not in shared.names
    for by in (None, "client"):
        notes = experiments.table(run, metric=NAME, by=by).attrs["notes"]
        (told,) = (note for note in notes if "have trained models of their own" in note)
        assert f": {NAME}: {count.mean():.4g} of 6 clients" in told
    text = " ".join(table(summary).split())
    assert "mean of trained trained pooled" in text
    assert "personal_accuracy_mean: %, of each client's own model" in text
    assert "of the shared model on the records that single clients hold out" in text


def test_every_client_holds_out_its_share(data_dir):
    settings = replace(personal.settings, data_dir=data_dir, clients=6, cohort=3, seeds=2)
    first, other = experiment_of(personal, settings).entries["ditto"].federations
    assert np.unique(first.size).tolist() == [12]
    assert np.unique(first.held_out.size).tolist() == [3]
    assert not np.array_equal(first.held_out.rows, other.held_out.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "held_out_f1_mean"}, "^metric: there is no 'held_out_f1_mean'; the score"),
        ({"bound": 70.0}, r"^bound: 70 is no accuracy, which is in \[0, 1\]"),
        ({"held_out": 0.99}, "^count: 0.99; it leaves client 0 none of its 15 rows"),
    ],
)
def test_what_is_refused(changes, said, data_dir, tmp_path):
    with refused(said):
        experiments.run("personal", data_dir=data_dir, folder=tmp_path / "run", **SMALL | changes)
    assert not (tmp_path / "run").exists()


def test_holding_out_all_records_is_refused_before_data_are_read():
    settings = replace(personal.settings, held_out=0.9, clients=60_000)
    with refused(r"^held_out: 0.9; it leaves a client none of its 1 records"):
        personal.ledger(settings)
