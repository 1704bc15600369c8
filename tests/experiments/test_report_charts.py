"""The report's curves: mean and standard deviation as recorded, and pictures of whatever is recorded."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from recorded import made
from reported import with_class

from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.plots import colours
from fedpriv.experiments.tables.report import charts, tables


@pytest.fixture
def recorded():
    """(what was recorded, its series by algorithm)"""
    folder, histories = made("private")
    drawn = charts.series(tables.results([read(folder)], [""]))
    return histories, {s.result.algorithm: s for s in drawn}


@pytest.fixture
def curves(monkeypatch):
    """What matplotlib is given: (title, key of the series) -> x, mean, standard deviation; nothing is saved."""
    found, draw, titles = {}, charts._curve, []

    def spy(axes, s, x, mean, std, floor):
        found[titles[-1], s.key] = x, mean, std
        draw(axes, s, x, mean, std, floor)

    def unsaved(draw, key):
        draw(Figure().subplots())
        return "<svg viewBox='0'/>"

    drawn = charts._draw
    monkeypatch.setattr(charts, "_svg", unsaved)
    monkeypatch.setattr(charts, "_curve", spy)
    monkeypatch.setattr(charts, "_draw", lambda a, c, *b: titles.append(c.title) or drawn(a, c, *b))
    return found


def test_curves_are_mean_and_standard_deviation_of_the_seeds(recorded, curves):
    histories, drawn = recorded
    charts.pictures(list(drawn.values()))
    for name, s in drawn.items():
        history = histories[name]
        certified = [line.privacy.certified.epsilon for line in s.result.lines]
        gap = np.array([e.measures["log_gap"] for e in history.evaluations])
        by = {"round": history.rounds, "uplink": history.uplink_mb.mean(1)}
        by |= {"certified epsilon": certified} if np.isfinite(certified).all() else {}
        every = {("Test accuracy (%)", b): 100 * history.accuracy for b in by}
        every |= {("Test loss", b): history.loss for b in by} | {
            ("log_gap, not private", "round"): gap
        }
        for (measure, b), each in every.items():
            x, mean, std = curves[f"{measure} by {b}", s.key]
            np.testing.assert_allclose(x, by[b])
            np.testing.assert_allclose(mean, each.mean(1), rtol=1e-6)
            np.testing.assert_allclose(std, each.std(1, ddof=1), rtol=1e-6)
    assert ("Test loss by certified epsilon", drawn["fed_avg"].key) not in curves  # infinite


def figure(s, rows, measure="loss", x_label="round"):
    """Of a series with these (x, mean, standard deviation)."""
    line = s.result.lines[0]
    spreads = [replace(line.metrics["loss"], mean=mean, std=std) for _, mean, std in rows]
    lines = [
        replace(line, round=t, metrics={"loss": m, "accuracy": m}) for t, m in enumerate(spreads, 1)
    ]
    at = [x for x, *_ in rows]
    one = s._replace(result=s.result._replace(lines=lines))
    chart = charts.Chart("it", measure, [one], lambda line: at[line.round - 1], x_label)
    return charts._picture(chart, "k")


def texts(picture):
    return [e.text for e in ElementTree.fromstring(picture.svg).iter("text")]


@pytest.mark.parametrize(
    "values", [[0.0], [-3.0, -3.0], [1e-30, 2e-30], [1e30, 1e99, 1e308], [0, 1e-9]]
)
def test_every_range_has_a_picture_with_ticks(values, recorded):
    x_label = "epsilon $x^" if values[0] else "round"  # text, not a formula
    rows = [(x, x, abs(x) / 2) for x in values]
    found = texts(figure(recorded[1]["top_k"], rows, x_label=x_label))
    assert any(x_label in said for said in found)
    assert 3 <= len(found) <= 20


def test_far_values_get_a_logarithmic_axis_and_accuracy_stays_within_its_bounds(recorded):
    s, rows = recorded[1]["top_k"], [(1, 1e-3, 5e-3), (2, 1.0, 0.1), (3, 1e3, None)]
    assert "log scale" in texts(figure(s, rows))
    found = texts(figure(s, [(1, 0.99, 0.05), (2, 0.01, 0.05)], "accuracy"))
    numbers = [float(said) for said in found if said.isdecimal()]
    assert (min(numbers), max(numbers)) == (0, 100)


def test_what_is_not_finite_is_a_gap_that_is_said(recorded):
    nan = float("nan")
    rows = [(1, 2.0, 0.1), (2, 3.0, 0.1), (3, nan, nan), (4, 1.0, 0.1), (5, 2.0, None)]
    drawn = figure(recorded[1]["top_k"], rows)
    assert any("1 values are not finite" in said for said in drawn.caption)
    (line,) = with_class(ElementTree.fromstring(drawn.svg), "series")
    assert line.find("path").get("d").count("M") == 2
    assert "nan" not in drawn.svg
    assert figure(recorded[1]["top_k"], rows).svg == drawn.svg  # the same every time
    assert not figure(recorded[1]["top_k"], rows[2:3]).svg


def test_one_seed_has_no_band(recorded):
    for std, bands in ((None, 0), (0.1, 1)):
        drawn = figure(recorded[1]["top_k"], [(1, 2.0, std), (2, 3.0, std)])
        assert len(with_class(ElementTree.fromstring(drawn.svg), "band")) == bands


def test_series_are_told_apart_by_algorithm_and_run(recorded):
    result = recorded[1]["top_k"].result

    def looks(algorithms, runs):
        made = [
            result._replace(run=replace(result.run, path=r), algorithm=a)
            for r in runs
            for a in algorithms
        ]
        return [(s.colour, s.dash) for s in charts.series(made)]

    first, second = looks("abc", "12")[:3], looks("abc", "12")[3:]
    assert len(set(first)) == 3
    assert second == [(colour, 1) for colour, dash in first if dash == 0]
    assert len(set(looks("a", map(str, range(42))))) == 42


def test_an_algorithm_has_one_colour_whatever_it_is_drawn_beside():
    quickstart = colours(["fed_avg", "dp_fed_avg", "rand_k", "top_k"])
    for names in (["top_k"], ["rand_k", "top_k"], ["top_k", "mine", "fed_avg"]):
        found = colours(names)
        assert {n: found[n] for n in names if n in quickstart} == {
            n: quickstart[n] for n in names if n in quickstart
        }
    assert colours(["mine", "yours"]) == colours(["yours", "mine"])
    assert len(set(colours(map(str, range(20))).values())) == 20


def test_the_errors_of_an_attacker_are_drawn_by_view(monkeypatch):
    plotted = {}
    plot = Axes.plot
    monkeypatch.setattr(
        Axes,
        "plot",
        lambda self, x, y, *a, label, **k: (
            plotted.update({label: (x, y)}) or plot(self, x, y, *a, label=label, **k)
        ),
    )
    rates = (0.001, 0.01, 0.1, 1.0)
    made = charts.trade_off({"server": (rates, (0.9, 0.8, 0.5, 0.0))}, "k")
    np.testing.assert_array_equal(plotted["server"], (rates, (0.9, 0.8, 0.5, 0.0)))
    np.testing.assert_array_equal(plotted["guess"][1], 1 - np.array(rates))
    assert "server: at least 80 % missed at 1 % false positives" in made.svg
    assert charts.trade_off({}, "k").svg == ""
