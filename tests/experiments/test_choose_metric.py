"""Whatever was recorded is chosen after training, by one word, in every table, figure and page."""

import csv

import numpy as np
import pytest
from recorded import made
from reported import tables, text, tree
from tiers import every

from fedpriv import experiments
from fedpriv.engine.metric_words import with_unit
from fedpriv.experiments.commands import compare
from fedpriv.experiments.commands import report as report_command
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.runs.measured import heading
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.report import charts

PUBLIC = Public(("accuracy", "loss"))
METRICS = ("loss", "held_out_auc_mean", "held_out_accuracy_mean", "log_gap", "mean_update_norm")


def where(metric):
    """What the choice of a metric depends on."""
    return metric in PUBLIC, metric.startswith("held_out")


@pytest.fixture
def recorded():
    return made("clients")


def of(history, metric):
    """f64[evaluations, seeds], as it was recorded."""
    return np.array([e.metric(metric) for e in history.evaluations])


@every("metric", METRICS, kind=where)
def test_a_table_has_it(metric, recorded, tmp_path, capsys):
    folder, histories = recorded
    frame = experiments.table(folder, metric=metric, above="dp_fed_avg").set_index("algorithm")
    marked = PUBLIC.marked(metric)
    assert next(name for name in frame if name.endswith("_final_mean")) == f"{marked}_final_mean"
    assert "accuracy_final_mean" not in frame
    own, rival = (of(histories[name], metric) for name in ("top_k", "dp_fed_avg"))
    row = frame.loc["top_k"]
    assert row[f"{marked}_final_mean"] == pytest.approx(own[-1].mean())
    assert row[f"{marked}_lead_final_mean"] == pytest.approx((own - rival)[-1].mean(), abs=1e-6)
    given = [str(folder), "--metric", metric, "--above", "dp_fed_avg", "--output"]
    given += [str(tmp_path / name) for name in ("table.csv", "table.tex")]
    named = heading(metric, PUBLIC)
    if metric in PUBLIC:
        best = own.min(0)
        assert row["loss_best_mean"] == pytest.approx(best.mean())
        assert compare.main([*given, "--best"]) == 0
    else:  # no best is chosen by it
        assert f"{marked}_best_mean" not in row
        assert compare.main([*given, "--best"]) == 2
        assert f"best: {metric} of " in capsys.readouterr().err
        assert compare.main(given) == 0
    head, *_ = capsys.readouterr().out.splitlines()
    assert f"| {named} |" in head
    assert "above DP-FedAvg (95 %)" in head
    assert "| accuracy" not in head
    with (tmp_path / "table.csv").open() as file:
        rows = {line["algorithm"]: line for line in csv.DictReader(file)}
    assert float(rows["top_k"][f"{marked}_final_mean"]) == pytest.approx(own[-1].mean())
    assert named.replace("%", r"\%").lower() in (tmp_path / "table.tex").read_text().lower()


@every("metric", METRICS, kind=where)
def test_a_figure_and_a_page_have_it(metric, recorded, tmp_path, monkeypatch):
    folder, _ = recorded
    monkeypatch.setattr(plots, "save", lambda figure, paths: None)
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
    drawn = experiments.figure(folder, tmp_path / "f.png", metric=metric)
    assert f"quickstart: {with_unit(metric)} " in drawn.caption
    page, paper = tmp_path / "two.html", tmp_path / "paper"
    given = ["--metric", metric, "--output", str(page), "--paper", str(paper)]
    assert report_command.main([str(folder), *given]) == 0
    root = tree(page)
    head, *_ = tables(root)["The last state of each"]
    assert heading(metric, PUBLIC) in head
    assert not [name for name in head if name.startswith("accuracy")]
    first, *_ = (text(e.find("h3")) for e in root.iter("figure"))
    assert with_unit(metric) in first or metric in first
    assert f"{PUBLIC.marked(metric)}_final_mean" in (paper / "table.csv").read_text()
    again = experiments.report(folder, tmp_path / "one.html", metric=metric)
    assert tables(tree(again)) == tables(root)


def test_several_at_once_and_each_once(recorded, capsys):
    folder, _ = recorded
    both = ["loss", "held_out_auc_mean", "loss"]
    frame = experiments.table([folder], metric=both, above="dp_fed_avg")
    finals = [name for name in frame if name.endswith("_final_mean") and "lead" not in name]
    assert finals == ["loss_final_mean", "held_out_auc_mean_not_private_final_mean"]
    assert {"loss_lead_final_mean", "held_out_auc_mean_not_private_lead_final_mean"} < {*frame}
    assert compare.main([str(folder), "--metric", *both, "--above", "dp_fed_avg"]) == 0
    head, *_ = capsys.readouterr().out.splitlines()
    assert "| loss, above DP-FedAvg (95 %) | held out AUC mean, not private |" in head


def test_a_diagnostic_that_one_run_has_is_absent_in_the_other(recorded):
    both = [recorded.path, made("plain").path]
    frame = experiments.table(both, metric="held_out_auc_mean")
    assert frame["held_out_auc_mean_not_private_final_mean"].isna().tolist() == [False, False, True]


def test_a_share_that_was_0_counts_as_0(recorded, tmp_path):
    """`not_finite_messages` is recorded where it is above 0."""
    folder, _ = recorded
    run = experiments.runs.read(folder)
    assert run.lines["top_k"][0].metric("not_finite_messages").per_seed == (0.0, 0.0, 0.0)


def test_accuracies_are_in_percent_and_what_else_lies_in_0_to_1_is_not():
    for name in (
        "accuracy",
        "balanced_accuracy",
        "held_out_accuracy_mean",
        "per_client_accuracy_below_0.5",
    ):
        assert with_unit(name).endswith("(%)")
    for name in ("auc", "f1", "recall", "held_out_auc_mean", "held_out_auc_below_0.5", "loss"):
        assert not with_unit(name).endswith("(%)")
    assert not with_unit("held_out_accuracy_undefined").endswith("(%)")  # a number of clients


def test_the_page_has_percent_everywhere(recorded, tmp_path, monkeypatch):
    folder, histories = recorded
    monkeypatch.setattr(charts, "pictures", lambda drawn, ends: [])
    root = tree(experiments.report(folder, tmp_path / "r.html"))
    found = tables(root)
    last = of(histories["top_k"], "held_out_accuracy_mean")[-1]
    said = f"{100 * last.mean():.2f} ± {100 * last.std(ddof=1):.2f}"
    assert any(said in row for row in found["Single clients, after the last round"])
    assert any(said in row for row in found["Every evaluation."])
