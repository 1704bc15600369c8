"""What papers say in words as numbers that meet it or not, and what a scale leaves of settings."""

import dataclasses

import pytest
from made_runs import run_folder

from experiments.reproduce import table
from experiments.reproduce.comparisons import change, claim, gap, span
from experiments.reproduce.filled import fill, scaled
from experiments.reproduce.item import Cell, Item, Scale, Training, Value
from experiments.reproduce.reading import final_accuracy

ONE = Training("quickstart", "fed_avg", {"clients": 20}, rounds=100, shrinking=("clients",))
TWO = dataclasses.replace(ONE, algorithm="dp_fed_avg")
RUNS = {ONE: run_folder(ONE, [[0.5], [0.8]]), TWO: run_folder(TWO, [[0.6], [0.7]])}


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
    cell = Cell("row", "column", published, (), lambda: Value(value))
    assert cell.agrees(Value(value)) is agrees
    assert (cell.printed is None) == (published != "9.16")


@pytest.mark.parametrize("published", ["about 3", "above", "within x", "3 points"])
def test_other_words_are_refused(published):
    with pytest.raises(ValueError, match=r"above, below or within a number"):
        Cell("row", "column", published, (), lambda: Value(0))


def test_verdicts_stand_in_the_table(tmp_path):
    cells = [
        claim("first", "points", "above 0", final_accuracy, [ONE], [TWO]),
        claim("second", "points", "within 3", final_accuracy, [ONE], [TWO]),
        claim("third", "points", "4", final_accuracy, [TWO], [ONE]),
    ]
    item = Item("tiny", "fig1", "Claims", cells)
    filled = fill(item, Scale(), RUNS)
    lines = table.markdown(filled).splitlines()[2:]
    assert lines == [
        "| first | above 0 | 10.00 | agrees |",
        "| second | within 3 | 10.00 | does not agree |",
        "| third | 4 | -10 | -14 |",
    ]
    assert "(agrees)" in table.markdown(fill(item, Scale(0.5), RUNS))
    table.write_csv(tmp_path / "table.csv", filled, "")
    first, second, *_ = (tmp_path / "table.csv").read_text().splitlines()[1:]
    assert ("above 0,agrees" in first, "within 3,does not agree" in second) == (True, True)
    assert fill(item, Scale(), {})[0].verdict is None


def test_comparisons():
    runs = [RUNS[ONE], RUNS[TWO]]
    assert gap(final_accuracy)(*runs).mean == pytest.approx(10)
    assert gap(final_accuracy)(*runs, *runs).mean == pytest.approx(0)
    assert change(final_accuracy)(*runs, *reversed(runs)).mean == pytest.approx(20)
    assert span(final_accuracy)(*runs).mean == pytest.approx(10)


def test_settings_that_shrink_with_the_rounds():
    warm = Training("x", "y", {"warm": 34}, rounds=50, rounds_in=("warm",))
    assert [warm.at(Scale(f))["warm"] for f in (1, 0.5, 0.0295, 0.001)] == [34, 17, 0, 0]
    assert [ONE.at(Scale(f))["clients"] for f in (1, 0.5, 0.001)] == [20, 10, 1]
    item = Item("tiny", "fig1", "Scaled", work=(ONE, warm))
    said = "scaled: 50 of 100 and 25 of 50 rounds, 10 of 20 clients, 17 of 34 warm"
    assert scaled(item, Scale(0.5, 1), {}) == said
    others = tuple(dataclasses.replace(ONE, rounds=n) for n in (40, 60, 80))
    many = dataclasses.replace(item, work=(*item.work, *others))
    assert scaled(many, Scale(0.5, 1), {}).startswith("scaled: 20 to 50 of 40 to 100 rounds, ")
