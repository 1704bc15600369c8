"""Runs side by side: the table, the picture, wrong input."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from reported import record

from experiments import compare
from experiments.runs import read


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two runs with different settings, and what was recorded of the first."""
    base = tmp_path_factory.mktemp("compare")
    given = {"name": "dp_scaffold_synthetic", "rounds": (20, 40), "seeds": 2}
    histories = record(base / "0", **given)
    record(base / "5", seed=1, beta=5.0, status="interrupted", **given)
    return [str(base / "0"), str(base / "5")], histories


def test_a_table_with_what_differs_and_what_epsilon_means(recorded, capsys):
    folders, histories = recorded
    assert compare.main(folders) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("| settings | algorithm |")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:4]]
    names = ["DP-SCAFFOLD", "DP-FedAvg"]
    assert [row[1] for row in rows] == names * 2
    assert all(f"beta {beta}" in rows[i][0] for i, beta in enumerate(("0.0", "0.0", "5.0", "5.0")))
    assert ["(interrupted)" in row[0] for row in rows] == [False, False, True, True]
    accuracy = 100 * histories["dp_scaffold"].accuracy[-1]
    assert rows[0][3] == f"{accuracy.mean():.2f} +- {accuracy.std(ddof=1):.2f}"
    privacy = read(Path(folders[0])).summary.privacy["dp_scaffold"]
    for row in rows:
        assert row[5] == "record"
        assert row[7].endswith("(replace-one), not proved")
        assert row[8].endswith("(replace-one, constructed)")
        assert float(row[7].split()[0]) > float(row[8].split()[0])
    assert float(rows[0][8].split()[0]) == pytest.approx(
        privacy.certified["third_party"].epsilon, rel=1e-3
    )
    assert "tuned without privacy" in "\n".join(lines[4:])


def test_every_algorithm_is_drawn_with_its_numbers_and_its_colour(recorded, tmp_path):
    folders, histories = recorded
    runs = compare.evaluated([Path(folder) for folder in folders])
    apart, together = (compare.columns(runs, one) for one in (False, True))
    assert [len(curves) for curves in apart.values()] == [2, 2]
    (curves,) = together.values()
    labels = [one.look["label"] for one in curves]
    assert [label.partition(",")[0] for label in labels] == ["DP-SCAFFOLD", "DP-FedAvg"] * 2
    assert "beta 5.0" in labels[2]
    assert len({one.look["color"] for one in curves}) == 4
    axes = Figure().subplots()
    compare.draw(axes, curves[0], "log_gap")
    (line,) = axes.lines
    expected = [e.measures["log_gap"].mean() for e in histories["dp_scaffold"].evaluations]
    np.testing.assert_allclose(line.get_xydata(), np.stack([[20, 40], expected], 1))
    assert line.get_color() == curves[0].look["color"]
    for option in ([], ["--together"]):
        path = tmp_path / f"p{len(option)}.png"
        given = ["--metrics", "accuracy", "log_gap", "--output", str(path)]
        assert compare.main([*folders, *option, *given]) == 0
        assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--together"], "--together: there is no picture"),
        ([], "arguments are required: FOLDER"),
        (["--metrics", "accuracy"], "--metrics: there is no picture"),
        (
            ["--metrics", "height", "--output", "p.png"],
            "--metrics: no 'height'; there are accuracy",
        ),
        (["--output", "p.nonsense"], "--output: cannot write"),
        (["--outptu", "p.png"], "unrecognized arguments"),
    ],
)
def test_bad_input(args, said, recorded, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = compare.main([*(recorded[0] if args else []), *args])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_a_folder_without_a_run(tmp_path, capsys):
    for content in (None, "", "[]"):
        if content is not None:
            (tmp_path / "config.json").write_text(content)
        assert compare.main([str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert str(tmp_path) in error
        assert error.count("\n") == 1
    begun = {"config": "quickstart", "settings": {}}
    (tmp_path / "config.json").write_text(json.dumps(begun))
    assert compare.main([str(tmp_path)]) == 2
    assert "has no evaluation yet; leave it out" in capsys.readouterr().err
    with pytest.raises(ValueError, match="has no evaluation yet"):
        compare.main([str(tmp_path), "--traceback"])


def test_the_folder_of_a_sweep_is_all_its_points(tmp_path, capsys):
    for number, p in enumerate((0.1, 0.5)):
        record(tmp_path / f"p={p}", rounds=(5,), seeds=1, seed=number, p=p)
    points = [{"folder": f"p={p}"} for p in (0.5, 0.1)]
    (tmp_path / "sweep.json").write_text(json.dumps({"points": points}))
    assert compare.main([str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| p ")]
    assert [line.split()[2] for line in lines] == ["0.5"] * 4 + ["0.1"] * 4
