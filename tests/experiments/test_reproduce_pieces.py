"""What items are made of, on runs made up for them: printed numbers, claims, scales, tables, pictures."""

import dataclasses

import numpy as np
import pytest
from made_runs import run_folder
from matplotlib.figure import Figure
from reproduced import PLAIN, SMALL, training

from fedpriv.experiments.papers.reproduce import table
from fedpriv.experiments.papers.reproduce.item import Cell, Item, Scale, Training, Value
from fedpriv.experiments.papers.reproduce.picture import Curves, Points, panels, save, side_by_side
from fedpriv.experiments.papers.reproduce.reading import (
    best_accuracy,
    change,
    claim,
    early_shortfall,
    final_accuracy,
    gap,
    last,
    last_lead,
    last_span,
    last_tenth,
    late_loss,
    least_lead,
    saved_uplink,
    unsteadiness,
)
from fedpriv.experiments.papers.reproduce.table import Filled, fill, scaled

ONE = Training("quickstart", "fed_avg", {"clients": 20}, 100, 2, shrinking=("clients",))
TWO, ABSENT = (dataclasses.replace(ONE, algorithm=name) for name in ("dp_fed_avg", "top_k"))
RUNS = {
    ONE: run_folder(ONE, [[0.4, 0.6], [0.9, 0.8], [0.8, 0.8]], gap=-0.5),
    TWO: run_folder(TWO, [[0.6, 0.6], [0.7, 0.7]], gap=0.5),
}
DIVERGED = RUNS | {TWO: run_folder(TWO, [[0.2, 0.2]], status="diverged: dp_fed_avg")}


@pytest.mark.parametrize(
    ("published", "value", "agrees"),
    [
        ("above 0", 0.1, True),
        ("above 0", 0.0, False),
        ("below -10", -10.5, True),
        ("below -10", -9.5, False),
        ("within 3", -3.0, True),
        ("within 3", 3.1, False),
        ("9.16", 9.16, None),
        ("", 1.0, None),
    ],
)
def test_a_number_meets_a_claim_or_not(published, value, agrees):
    cell = Cell("row", "column", published, (), Value)
    assert cell.agrees(Value(value)) is agrees
    assert (cell.printed is None) == (published != "9.16")


@pytest.mark.parametrize(
    ("published", "value", "verdict"),
    [
        ("above 0", Value(2.5, 2.4), "agrees"),
        ("above 0", Value(2.5, 6.0), "agrees, within the spread"),
        ("below 0", Value(2.5, 6.0), "does not agree, within the spread"),
        ("below 0", Value(2.5), "does not agree"),
        ("within 3", Value(0.0, 1.0), "agrees"),
        ("within 3", Value(0.0, 4.0), "agrees, within the spread"),
        ("within 3", Value(4.0, 2.0), "does not agree, within the spread"),
        ("9.16", Value(9.0, 1.0), None),
    ],
)
def test_a_verdict_says_when_the_spread_could_turn_it(published, value, verdict):
    cell = Cell("row", "column", published, (), Value)
    assert table.Filled(cell, value, "", True).verdict == verdict


def test_what_was_printed_is_read_as_it_stands():
    for text, value, decimals in (
        ("77.10 +- 10.2", Value(77.1, 10.2), 2),
        ("-3", Value(-3.0), 0),
        ("", None, 2),
    ):
        cell = Cell("", "", text, (), Value)
        assert (cell.printed, cell.decimals) == (value, decimals)


def test_equal_trainings_are_one_and_others_have_folders_of_their_own():
    again = Training("quickstart", "fed_avg", dict(reversed(SMALL.items())), 4, 2, 2)
    assert (again, again.key, hash(again)) == (PLAIN, PLAIN.key, hash(PLAIN))
    fields = {"rounds": 5, "seeds": 1, "every": None, "config": "other"}
    others = [dataclasses.replace(PLAIN, **{name: value}) for name, value in fields.items()]
    others += [training("fed_avg", p=0.2), training("dp_fed_avg")]
    assert len({PLAIN.key, *(t.key for t in others)}) == 7
    long = [training("fed_avg", name="x" * 200 + end) for end in "ab"]
    assert long[0].key != long[1].key
    assert max(len(t.key) for t in long) < 255


def test_scales():
    for scale, rounds, seeds, name in (
        (Scale(), 180, 5, "full"),
        (Scale(0.05), 9, 1, "scale-0.05"),
        (Scale(0.001), 1, 1, "scale-0.001"),
        (Scale(0.5, 3), 90, 3, "scale-0.5-seeds-3"),
        (Scale(1, 1), 180, 1, "seeds-1"),
    ):
        assert (scale.of(180), scale.seeds(5), scale.name) == (rounds, seeds, name)
    warm = Training("x", "y", {"warm": 34}, rounds=50, rounds_in=("warm",))
    assert [warm.at(Scale(f))["warm"] for f in (1, 0.5, 0.0295, 0.001)] == [34, 17, 0, 0]
    assert [ONE.at(Scale(f))["clients"] for f in (1, 0.5, 0.001)] == [20, 10, 1]
    item = Item("tiny", "fig1", "Scaled", work=(dataclasses.replace(ONE, seeds=1), warm))
    said = "scaled: 50 of 100 and 25 of 50 rounds, 10 of 20 clients, 17 of 34 warm"
    assert scaled(item, Scale(0.5, 1), {}) == said
    others = tuple(dataclasses.replace(ONE, rounds=n, seeds=1) for n in (40, 60, 80))
    many = dataclasses.replace(item, work=(*item.work, *others))
    assert scaled(many, Scale(0.5, 1), {}).startswith("scaled: 20 to 50 of 40 to 100 rounds, ")


def test_numbers_are_read_from_run_folders():
    one, two = RUNS[ONE], RUNS[TWO]
    best, final = best_accuracy(one), final_accuracy(one)
    assert (best.mean, best.std) == pytest.approx((85, 100 * np.std([0.9, 0.8], ddof=1)))
    assert (final[:2], final.per_seed) == (pytest.approx((80, 0)), pytest.approx((80, 80)))
    assert last("gap")(one)[:2] == (-0.5, None)
    assert last("loss")(one).mean == pytest.approx(0.2)
    with pytest.raises(ValueError, match="log_gap: was not measured at round 100 of fed_avg"):
        last("log_gap")(one)
    twenty_and_ten = 100 * np.std([0.2, 0.1], ddof=1)  # best accuracies: 90 and 80 less 70 and 70
    assert gap(best_accuracy, one, two)[:2] == pytest.approx((15, twenty_and_ten))
    assert gap(best_accuracy, one, two, one, two)[:2] == pytest.approx((0, 0))
    assert change(best_accuracy, one, two, two, one)[:2] == pytest.approx((30, 2 * twenty_and_ten))
    rows = [[0.0, 0.0]] * 18 + [[0.2, 0.3], [0.4, 0.7]]  # every 5 rounds; the last two after 90
    expected = (100 * (0.3 + 0.5) / 2, 100 * 0.2 / np.sqrt(2))
    assert last_tenth(run_folder(ONE, rows))[:2] == pytest.approx(expected)
    swung = 100 * np.std([[0, 0, 0, 0.2, 0.4], [0, 0, 0, 0.3, 0.7]], axis=1, ddof=1)  # after 75
    assert unsteadiness(run_folder(ONE, rows)).per_seed == pytest.approx(swung)
    assert unsteadiness(run_folder(ONE, rows[-1:])) == "one evaluation"


def test_uplink_saved_is_counted_to_the_first_round_above_the_target():
    read = saved_uplink(0.72)
    dense = run_folder(ONE, [[0.3], [0.72], [0.8]], megabytes=[10, 20, 30])
    early = run_folder(TWO, [[0.5], [0.71], [0.73]], megabytes=[1, 2, 3])
    never = run_folder(TWO, [[0.5]], megabytes=[1])
    assert read(early, dense).mean == pytest.approx(85)
    assert read(never, dense) == read(dense, never) == "not reached"


def test_how_claims_of_mspdq_read_a_run():
    rising = run_folder(ONE, [[0.1], [0.3], [0.5], [0.6], [0.7], [0.8]])
    falling = run_folder(TWO, [[0.1], [0.2], [0.6], [0.9], [0.5], [0.4]])
    assert late_loss(falling).mean == pytest.approx(50)
    assert late_loss(rising).mean == pytest.approx(0)
    assert least_lead(falling, rising).mean == pytest.approx(-40)
    assert early_shortfall(falling, rising).mean == pytest.approx(10)  # of the first two of six
    assert late_loss(run_folder(TWO, [[0.5]], status="diverged: x")).mean == pytest.approx(40)
    assert late_loss(run_folder(TWO, [], status="diverged: x")).mean == 0  # chance from the start


def test_claims_of_mspdq_are_judged_seed_by_seed():
    """A lead that every seed has is sure, however far the seeds lie apart."""
    first = run_folder(ONE, [[0.2, 0.2], [0.9, 0.5]])
    second = run_folder(TWO, [[0.1, 0.2], [0.8, 0.4]])
    assert last_lead(first, second)[:2] == pytest.approx((10, 0), abs=1e-9)
    assert least_lead(first, second)[:2] == pytest.approx((5, 50**0.5))
    assert last_span(first, second, first)[:2] == pytest.approx((10, 0), abs=1e-9)
    assert last_lead(first, run_folder(TWO, [], status="diverged: x")).mean == pytest.approx(60)


def test_verdicts_stand_in_the_table():
    cells = [
        claim("first", "points", "above 0", final_accuracy, [ONE], [TWO]),
        claim("second", "points", "within 3", final_accuracy, [ONE], [TWO]),
        claim("third", "points", "4", final_accuracy, [TWO], [ONE]),
    ]
    item = Item("tiny", "fig1", "Claims", cells)
    filled = fill(item, Scale(), RUNS)
    assert table.markdown(filled).splitlines()[2:] == [
        "| first | above 0 | 10.00 +- 0.00 | agrees |",
        "| second | within 3 | 10.00 +- 0.00 | does not agree |",
        "| third | 4 | -10 +- 0 | -14 |",
    ]
    assert "(agrees)" in table.markdown(fill(item, Scale(0.5), RUNS))
    frame = table.frame(filled, "")
    assert frame[["claim", "verdict"]].values.tolist()[:2] == [
        ["above 0", "agrees"],
        ["within 3", "does not agree"],
    ]
    assert fill(item, Scale(), {})[0].verdict is None
    assert [f.said for f in fill(item, Scale(), DIVERGED)] == ["diverged"] * 3


def drawn(panel, results=RUNS):
    figure = Figure()
    panels([[panel]])(figure, results)
    (axes,) = figure.axes
    return axes


def test_curves_are_the_evaluations():
    """With what is not trained left out, and what diverged as far as it came."""
    lines = {"FedAvg": ONE, "DP-FedAvg": TWO, "untrained": ABSENT}
    axes = drawn(Curves("title", lines, ylabel="%", factor=100, ends=True), DIVERGED)
    first, second, *ends = axes.lines
    np.testing.assert_allclose(first.get_xydata(), [[33, 50], [67, 85], [100, 80]])
    np.testing.assert_allclose(second.get_xydata(), [[100, 20]])
    assert [end.get_xdata()[0] for end in ends] == [100]
    band = axes.collections[0].get_paths()[0].vertices
    half = 100 * np.std([0.4, 0.6], ddof=1)
    np.testing.assert_allclose([band[:, 1].min(), band[:, 1].max()], [50 - half, 85 + half / 2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", "DP-FedAvg"]
    axes = drawn(Curves("", {"x": ONE}, metric="gap", x="uplink_mb_per_client", xscale="log"))
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.1, -0.5], [0.2, -0.5], [0.3, -0.5]])
    assert axes.get_xscale() == "log"
    empty = drawn(Curves("", {"a": ONE}), {})
    assert (len(empty.lines), empty.get_legend()) == (0, None)


def test_points_are_one_number_of_each_training_that_ended():
    """Not of the one that diverged, nor of the one that is not there."""
    lines = {"a": [(0.1, ONE), (0.2, TWO), (0.4, ABSENT)], "b": [(1, ABSENT)]}
    axes = drawn(Points("", lines, final_accuracy, "p", "%"), DIVERGED)
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.1, 80]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a"]


def test_a_table_is_drawn_as_published_beside_measured():
    def cell(row, column, published, value, work=(ONE,)):
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
    bars = published.lines[2][0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [78, 82])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["r1", "r2"]
    figure = Figure()
    side_by_side(figure, cells[2:])  # the only column there is
    assert figure.axes[0].get_title() == "eps"


def test_the_title_says_what_is_missing(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, text, **_: titles.append(text))
    curves = Curves("", {"a": ONE, "c": ABSENT})
    item = Item("paper", "fig9", "", work=(ONE, ABSENT), draw=panels([[curves]]))
    save(item, [], RUNS, "scaled: 1 of 5 seeds", tmp_path / "picture.png")
    assert titles == ["paper fig9; scaled: 1 of 5 seeds; 1 of 2 trained"]
    assert (tmp_path / "picture.png").stat().st_size > 1000
