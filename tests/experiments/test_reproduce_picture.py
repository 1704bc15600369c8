"""Pictures show the numbers of the run folders and the published ones, and leave out what is not there."""

import numpy as np
from matplotlib.figure import Figure

from experiments.compare import RunFolder
from experiments.reproduce.filled import Filled
from experiments.reproduce.item import Cell, Item, Training, Value
from experiments.reproduce.picture import Curves, Points, panels, save, side_by_side
from experiments.reproduce.reading import best_accuracy, final_accuracy, gain, last

A, B, C = (Training("quickstart", name) for name in ("fed_avg", "dp_fed_avg", "top_k"))


def spread(mean, std=None):
    return {"mean": mean, "std": std}


def folder(name, *accuracies, status="complete"):
    lines = [
        {
            "round": 5 * (i + 1),
            "accuracy": spread(a, 0.01),
            "loss": spread(1 - a),
            "uplink_mb_per_client": 0.1 * (i + 1),
            "diagnostics_not_private": {"gap": spread(-a)},
        }
        for i, a in enumerate(accuracies)
    ]
    best, final = max(accuracies), accuracies[-1]
    accuracy = {"best": {name: spread(best, 0.02)}, "final": {name: spread(final)}}
    return RunFolder({"rounds": {name: 1}, "status": status, "accuracy": accuracy}, lines)


RESULTS = {
    A: folder("fed_avg", 0.5, 0.8, 0.7),
    B: folder("dp_fed_avg", 0.2, 0.3, status="diverged: dp_fed_avg"),
}


def drawn(panel, results=RESULTS):
    figure = Figure()
    panels([[panel]])(figure, results)
    (axes,) = figure.axes
    return axes


def test_curves_are_the_evaluations():
    lines = {"FedAvg": A, "DP-FedAvg": B, "untrained": C}
    axes = drawn(Curves("title", lines, ylabel="%", factor=100))
    first, second = axes.lines
    np.testing.assert_allclose(first.get_xydata(), [[5, 50], [10, 80], [15, 70]])
    np.testing.assert_allclose(second.get_xydata(), [[5, 20], [10, 30]])
    band = axes.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([band[:, 1].min(), band[:, 1].max()], [49, 81])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", "DP-FedAvg"]


def test_curves_over_something_else():
    axes = drawn(Curves("", {"x": A}, metric="gap", x="uplink_mb_per_client", xscale="log"))
    expected = [[0.1, -0.5], [0.2, -0.8], [0.3, -0.7]]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), expected)
    assert axes.get_xscale() == "log"


def test_points_are_one_number_of_each_training_that_ended():
    """Not of the one that diverged, nor of the one that is not there."""
    panel = Points(
        "", {"a": [(0.1, A), (0.2, B), (0.4, C)], "b": [(1, C)]}, best_accuracy, "p", "%"
    )
    axes = drawn(panel)
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.1, 80]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a"]


def test_nothing_trained_is_an_empty_picture():
    axes = drawn(Curves("", {"a": A}), {})
    assert not axes.lines
    assert axes.get_legend() is None


def test_a_table_is_drawn_as_published_beside_measured():
    def cell(row, column, published, value, work=(A,)):
        return Filled(Cell(row, column, published, work, best_accuracy), value, "-", True)

    cells = [
        cell("r1", "accuracy", "80 +- 2", Value(70.0, 3.0)),
        cell("r2", "accuracy", "90", None),
        cell("r1", "eps", "1", Value(1.0), work=()),
    ]
    figure = Figure()
    side_by_side(figure, cells)
    (axes,) = (axes for axes in figure.axes if axes.axison)
    published, measured = axes.containers
    np.testing.assert_allclose(published.lines[0].get_xydata(), [[0, 80], [1, 90]])
    np.testing.assert_allclose(measured.lines[0].get_xydata(), [[0, 70]])
    bars = [segments for segments in published.lines[2][0].get_segments()]
    np.testing.assert_allclose(bars[0][:, 1], [78, 82])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["r1", "r2"]
    figure = Figure()
    side_by_side(figure, cells[2:])  # the only column there is
    assert figure.axes[0].get_title() == "eps"


def test_the_title_says_what_is_missing(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, text, **_: titles.append(text))
    item = Item("paper", "fig9", "", work=(A, C), draw=panels([[Curves("", {"a": A, "c": C})]]))
    save(item, [], RESULTS, "scaled: 1 of 5 seeds", tmp_path / "picture.png")
    assert titles == ["paper fig9; scaled: 1 of 5 seeds; 1 of 2 trained"]
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_numbers_read_from_run_folders():
    run, other = RESULTS[A], folder("dp_fed_avg", 0.2, 0.25)
    assert best_accuracy(run) == Value(80.0, 2.0)
    assert final_accuracy(run) == Value(70.0, None)
    assert last("gap", 10)(run) == Value(-7.0, None)
    np.testing.assert_allclose(last("loss")(run).mean, 0.3)
    np.testing.assert_allclose(gain(final_accuracy)(run, other).mean, 45)
