"""Intervals of each client over its own records, and names of clients, in every table that shows single clients."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from recorded import made
from reported import tables, tree
from small import classification, refused

import fedpriv as fp
from fedpriv import experiments
from fedpriv.experiments.commands import compare
from fedpriv.experiments.config import Entry, Experiment
from fedpriv.experiments.runs.recorder import described
from fedpriv.experiments.runs.run_folder import read_all
from fedpriv.experiments.tables import by_client
from fedpriv.experiments.tables.over_clients import ClientScores


@pytest.fixture
def recorded():
    return made("clients")


def test_ends_are_the_means_of_the_seeds_own(recorded):
    """Also in the report; where a seed has no interval, or the metric is undefined, there is none."""
    folder, histories = recorded
    frame = experiments.table(folder, by="client", metric="auc")
    for name, history in histories.items():
        low, high = history.evaluations[-1].clients["held_out"].interval("auc")
        own = frame[frame["algorithm"] == name]
        np.testing.assert_allclose(own["auc_not_private_low"], low.mean(0), rtol=1e-5)
        np.testing.assert_allclose(own["auc_not_private_high"], high.mean(0), rtol=1e-5)
        inside = own.dropna(subset="auc_not_private_low")
        assert len(inside) == 11
        assert (inside["auc_not_private_low"] <= inside["auc_not_private_mean"]).all()
        assert (inside["auc_not_private_mean"] <= inside["auc_not_private_high"]).all()
    nan = np.nan
    ends = (
        np.array([[0.1, nan, 0.3], [0.3, 0.2, nan]]),
        np.array([[0.5, nan, 0.9], [0.7, 0.8, nan]]),
    )
    values = np.array([[0.3, 0.4, 0.5], [0.5, 0.6, nan]])
    scores = ClientScores(np.arange(3), np.ones(3), values, ends=ends)
    assert scores.own_interval(0) == pytest.approx((0.2, 0.6))
    assert scores.own_interval(1) is None
    assert scores.own_interval(2) == pytest.approx((0.3, 0.9))


def test_clients_have_their_names_and_are_counted(tmp_path, capsys):
    """In the frame, in the printed table, and on the page; also where a mean over clients is shown."""
    named = made("named clients").path
    names = json.loads((named / "config.json").read_text())["client_names"]
    frame = experiments.table(named, by="client", metric="auc")
    assert frame["client_name"].tolist() == [names[i] for i in range(0, 24, 2)] * 2
    assert frame["client"].tolist() == [*range(0, 24, 2)] * 2
    over = experiments.table(named, metric="held_out_auc_mean")
    for notes in (frame.attrs["notes"], over.attrs["notes"]):
        assert any("12 of the federation's 30 clients" in note for note in notes)
    assert compare.main([str(named), "--by", "client", "--metric", "auc"]) == 0
    assert "| ward 22 |" in capsys.readouterr().out
    page = tables(
        tree(experiments.report(named, tmp_path / "page.html", metric="held_out_auc_mean"))
    )
    head, *rows = page["Each client, after the last round"]
    assert [row[head.index("client")] for row in rows] == frame["client_name"].tolist()


@pytest.mark.parametrize("units", [("client",), ("person",), ("client", "person")])
def test_the_column_says_what_intervals_are_over(recorded, units):
    """Where the data say whose records are, certificates are of a person, and intervals over persons."""
    runs, _ = read_all([recorded.path])
    found = by_client.rows_with_clients(runs, "auc", None)

    def of(row, unit):
        report = row.summary.privacy[row.algorithm]
        certified = {v: replace(c, unit=unit) for v, c in report.certified.items()}
        privacy = row.summary.privacy | {row.algorithm: replace(report, certified=certified)}
        return row._replace(summary=replace(row.summary, privacy=privacy))

    of_units = [of(row, units[i % len(units)]) for i, row in enumerate(found)]
    (column,) = (c for c in by_client.grid(of_units).head if "(95 %)" in c)
    words = {"client": "records", "person": "persons"}
    assert column == f"over its {' or '.join(words[unit] for unit in units)} (95 %)"


def test_runs_of_older_versions_have_no_intervals(recorded, tmp_path):
    folder = shutil.copytree(recorded.path, tmp_path / "run")
    path, old = folder / "clients.jsonl", ("units", "errors", "shares")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if not k.startswith(old)} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    frame = experiments.table(folder, by="client", metric="auc")
    assert frame["auc_not_private_low"].isna().all()
    assert not any("over its records" in note for note in frame.attrs["notes"])
    damaged = [line | {"units_not_private": [[1.0]]} for line in kept]
    path.write_text("".join(json.dumps(line) + "\n" for line in damaged))
    with refused(r"line 1, is damaged \(units: \[1, 1\] is not seeds by clients"):
        experiments.table(folder, by="client", metric="auc")


def test_names_are_one_for_each_client():
    federation, test, model = classification(clients=3)
    algorithm = fp.fed_sgd(model.loss, sampler=fp.everyone(3), learning_rate=0.1)

    def experiment(names):
        return Experiment(
            model, test, 1e-3, {"a": Entry(algorithm, [federation])}, client_names=names
        )

    found = described(experiment(np.array(["x", "y", "z"])), {}, {})
    assert (found["num_clients"], found["client_names"]) == (3, ["x", "y", "z"])
    assert "client_names" not in described(experiment(None), {}, {})
    for names, said in ((["x", "y"], "2 names"), (["x", "y", "x"], "of its own")):
        with pytest.raises(ValueError, match=f"client_names: .*{said}"):
            _ = experiment(names).named_clients


def test_clients_are_all_measured_unless_fewer_are_asked_for():
    federation, _, model = classification(clients=24)
    state = fp.ModelState(model.init(jax.random.key(0)), 0)
    for asked, number in ((None, 24), (5, 5), (100, 24)):
        measure = fp.measures.per_client(model.score, clients=asked)
        assert len(jax.jit(measure)(state, federation)["per_client"].clients) == number
