"""Intervals over clients, and tables with a line for each."""

import csv
import json
import shutil

import numpy as np
import pytest
from recorded import made
from scipy import stats
from small import refused

from fedpriv import experiments
from fedpriv.experiments.commands import compare
from fedpriv.experiments.tables.over_clients import ClientScores, over_clients


@pytest.fixture
def recorded():
    return made("clients")


def last(histories, name, metric):
    """f64[seeds, clients]."""
    return np.float64(histories[name].evaluations[-1].clients["held_out"].metrics[metric])


def ends(row, what):
    parts = ("low", "high", "bootstrap_low", "bootstrap_high")
    return [row[f"held_out_auc_mean_not_private_{what}_{part}"] for part in parts]


def test_intervals_are_those_of_scipy(recorded):
    """Of each client's mean over the seeds; differences client by client, without the client that has no AUC."""
    folder, histories = recorded
    frame = experiments.table(folder, metric="held_out_auc_mean", above="dp_fed_avg")
    row = frame.set_index("algorithm").loc["top_k"]
    own, rival = (last(histories, name, "auc").mean(0)[:-1] for name in ("top_k", "dp_fed_avg"))
    by_t = [
        stats.ttest_1samp(own, 0).confidence_interval(0.95),
        stats.ttest_rel(own, rival).confidence_interval(0.95),
    ]
    of = ("over_clients", "lead_over_clients")
    for values, t, what in zip((own, own - rival), by_t, of, strict=True):
        assert row[f"held_out_auc_mean_not_private_{what}_mean"] == pytest.approx(
            values.mean(), abs=1e-7
        )
        assert ends(row, what)[:2] == pytest.approx([t.low, t.high], abs=1e-7)
        drawn = stats.bootstrap((values,), np.mean, rng=np.random.default_rng(1))
        interval = drawn.confidence_interval  # of other resamples: the ends differ by their error
        error = values.std(ddof=1) / np.sqrt(len(values))
        assert ends(row, what)[2:] == pytest.approx([interval.low, interval.high], abs=0.2 * error)
        assert row[f"held_out_auc_mean_not_private_{what}_clients"] == 11
        assert row[f"held_out_auc_mean_not_private_{what}_undefined"] == 1
    again = experiments.table(folder, metric="held_out_auc_mean", above="dp_fed_avg")
    assert again.equals(frame)  # a fixed seed


def test_intervals_are_said_to_be_conditional_in_every_format(recorded, tmp_path, capsys):
    folder, _ = recorded
    given = ["--metric", "held_out_auc_mean", "--above", "dp_fed_avg", "--output", str(tmp_path)]
    assert compare.main([str(folder), *given]) == 0
    for said in (capsys.readouterr().out, (tmp_path / "table.tex").read_text()):
        said = " ".join(said.split()).lower()
        assert "conditional on the trained models" in said
        assert "over clients" in said
        assert "9,999 resamples" in said
        assert "1 undefined" in said


def test_what_an_interval_cannot_be_of():
    assert over_clients(np.array([0.5, 0.7]))[1:5] == (None,) * 4
    assert over_clients(np.array([0.5, 0.7, np.nan])).undefined == 1
    assert over_clients(np.full(3, np.nan)).text() == "undefined"
    assert over_clients(np.full(5, 0.5))[:5] == (0.5,) * 5
    assert over_clients(np.array([0.5, 0.7])).text(100) == "60.00 (too few clients)"
    assert over_clients(np.array([-1e-9, 0.0])).text(1, 4) == "0.0000 (too few clients)"


def test_a_client_that_has_diverged_leaves_no_interval(recorded, tmp_path):
    """The mean over clients says that it has; an interval over the others would not."""
    folder = shutil.copytree(recorded[0], tmp_path / "run")
    file, name = folder / "metrics.jsonl", "held_out_auc_mean"
    *lines, last_one = map(json.loads, file.read_text().splitlines())
    last_one["diagnostics_not_private"][name] = {
        "mean": "nan",
        "std": "nan",
        "per_seed": ["nan"] * 3,
    }
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, last_one]))
    frame = experiments.table(folder, metric=name, above="top_k").set_index("algorithm")
    diverged = last_one["algorithm"]
    assert frame[f"{name}_not_private_over_clients_low"].isna().to_dict() == {
        other: other == diverged for other in frame.index
    }
    assert f"{name}_not_private_lead_over_clients_mean" not in frame


def cut(lines):
    lines[-1] = lines[-1][:-30]


@pytest.mark.parametrize("change", [cut, lambda lines: lines.pop(), None])
def test_values_of_clients_are_those_of_the_last_evaluation(change, recorded, tmp_path):
    """An algorithm of which they are lost has none, and that is said; the file may be gone altogether."""
    folder = shutil.copytree(recorded[0], tmp_path / "run")
    file, name = folder / "clients.jsonl", "held_out_auc_mean"
    if change is None:
        file.unlink()
    else:
        lines = file.read_text().splitlines(keepends=True)
        change(lines)
        file.write_text("".join(lines))
    frame = experiments.table(folder, metric=name, above="top_k")
    lost = {"dp_fed_avg"} if change else {"dp_fed_avg", "top_k"}
    run, notes = experiments.runs.read(folder), " ".join(frame.attrs["notes"])
    assert len(run.remarks) == len(lost)
    for algorithm in lost:
        assert any(algorithm in remark for remark in run.remarks)
        assert any(remark in notes for remark in run.remarks)
    assert f"{name}_not_private_lead_over_clients_mean" not in frame
    if change is None:
        assert f"{name}_not_private_over_clients_low" not in frame
        with pytest.raises(ValueError, match=r"^by: .*no clients.jsonl: .*; restore it"):
            experiments.table(folder, by="client")
    else:
        known = frame.set_index("algorithm")[f"{name}_not_private_over_clients_low"].notna()
        assert known.to_dict() == {"top_k": True, "dp_fed_avg": False}
        each = experiments.table(folder, by="client", metric="auc")
        assert set(each["algorithm"]) == {"top_k"}
        assert run.remarks[0] in " ".join(each.attrs["notes"])
    assert not experiments.runs.read(recorded[0]).remarks


def test_clients_without_records_are_counted(recorded, tmp_path):
    folder = shutil.copytree(recorded[0], tmp_path / "run")
    file = folder / "clients.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        for of_seed in line["records_not_private"]:
            of_seed[0] = 0.0
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    frame = experiments.table(folder, by="client", metric="auc")
    assert len(frame) == 2 * 11
    assert sum("1 without such records" in note for note in frame.attrs["notes"]) == 2


def test_a_client_that_one_lacks_is_left_out_of_the_difference():
    """By seed: what is undefined in one seed alone counts by the others."""
    nan, ones = np.nan, np.ones(3)
    own = ClientScores(np.array([0, 1, 4]), ones, np.array([[0.5, 0.6, nan], [0.7, 0.6, 0.9]]))
    rival = ClientScores(np.array([1, 2, 4]), ones, np.array([[0.1, 0, 0.5], [nan, 0, 0.4]]))
    difference = own.above(rival)
    assert difference.clients.tolist() == [1, 4]
    assert difference.mean == pytest.approx([0.5, 0.5])


@pytest.mark.slow
def test_an_interval_over_clients_holds_the_truth_about_as_often_as_it_says():
    """Of 300 draws of 30 normal clients. Student's t is exact: 285 are expected, fewer than 269 or more than 297 once
    in 10^4. A bootstrap of 30 covers at least 0.93: fewer than 260, or more than 297, once in 10^4.
    """
    rng, by_t, by_bootstrap = np.random.default_rng(0), 0, 0
    for _ in range(300):
        found = over_clients(rng.normal(0.3, 1.0, 30))
        by_t += found.low <= 0.3 <= found.high
        by_bootstrap += found.bootstrap_low <= 0.3 <= found.bootstrap_high
    assert 269 <= by_t <= 297
    assert 260 <= by_bootstrap <= 297


def test_a_table_has_a_line_for_each_client(recorded, tmp_path, capsys):
    folder, histories = recorded
    frame = experiments.table(folder, by="client", metric=["auc", "accuracy"], above="dp_fed_avg")
    assert frame.groupby("algorithm", sort=False)["client"].apply(list).to_dict() == {
        name: list(range(0, 24, 2)) for name in histories
    }
    assert frame["records_not_private"].tolist() == [*range(1, 13)] * 2
    own, rival = (last(histories, name, "auc") for name in ("top_k", "dp_fed_avg"))
    rows = frame[frame["algorithm"] == "top_k"]
    np.testing.assert_allclose(rows["auc_not_private_mean"], own.mean(0), rtol=1e-6)
    np.testing.assert_allclose(rows["auc_not_private_std"], own.std(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(
        rows["auc_not_private_lead_mean"], (own - rival).mean(0), rtol=1e-4, atol=1e-7
    )
    assert rows["auc_not_private_seeds"].tolist() == [3] * 11 + [0]
    assert any("conditional on the trained models" in note for note in frame.attrs["notes"])
    given = ["--by", "client", "--metric", "auc", "--output", str(tmp_path)]
    assert compare.main([str(folder), *given]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("| run | algorithm | client | records | AUC, not private |")
    assert "| 22 | 12 | undefined |" in lines[11]
    with (tmp_path / "table.csv").open() as file:
        kept = list(csv.DictReader(file))
    assert len(kept) == 24
    first = last(histories, kept[0]["algorithm"], "auc")[:, 0]
    assert float(kept[0]["auc_not_private_mean"]) == pytest.approx(first.mean())
    tex = (tmp_path / "table.tex").read_text()
    assert len(tex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()) == 24


@pytest.mark.parametrize(
    ("metric", "columns"),
    [
        (None, ["accuracy_not_private_mean"]),
        ("held_out_auc_mean", ["auc_not_private_mean"]),
        ("auc", ["auc_not_private_mean"]),
    ],
)
def test_a_metric_over_clients_names_its_metric_there(metric, columns, recorded):
    frame = experiments.table(recorded[0], by="client", metric=metric)
    assert [name for name in frame if name.endswith("_mean")] == columns
    assert set(frame["kind"]) == {"held_out"}


def test_a_metric_that_no_client_has_is_refused():
    with refused("^metric: there is no 'loss'; there are accuracy, auc"):
        experiments.table(made("clients").path, by="client", metric="loss")
