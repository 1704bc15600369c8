"""Runs that differ in their noise, budget or bits alone: their ends in one panel, and in the table of a sweep."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from recorded import BUDGETS, made
from reported import edit, tables, tree, with_class

from fedpriv import experiments, privacy
from fedpriv.core.json_values import plain
from fedpriv.experiments.commands import compare, report
from fedpriv.experiments.runs.run_folder import read, read_all
from fedpriv.experiments.search import sweep_table
from fedpriv.experiments.search.sweep_grid import Point
from fedpriv.experiments.tables import compare as drawing
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.latex import latex
from fedpriv.experiments.tables.report import charts
from fedpriv.experiments.tables.swept_privacy import ends_by_bits, ends_by_epsilon


@pytest.fixture
def figure(monkeypatch):
    """(folders, axis) -> the panel and the caption of what is drawn."""
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.append(figure))

    def made_of(folders, by):
        caption = experiments.figure(folders, "accuracy.pdf", by=by).caption
        (axes,) = drawn[-1].axes
        return axes, caption

    return made_of


def test_one_curve_through_the_ends(figure):
    folder = made("sweep").path
    axes, caption = figure(folder, None)
    level, curve = sorted(axes.lines, key=lambda line: "Fed-SMP" in line.get_label())
    ends = {t: read(folder / f"{t}").summary.final for t in BUDGETS}
    expected = [(t, 100 * ends[t]["top_k"]["accuracy"].mean) for t in sorted(BUDGETS)]
    np.testing.assert_allclose(curve.get_xydata(), expected)
    assert level.get_label() == "FedAvg (not private)"
    mean = np.mean([100 * end["fed_avg"]["accuracy"].mean for end in ends.values()])
    np.testing.assert_allclose(level.get_ydata(), mean)
    assert axes.get_xlabel() == "certified ε"
    assert "at the end of runs" in caption
    assert "view third party" in caption


@pytest.fixture
def noises(tmp_path):
    """Of two noises, as they say; epsilons and mu follow them."""
    folders = []
    for noise in (1.0, 4.0):
        folder = shutil.copytree(made("private").path, tmp_path / f"{noise}")
        summary = read(folder).summary
        of = summary.privacy["top_k"]
        certified, meaning = of.certified["third_party"], of.operational["third_party"]
        changed = replace(
            of,
            certified={"third_party": replace(certified, epsilon=certified.epsilon / noise)},
            operational={"third_party": replace(meaning, mu=meaning.mu / noise)},
        )
        privacy = plain(summary.privacy | {"top_k": changed})
        settings = summary.settings | {"noise_multiplier": noise}
        edit(folder / "config.json", settings=settings)
        edit(folder / "summary.json", settings=settings, privacy=privacy)
        folders.append(folder)
    return folders


@pytest.mark.parametrize("by", ["epsilon", "mu"])
def test_a_sweep_of_noise_is_one_curve(by, noises, figure):
    axes, caption = figure(noises, by)
    (curve,) = (line for line in axes.lines if "top_k" in line.get_label())
    points = []
    for summary in (read(folder).summary for folder in noises):
        of = summary.privacy["top_k"]
        x = (
            of.certified["third_party"].epsilon
            if by == "epsilon"
            else of.operational["third_party"].mu
        )
        points.append((x, 100 * summary.final["top_k"]["accuracy"].mean))
    np.testing.assert_allclose(curve.get_xydata(), sorted(points))
    assert axes.get_xlabel() == {"epsilon": "certified ε", "mu": "Gaussian μ"}[by]
    assert by == "epsilon" or "by μ of the tightest Gaussian bound" in caption


def test_a_sweep_of_bits_is_one_curve_by_uplink(tmp_path, figure):
    """Of runs that say so; what they sent is made up."""
    folders = []
    for bits in (16, None, 12):
        folders.append(shutil.copytree(made("private").path, tmp_path / f"{bits}"))
        for name in ("config.json", "summary.json"):
            edit(folders[-1] / name, settings=read(folders[-1]).settings | {"bits": bits})
    axes, caption = figure(folders, "bits")
    lines = {line.get_label(): line for line in axes.lines}
    ends = [read(folder).lines["top_k"][-1] for folder in folders]
    points = [(8e6 * e.uplink_mb_per_client / 20, 100 * e.metrics["accuracy"].mean) for e in ends]
    (curve,) = (line for label, line in lines.items() if "top_k" in label)
    np.testing.assert_allclose(sorted(map(tuple, curve.get_xydata())), sorted(points))
    assert "at the end of runs, by uplink per client of the population and round" in caption
    assert ends_by_bits([read(folder) for folder in folders[:1]]) == []


def test_where_more_differs_there_is_nothing_to_merge():
    runs = read_all([made("sweep").path])[0]
    other = replace(runs[0].begun, settings=runs[0].begun.settings | {"p": 0.3})
    assert len(ends_by_epsilon(runs)) == 1
    assert ends_by_epsilon([*runs, replace(runs[0], begun=other)]) == []
    assert ends_by_epsilon(runs[:1]) == []


def test_compare_and_report_draw_it(tmp_path, monkeypatch):
    asked, folder = [], str(made("sweep").path)
    monkeypatch.setattr(drawing, "picture", lambda *a: asked.append(a[-2]))
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
    assert compare.main([folder, "--output", str(tmp_path / "p.pdf")]) == 0
    assert compare.main([folder, "--by", "uplink", "--output", str(tmp_path / "p.pdf")]) == 0
    page = tmp_path / "r.html"
    assert report.main([folder, "--paper", str(tmp_path / "d"), "--output", str(page)]) == 0
    assert asked == ["ends", "uplink", "round", "uplink", "ends"]
    assert "Fed-SMP top_k, ends of runs" in page.read_text()
    root = tree(page)
    assert len(tables(root)["Runs"]) == 4
    labels = [e for e in with_class(root, "legend") if e is not None]
    assert labels


@pytest.mark.parametrize("views", ["one", "all"])
def test_a_swept_budget_shows_the_noise_it_took_the_traffic_and_the_views_asked_for(views):
    summary = read(made("private").path).summary
    found = []
    for target, noise in {1.0: 3.25, 4.0: 1.125}.items():
        settings = summary.settings | {"target_epsilon": target, "views": views}
        solved = {"top_k": {"noise_multiplier": noise}}
        of = Point({"target_epsilon": f"{target:g}"}, None, f"{target}")
        found.append((of, replace(summary, settings=settings, solved=solved)))
    table = sweep_table.table(found)
    head, rows = table.head, table.rows
    assert head[0] == "ε budget"
    assert any("ε budget: what the noise was solved for" in note for note in table.notes)
    assert any("share their seeds" in note for note in table.notes)
    top_k = [dict(zip(head, row, strict=True)) for row in rows if "Fed-SMP top_k" in row]
    assert [row["noise multiplier"] for row in top_k] == ["3.25", "1.125"]
    sent = summary.uplink_mb_per_client["top_k"]
    assert [float(row["MB up"]) for row in top_k] == pytest.approx([sent, sent])
    shown = [name.partition(", ")[2] for name in head if name.startswith("ε, ")]
    every = [view.replace("_", " ") for view in privacy.VIEWS]
    assert shown == (every if views == "all" else ["third party"])
    assert ("server" in latex(table)) == (views == "all")
