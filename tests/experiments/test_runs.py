"""Run folders as objects: what was recorded comes back, what is torn is remarked, what is damaged is named."""

import itertools
import json
import shutil

import jax
import numpy as np
import pytest
from recorded import made
from reported import ledger_of
from small import refused

from fedpriv import experiments
from fedpriv.core.json_values import plain, typed
from fedpriv.experiments.config import modules
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.runs.client_lines import read_client_lines, with_clients
from fedpriv.experiments.runs.run_folder import Line, Summary, read, read_lines
from fedpriv.experiments.tables.report import charts, tables
from fedpriv.experiments.tables.report.page import page
from fedpriv.privacy import VIEWS, Certificate, Claim


@pytest.fixture
def recorded():
    return made("private")


@pytest.fixture
def copied(tmp_path):
    return shutil.copytree(made("private").path, tmp_path / "run")


def test_what_was_recorded_comes_back(recorded):
    folder, histories = recorded
    run = read(folder)
    assert run.remarks == ()
    assert run.config == "quickstart"
    assert list(run.lines) == run.algorithms == list(histories)
    for name, history in histories.items():
        for line, e in zip(run.lines[name], history.evaluations, strict=True):
            again = line.evaluation()
            for field in ("accuracy", "loss", "uplink_mb", "downlink_mb"):
                np.testing.assert_allclose(getattr(again, field), getattr(e, field), rtol=1e-6)
            assert again.diagnostics.keys() == e.diagnostics.keys() | e.measures.keys()
            assert line.metric("log_gap").per_seed == tuple(e.measures["log_gap"])
    private = run.summary.privacy["top_k"]
    assert isinstance(private.claimed, Claim)
    assert isinstance(private.certified["server"], Certificate)
    assert run.lines["top_k"][-1].privacy.certified == private.certified["third_party"]
    assert run.lines["fed_avg"][-1].privacy.certified.epsilon == float("inf")


def test_the_files_are_the_objects_written_plainly(recorded):
    folder, _ = recorded
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        assert json.dumps(plain(typed(Line, json.loads(text)))) == text
    held = json.loads((folder / "summary.json").read_text())
    again = plain(typed(Summary, held))
    assert {name: again[name] for name in held} == held


def test_a_summary_says_what_its_numbers_rest_on(recorded):
    """Each certificate all that it assumes; a number chosen on the test set that it is."""
    folder, _ = recorded
    held = json.loads((folder / "summary.json").read_text())
    ledger = ledger_of("quickstart", modules.load("quickstart").settings)
    for name, report in held["privacy"].items():
        assert list(report["certified"]) == list(VIEWS)
        for view, written in report["certified"].items():
            certificate = ledger.certify(name, 20, view=view)
            assert written["assumptions"] == list(certificate.assumptions) != []
    names = list(held)
    assert names[names.index("best") + 1] == "best_note"
    assert "chosen on the test records" in held["best_note"]
    assert held["prng"] == str(jax.random.key_impl(jax.random.key(0)))


def test_a_summary_has_what_a_check_of_its_numbers_needs(recorded):
    """Its certificates are whole, and of this version; lines of a training say the version alone."""
    folder, _ = recorded
    held = json.loads((folder / "summary.json").read_text())
    ledger = ledger_of("quickstart", modules.load("quickstart").settings)
    for name, report in held["privacy"].items():
        for view, written in report["certified"].items():
            found = Certificate.from_json(json.dumps(written))
            assert found == ledger.certify(name, 20, view=view)
            assert found.profile().epsilon(found.delta) == found.epsilon
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        certified = json.loads(text)["privacy"]["certified"]
        assert certified["version"] == 1
        assert "compositions" not in certified


def test_a_summary_of_before_has_no_profile(copied):
    """Its certificates say no version, nor what was composed."""
    held = json.loads((copied / "summary.json").read_text())
    for report in held["privacy"].values():
        for written in report["certified"].values():
            del written["version"], written["compositions"]
    (copied / "summary.json").write_text(json.dumps(held))
    for name, report in read(copied).summary.privacy.items():
        for view, found in report.certified.items():
            assert found == read(made("private").path).summary.privacy[name].certified[view]
            with refused(
                "certificate: read from a file of an older version; certify again for its profile"
            ):
                found.profile()


@pytest.fixture(scope="module")
def of_clients(tmp_path_factory):
    """A run that goes on, which has no summary."""
    folder = shutil.copytree(made("clients").path, tmp_path_factory.mktemp("clients") / "run")
    (folder / "summary.json").unlink()
    return folder, made("clients").histories


def test_a_run_is_read_as_tidy_frames(of_clients):
    """Also one that goes on, which has no summary."""
    folder, histories = of_clients
    run = experiments.runs.read(str(folder))
    curves, e = run.curves, histories["top_k"].evaluations[-1]
    assert not any(isinstance(cell, dict | list) for cell in curves.to_numpy().ravel())
    names = {n: n for n in e.metrics}
    names |= {n: f"{n}_not_private" for n in [*e.diagnostics, *e.measures]}
    assert len(curves) == len(histories) * 2 * 3 * len(names)
    rows = curves[(curves["algorithm"] == "top_k") & (curves["round"] == 10)]
    for name, marked in names.items():
        own = rows[rows["metric"] == marked].sort_values("seed")
        np.testing.assert_array_equal(own["value"], np.float64(e.metric(name)))
        np.testing.assert_array_equal(own["uplink_mb_not_private"], e.uplink_mb)
    c = run.lines["top_k"][-1].privacy.certified
    said = rows[["epsilon", "delta", "unit", "view", "adjacency", "basis"]].drop_duplicates()
    of = [c.epsilon, c.delta, "client", "third_party", c.relation, c.basis]
    assert said.to_numpy().tolist() == [of]
    values = e.clients["held_out"]
    rows = run.clients[(run.clients["algorithm"] == "top_k") & (run.clients["round"] == 10)]
    assert set(rows["kind"]) == {"held_out"}
    assert set(rows["metric"]) == {"accuracy", "auc"}
    table = rows[rows["metric"] == "auc"].pivot(
        index="seed", columns="client", values="value_not_private"
    )
    np.testing.assert_array_equal(table.to_numpy(), values.metrics["auc"].astype(float))
    assert table.columns.tolist() == values.clients.tolist()
    np.testing.assert_array_equal(rows["records_not_private"].iloc[:36], values.records.ravel())


def test_values_of_clients_are_as_simulate_gave_them(of_clients):
    folder, histories = of_clients
    lines, damaged = read_client_lines(folder)
    assert not damaged
    for line in lines:
        (e,) = (e for e in histories[line.algorithm].evaluations if e.round == line.round)
        again = with_clients(e, [line]).clients["held_out"]
        for a, b in zip(
            jax.tree.leaves(again), jax.tree.leaves(e.clients["held_out"]), strict=True
        ):
            np.testing.assert_array_equal(a, b, strict=True)


def test_curves_do_not_read_the_values_of_clients(of_clients, tmp_path):
    folder = shutil.copytree(of_clients[0], tmp_path / "copy")
    file, expected = folder / "clients.jsonl", read(of_clients[0])
    whole = file.read_text()
    file.write_text(whole[:-30])  # cut off
    assert len(expected.clients) - len(read(folder).clients) == 2 * 3 * 12
    other_shape = whole.replace('"clients": [0, ', '"clients": [', 1)
    for bad in ("3\n", "{\n", other_shape, "[" * 10**5 + "\n"):
        file.write_text(bad + whole)
        run = read(folder)
        assert run.curves.equals(expected.curves)
        with pytest.raises(ValueError, match=r"clients.jsonl, line 1, is damaged \(.*\); remove"):
            _ = run.clients
    file.unlink()
    assert read(folder).clients.empty


def test_a_run_without_summary_or_evaluation(copied):
    (copied / "summary.json").unlink()
    run = read(copied)
    assert run.summary is run.environment is None
    (copied / "metrics.jsonl").unlink()
    assert read(copied).lines == {}
    assert "nothing was evaluated yet" in read(copied).remarks[0]


def test_a_torn_last_line_is_left_out_and_a_repeated_one_counts_once(copied):
    path = copied / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-40])
    run = read(copied)
    assert run.remarks == ("metrics.jsonl is cut off in line 12, which is left out",)
    assert [line.round for line in run.lines["top_k"]] == [5, 10]
    path.write_text(whole.rstrip("\n"))  # only its newline is missing
    assert [line.round for line in read(copied).lines["top_k"]] == [5, 10, 20]
    first = json.loads(whole.splitlines()[0])
    path.write_text(whole + json.dumps(first | {"seconds_not_private": 7.0}) + "\n")
    repeated = read(copied).lines[first["algorithm"]]
    assert [(line.round, line.seconds) for line in repeated] == [
        *[(5, 7.0), (10, 0.25), (20, 0.25)]
    ]


def test_a_run_that_goes_on_takes_the_lines_before_a_damaged_one(copied):
    path = copied / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\0\xff\n", *lines[3:]]))
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 4, is damaged .*; remove the line"):
        read_lines(copied)
    found, remark = read_lines(copied, tolerant=True)
    assert len(found) == 3
    assert "line 4" in remark


def keys_of(tree):
    """Those of all dictionaries in a JSON value, of a list those of its first entry."""
    if isinstance(tree, dict):
        return tuple((key, keys_of(value)) for key, value in tree.items())
    return keys_of(tree[0]) if isinstance(tree, list) and tree else ()


def leaves(tree, path=()):
    """Paths to everything in a JSON value; of entries with equal keys, as those of algorithms, to the first."""
    yield path
    entries = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree[:1] if isinstance(tree, list) else ())
    )
    alike = set()
    for key, value in entries:
        if keys_of(value) and keys_of(value) in alike:
            continue
        alike.add(keys_of(value))
        yield from leaves(value, (*path, key))


def changed(tree, path, value):
    if not path:
        return value
    copy = json.loads(json.dumps(tree))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [run_folder.CONFIG, run_folder.METRICS, run_folder.SUMMARY])
def test_whatever_a_field_holds_there_is_a_page_or_one_line(name, step, copied, monkeypatch):
    """Every field in turn, by default every sixth, replaced by something else; nothing is drawn."""
    monkeypatch.setattr(charts, "pictures", lambda drawn, ends: [])
    nothing = charts.Picture("k", "", "", [])
    monkeypatch.setattr(charts, "trade_off", lambda *_: nothing)
    monkeypatch.setattr(tables, "command", lambda run: None)
    path = copied / name
    held = json.loads(
        path.read_text().splitlines()[0] if name == run_folder.METRICS else path.read_text()
    )
    others = itertools.cycle([None, "x", [], {}, -1, 1e400, True, [1, 2, 3], {"a": 1}])
    said = []
    for at in [*leaves(held)][::step]:
        path.write_text(json.dumps(changed(held, at, next(others))) + "\n")
        try:
            page([read(copied)])
        except ValueError as error:
            said.append(str(error))
    assert said
    assert all(str(path) in text and "\n" not in text for text in said)
