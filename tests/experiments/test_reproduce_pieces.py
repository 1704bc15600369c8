"""What items are made of: printed numbers, trainings that are the same, scales, whole files."""

import dataclasses

import pytest
from reproduced import PLAIN, SMALL, training

from experiments.files import replacing
from experiments.reproduce.item import Cell, Scale, Training, Value


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    def half(path):
        path.write_text("half")
        raise OSError("No space left on device")

    (tmp_path / "table.md").write_text("before")
    with pytest.raises(OSError, match="No space"), replacing(tmp_path / "table.md") as path:
        half(path)
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == [("table.md", "before")]


def test_what_was_printed_is_read_as_it_stands():
    cell = Cell("", "", "77.10 +- 10.2", (), Value)
    assert (cell.printed, cell.decimals) == (Value(77.1, 10.2), 2)
    assert (Cell("", "", "-3", (), Value).printed, Cell("", "", "-3", (), Value).decimals) == (
        Value(-3.0),
        0,
    )
    assert Cell("", "", "", (), Value).printed is None
    with pytest.raises(ValueError, match="published: '77 percent' is not a number"):
        Cell("", "", "77 percent", (), Value)


def test_equal_trainings_are_one_and_others_have_folders_of_their_own():
    again = Training("quickstart", "fed_avg", dict(reversed(SMALL.items())), 4, 2, 2)
    assert (again, again.key, hash(again)) == (PLAIN, PLAIN.key, hash(PLAIN))
    others = [
        training("fed_avg", p=0.2),
        training("dp_fed_avg"),
        dataclasses.replace(PLAIN, rounds=5),
        dataclasses.replace(PLAIN, seeds=1),
        dataclasses.replace(PLAIN, every=None),
        dataclasses.replace(PLAIN, config="other"),
    ]
    assert len({PLAIN.key, *(t.key for t in others)}) == 7
    long = [training("fed_avg", name="x" * 200 + end) for end in "ab"]
    assert long[0].key != long[1].key
    assert max(len(t.key) for t in long) < 255


@pytest.mark.parametrize(
    ("scale", "rounds", "seeds", "name"),
    [
        (Scale(), 180, 5, "full"),
        (Scale(0.05), 9, 1, "scale-0.05"),
        (Scale(0.001), 1, 1, "scale-0.001"),
        (Scale(0.5, 3), 90, 3, "scale-0.5-seeds-3"),
        (Scale(1, 1), 180, 1, "seeds-1"),
    ],
)
def test_scales(scale, rounds, seeds, name):
    assert (scale.of(180), scale.seeds(5), scale.name) == (rounds, seeds, name)
