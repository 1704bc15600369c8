"""The picture that a run leaves: ticks that can be read, in the table's units."""

import itertools
from dataclasses import replace

import matplotlib.text
import numpy as np
import pytest
from matplotlib.figure import Figure
from recorded import made
from tiers import every

from fedpriv.engine.history import Evaluation, History
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.run_picture import picture

PUBLIC = Public(("accuracy", "loss"))


@pytest.fixture
def drawn(monkeypatch):
    """Every figure that is saved, as it was drawn."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda f, to, **_: found.append(f) or to.touch())
    return found


def ticks(axes):
    return [t for axis in (axes.xaxis, axes.yaxis) for t in axis.get_ticklabels(which="both")]


def test_no_tick_is_a_formula_and_none_overlap(drawn, tmp_path):
    rounds, histories = {5: 1, 10: 10, 20: 100}, {}
    for name, history in made("private").histories.items():
        own = [
            e._replace(round=rounds[e.round], uplink_mb=e.uplink_mb * rounds[e.round] / e.round)
            for e in history.evaluations
        ]
        histories[name] = replace(history, evaluations=own)
    picture(histories, "accuracy", tmp_path / "p.png", PUBLIC)
    (figure,) = drawn
    figure.canvas.draw()
    by_uplink = figure.axes[1]
    assert by_uplink.get_xscale() == "log"
    for axes in figure.axes:
        said = [t.get_text() for t in ticks(axes)]
        assert not any("$" in text or "\\" in text for text in said)
        float_of = [float(text.replace("\N{MINUS SIGN}", "-")) for text in said if text]
        assert len(float_of) >= 4
    low, high = by_uplink.get_xlim()
    seen = [t for t in by_uplink.get_xticklabels() if low <= t.get_position()[0] <= high]
    boxes = [t.get_window_extent() for t in seen]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def test_texts_of_files_are_no_formulas(drawn, tmp_path):
    name = r"$\alpha^{2}$ of mine"
    histories = made("private").histories
    picture({name: histories["top_k"]}, "accuracy", tmp_path / "p.png", PUBLIC)
    texts = drawn[0].findobj(matplotlib.text.Text)
    (legend,) = [t for t in texts if t.get_text() == name]
    assert not legend.get_parse_math()


def test_an_accuracy_is_in_percent_as_in_the_table(drawn, tmp_path):
    history = History((0, 1))
    for t, accuracy in ((5, 0.25), (10, 0.75)):
        each = np.array([accuracy - 0.1, accuracy + 0.1])
        metrics = {"accuracy": each, "loss": each}
        history.evaluations.append(Evaluation(t, metrics, np.ones(2) * t, np.ones(2), {}, 0.0))
    for metric, factor in (("accuracy", 100), ("loss", 1)):
        picture({"mine": history}, metric, tmp_path / "p.png", PUBLIC)
        axes = drawn[-1].axes[0]
        np.testing.assert_allclose(axes.lines[0].get_ydata(), factor * np.array([0.25, 0.75]))
        assert ("%" in axes.get_ylabel()) == (metric == "accuracy")


@every("x", [x for x in plots.AXES if x != "hours"])
def test_ticks_of_paper_figures_are_plain(x, monkeypatch):
    drawn, run = [], read(made("private").path)
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.append(figure))
    rounds = dict(zip((5, 10, 20), (1, 1000, 10**6), strict=True))
    lines = {n: tuple(replace(x, round=rounds[x.round]) for x in of) for n, of in run.lines.items()}
    columns = plots.columns([replace(run, lines=lines)], False)
    plots.picture(columns, ["accuracy", "loss"], [], x=x)
    drawn[0].canvas.draw()
    said = [t.get_text() for axes in drawn[0].axes for t in ticks(axes)]
    assert any(said)
    assert not any("$" in text or "\\" in text for text in said)
