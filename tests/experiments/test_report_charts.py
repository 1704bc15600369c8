"""The report's pictures: every coordinate is what was recorded, read back through the axes' ticks alone."""

import re

import numpy as np
import pytest
from reported import record, text, tree, with_class

from experiments.report import axis, chart
from experiments.report.__main__ import main
from experiments.report.curves import Chart, Curve
from experiments.report.looks import COLOURS, DASHES, Look, looks
from experiments.report.results import Result


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """(what was recorded, its page)"""
    folder = tmp_path_factory.mktemp("charts") / "run"
    histories = record(folder, rounds=(5, 10, 15, 20), seeds=4)
    assert main([str(folder)]) == 0
    return histories, tree(folder / "report.html")


def svg_of(root, title):
    (found,) = [f for f in root.iter("figure") if text(f.find("h3")) == title]
    return with_class(found, "chart")[0]


def scale_of(svg, which):
    """Pixel -> value, from the ticks; logarithmic where the picture says so."""
    ticks = [(float(e.get(which)), float(e.text)) for e in with_class(svg, which)]
    labels = [text(e) for e in with_class(svg, "labels")[0]]
    log = labels[0].endswith(", log scale") if which == "x" else labels[-1] == "log scale"
    values = np.log([v for _, v in ticks]) if log else np.array([v for _, v in ticks])
    slope, start = np.polyfit([at for at, _ in ticks], values, 1)
    residual = values - (slope * np.array([at for at, _ in ticks]) + start)
    assert np.abs(residual).max() <= 0.011 * abs(slope)  # the ticks themselves lie where they say

    def value(at):
        found = slope * np.asarray(at) + start
        return np.exp(found) if log else found

    return value


def points(d):
    pairs = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d)
    return np.array([(float(x), float(y)) for x, y in pairs])


def curve(svg, label):
    """(x, mean) of a series, and its (upper, lower) band, in the axes' values."""
    x, y = scale_of(svg, "x"), scale_of(svg, "y")
    (series,) = [
        s for s in with_class(svg, "series") if text(s.find("path/title")).startswith(f"{label}:")
    ]
    key = series.get("class").split()[1]
    line = points(with_class(series, "line")[0].get("d"))
    bands = [points(b.get("d")) for b in with_class(svg, "band") if key in b.get("class").split()]
    upper, lower = np.split(bands[0], 2) if bands else (None, None)
    values = (None, None) if upper is None else (y(upper[:, 1]), y(lower[::-1, 1]))
    return x(line[:, 0]), y(line[:, 1]), values


MEASURES = {
    "Test accuracy (%)": lambda h: 100 * h.accuracy,
    "Test loss": lambda h: h.loss,
    "log_gap": lambda h: np.array([e.measures["log_gap"] for e in h.evaluations]),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("name", "label"), [("dp_fed_avg", "DP-FedAvg"), ("top_k", "Fed-SMP top_k")]
)
def test_curves_by_round_are_mean_and_standard_deviation_of_the_seeds(page, measure, name, label):
    histories, root = page
    svg = svg_of(root, f"{measure} by round")
    x, mean, (upper, lower) = curve(svg, label)
    each = MEASURES[measure](histories[name])
    height = np.ptp(scale_of(svg, "y")([chart.TOP, chart.BOTTOM])) / (chart.BOTTOM - chart.TOP)
    close = {"atol": 0.011 * abs(height), "rtol": 1e-6}
    np.testing.assert_allclose(x, histories[name].rounds, atol=0.01)
    np.testing.assert_allclose(mean, each.mean(1), **close)
    np.testing.assert_allclose(upper, each.mean(1) + each.std(1, ddof=1), **close)
    np.testing.assert_allclose(lower, each.mean(1) - each.std(1, ddof=1), **close)


@pytest.mark.parametrize(("name", "label"), [("fed_avg", "FedAvg"), ("rand_k", "Fed-SMP rand_k")])
def test_curves_by_uplink(page, name, label):
    histories, root = page
    svg = svg_of(root, "Test accuracy (%) by uplink")
    assert "log scale" in text(svg)  # a tenth of the others' uplink
    x, mean, _ = curve(svg, label)
    np.testing.assert_allclose(x, histories[name].uplink_mb.mean(1), rtol=1e-3)
    np.testing.assert_allclose(mean, 100 * histories[name].accuracy.mean(1), atol=0.01)


def test_curves_by_epsilon(page):
    from experiments import config as configuration

    histories, root = page
    module = configuration.load("quickstart")
    ledger = module.ledger(module.config)
    svg = svg_of(root, "Test loss by certified epsilon")
    x, mean, _ = curve(svg, "DP-FedAvg")
    expected = [ledger.certify("dp_fed_avg", t).epsilon for t in (5, 10, 15, 20)]
    np.testing.assert_allclose(x, expected, atol=1e-4)
    np.testing.assert_allclose(mean, histories["dp_fed_avg"].loss.mean(1), atol=0.01)
    assert len(with_class(svg, "series")) == 3  # not FedAvg, which has no finite one


def drawn(points, bounds=(-np.inf, np.inf)):
    look = Look("s0", "it", 0, "")
    return chart.figure(Chart("it by round", ("round",), (), [Curve(look, points)], bounds), "k")


def test_what_is_not_finite_is_a_gap():
    nan = float("nan")
    made = drawn([(1, 2.0, 0.1), (2, 3.0, 0.1), (3, nan, nan), (4, 1.0, 0.1), (5, 2.0, None)])
    (line,) = with_class(made, "line")
    assert line.get("d").count("M") == 2
    assert len(points(line.get("d"))) == 4
    (band,) = with_class(made, "band")
    assert band.get("d").count("M") == 1  # of the first piece: the second has one point with a band
    assert "nan" not in "".join(made.itertext())


def test_far_values_get_a_logarithmic_axis():
    made = drawn([(1, 1e-3, 5e-3), (2, 1.0, 0.1), (3, 1e3, 10.0)])
    svg = with_class(made, "chart")[0]
    assert "log scale" in text(svg)
    _, mean, (upper, lower) = curve(svg, "it")
    np.testing.assert_allclose(mean, [1e-3, 1.0, 1e3], rtol=1e-2)
    np.testing.assert_allclose(upper, [6e-3, 1.1, 1010], rtol=1e-2)
    assert 0 < lower[0] < 1e-3  # below zero: at the axis' low end
    assert "log scale" not in text(drawn([(1, 1e-3, None), (2, 50.0, None)], (0, 100)))


@pytest.mark.parametrize(
    "values", [[0.0], [5.0], [1e-30, 2e-30], [-3.0, -3.0], [1e30, 1e31], [0.0, 1e-9], [3.0, 3.0001]]
)
@pytest.mark.parametrize("options", [{}, {"from_zero": True}, {"log": True}])
def test_every_range_has_ticks_within_it(values, options):
    if options.get("log") and not axis.far_apart(values, 1):
        return
    found = axis.fitted(values, start=10, end=90, **options)
    places = [found.at(v) for v in values]
    assert all(10 <= place <= 90 for place in places)
    ticks = found.ticks()
    assert 1 <= len(ticks) <= 9
    assert all(10 - 1e-6 <= found.at(tick) <= 90 + 1e-6 for tick in ticks)
    assert [float(axis.text(tick)) for tick in ticks] == pytest.approx(ticks, rel=1e-4, abs=1e-35)


def test_rounds_are_whole_and_accuracy_stays_within_its_bounds():
    made = drawn([(1, 99.0, 5.0), (2, 1.0, 5.0)], (0.0, 100.0))
    svg = with_class(made, "chart")[0]
    assert {float(e.text) for e in with_class(svg, "x")} == {0, 1, 2}
    heights = [float(e.text) for e in with_class(svg, "y")]
    assert (min(heights), max(heights)) == (0, 100)


def test_series_are_told_apart_by_algorithm_and_run():
    class Folder:
        def __init__(self, name):
            self.name = name

    def made(algorithms, runs):
        return looks([Result(Folder(r), a, "") for r in runs for a in algorithms])

    crossed = made("abc", ["1", "2"])
    assert [x.colour for x in crossed] == [0, 1, 2, 0, 1, 2]
    assert [x.dash for x in crossed] == [DASHES[0]] * 3 + [DASHES[1]] * 3
    many = made(["a"], [str(i) for i in range(COLOURS * len(DASHES))])
    assert len({(x.colour, x.dash) for x in many}) == COLOURS * len(DASHES)


def test_a_long_curve_keeps_its_line_and_has_few_markers():
    made = drawn([(t, 1.0 + t, 0.1) for t in range(1000)])
    assert len(points(with_class(made, "line")[0].get("d"))) == 1000
    assert 20 < len(with_class(made, "marker")) <= chart.MOST_MARKERS + 1
