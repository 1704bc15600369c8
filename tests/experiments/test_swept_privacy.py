"""Runs that differ in their noise or budget alone: their ends against epsilon, in one panel."""

import numpy as np
import pytest
from commands import report
from reported import edit, record, tables, tree, with_class

import experiments
from experiments import compare
from experiments.runs.run_folder import read
from experiments.tables import compare as drawing
from experiments.tables import plots
from experiments.tables.swept_privacy import ends_by_epsilon

TARGETS = (4.0, 1.0, 2.0)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Folders of three budgets; the noise, and with it the epsilons, follow them, and FedAvg is one training."""
    base = tmp_path_factory.mktemp("budgets")
    for target in TARGETS:
        given = {"target_epsilon": target, "algorithms": ("fed_avg", "top_k")}
        record(base / f"{target}", rounds=(5, 10), seeds=2, seed=int(target), **given)
        path = base / f"{target}" / "summary.json"
        privacy = read(path.parent).summary.privacy
        of = privacy["top_k"].certified["third_party"]
        certified = {"third_party": vars(of) | {"epsilon": target}}
        held = {"rounds": 10, "claimed": None, "certified": certified}
        infinite = vars(privacy["fed_avg"].certified["third_party"]) | {"epsilon": "inf"}
        without = held | {"certified": {"third_party": infinite}}
        edit(path, privacy={"fed_avg": without, "top_k": held})
    return [base / f"{target}" for target in TARGETS]


def test_one_curve_through_the_ends(swept, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
    runs = drawing.evaluated(swept)
    caption = drawing.draw(runs, ["accuracy"], [], "epsilon", False)
    (axes,) = drawn["figure"].axes
    level, curve = sorted(axes.lines, key=lambda line: "Fed-SMP" in line.get_label())
    ends = {t: run.summary.final for t, run in zip(TARGETS, runs, strict=True)}
    expected = [(t, 100 * ends[t]["top_k"]["accuracy"].mean) for t in sorted(TARGETS)]
    np.testing.assert_allclose(curve.get_xydata(), expected)
    assert level.get_label() == "FedAvg (not private)"
    mean = np.mean([100 * end["fed_avg"]["accuracy"].mean for end in ends.values()])
    np.testing.assert_allclose(level.get_ydata(), mean)
    assert axes.get_xlabel() == "certified ε"
    assert "at the end of runs" in caption
    assert "view third party" in caption


def test_a_sweep_of_noise_is_one_curve_by_epsilon(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
    for noise in (1.0, 4.0, 2.0):
        given = {"noise_multiplier": noise, "algorithms": ("top_k",)}
        record(tmp_path / f"{noise}", rounds=(5, 10), seeds=2, seed=int(noise), **given)
    folders = [tmp_path / f"{noise}" for noise in (1.0, 4.0, 2.0)]
    experiments.figure(folders, tmp_path / "accuracy.pdf", by="epsilon")
    (axes,) = drawn["figure"].axes
    (curve,) = axes.lines
    ends = [read(folder).summary for folder in folders]
    points = [
        (
            of.privacy["top_k"].certified["third_party"].epsilon,
            100 * of.final["top_k"]["accuracy"].mean,
        )
        for of in ends
    ]
    np.testing.assert_allclose(curve.get_xydata(), sorted(points))


def test_the_same_by_mu(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
    folders = [tmp_path / f"{noise}" for noise in (1.0, 4.0)]
    for folder, noise in zip(folders, (1.0, 4.0), strict=True):
        given = {"noise_multiplier": noise, "algorithms": ("top_k", "fed_avg")}
        record(folder, rounds=(5, 10), seeds=2, **given)
    made = experiments.figure(folders, tmp_path / "accuracy.pdf", by="mu")
    (axes,) = drawn["figure"].axes
    curve = next(line for line in axes.lines if "Fed-SMP" in line.get_label())
    ends = [read(folder).summary.privacy["top_k"].operational["third_party"] for folder in folders]
    np.testing.assert_allclose(curve.get_xdata(), sorted(end.mu for end in ends))
    assert axes.get_xlabel() == "Gaussian μ"
    assert "by μ of the tightest Gaussian bound" in made.caption
    with pytest.raises(ValueError, match="by: mu is known at the end of runs; give several"):
        experiments.figure(folders[:1], tmp_path / "accuracy.pdf", by="mu")


def test_a_sweep_of_bits_is_one_curve_by_uplink(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
    folders = [tmp_path / f"{bits}" for bits in (16, None, 12)]
    for folder, bits in zip(folders, (16, None, 12), strict=True):
        given = {"bits": bits, "algorithms": ("top_k",), "sampling": "fixed_size"}
        record(folder, rounds=(5, 10), seeds=2, seed=bits or 0, **given)
    made = experiments.figure(folders, tmp_path / "accuracy.pdf", by="bits")
    (curve,) = drawn["figure"].axes[0].lines
    ends = [read(folder).lines["top_k"][-1] for folder in folders]
    points = [
        (8e6 * end.uplink_mb_per_client / 10, 100 * end.metrics["accuracy"].mean) for end in ends
    ]
    np.testing.assert_allclose(sorted(map(tuple, curve.get_xydata())), sorted(points))
    assert "at the end of runs, by uplink per client of the population and round" in made.caption
    with pytest.raises(ValueError, match="by: bits is for several runs"):
        experiments.figure(folders[:1], tmp_path / "accuracy.pdf", by="bits")


def test_where_more_differs_there_is_nothing_to_merge(swept, tmp_path):
    record(tmp_path / "other", rounds=(5,), seeds=1, p=0.3)
    runs = [read(path) for path in (*swept, tmp_path / "other")]
    assert len(ends_by_epsilon(runs[:3])) == 1
    assert ends_by_epsilon(runs) == ends_by_epsilon(runs[:1]) == []


def test_compare_and_report_draw_it(swept, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(drawing, "picture", lambda *a: asked.append(a[-2]))
    folders = [str(path) for path in swept]
    assert compare.main([*folders, "--output", str(tmp_path / "p.pdf")]) == 0
    assert compare.main([*folders, "--by", "uplink", "--output", str(tmp_path / "p.pdf")]) == 0
    page = tmp_path / "r.html"
    assert report.main([*folders, "--paper", str(tmp_path / "d"), "--output", str(page)]) == 0
    assert asked == ["ends", "uplink", "round", "uplink", "ends"]
    root = tree(page)
    assert "Fed-SMP top_k, ends of runs" in page.read_text()
    points = [e for e in with_class(root, "series") if "b1" in e.get("class").split()]
    assert len(points) == 2  # accuracy and loss, by epsilon alone
    assert len(tables(root)["Runs"]) == 4
