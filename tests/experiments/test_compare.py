"""Runs side by side: the table, the picture, wrong input."""

import pytest

from experiments import compare, run

SMALL = ["--clients", "4", "--records", "20", "--client-rate", "0.5", "--rounds", "4"]
SMALL += ["--every", "2", "--local-steps", "2", "--warm-start", "1", "--noise-multiplier", "5"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = []
    for beta in ("0", "5"):
        folder = tmp_path_factory.mktemp("runs") / beta
        given = ["--beta", beta, "--seeds", "2", "--output", str(folder)]
        assert run.main(["dp_scaffold_synthetic", *SMALL, *given]) == 0
        made.append(str(folder))
    return made


def test_a_table_with_what_differs_and_what_epsilon_means(folders, capsys):
    assert compare.main(folders) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| settings | algorithm |")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:6]]
    names = ["DP-SCAFFOLD", "DP-FedAvg"]
    expected = [[f"beta {beta}", name] for beta in ("0.0", "5.0") for name in names]
    assert [row[:2] for row in rows] == expected
    assert all("+-" in row[3] and float(row[5]) > float(row[6]) for row in rows)
    below = "\n".join(lines[6:])
    assert "epsilon certified, third_party: record level, replace-one adjacency, delta" in below
    assert "epsilon claimed, third_party: record level, replace-one adjacency, delta" in below


def test_a_picture(folders, tmp_path):
    path = tmp_path / "p.png"
    given = ["--metrics", "accuracy", "log_gap", "user_drift", "--output", str(path)]
    assert compare.main([*folders, *given]) == 0
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_every_algorithm_is_drawn_with_the_numbers_of_its_lines(folders, tmp_path):
    from matplotlib.figure import Figure

    axes, found = Figure().subplots(), compare.read(tmp_path.parent / folders[0])
    compare._draw(axes, found, "log_gap")
    assert [line.get_label() for line in axes.lines] == ["DP-SCAFFOLD", "DP-FedAvg"]
    own = [x for x in found.lines if x["algorithm"] == "dp_scaffold"]
    expected = [x["diagnostics_not_private"]["log_gap"]["mean"] for x in own]
    assert list(axes.lines[0].get_ydata()) == pytest.approx(expected)


def test_bad_input(folders, tmp_path, capsys):
    assert compare.main([str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
    path = str(tmp_path / "p.png")
    assert compare.main([*folders, "--metrics", "height", "--output", path]) == 2
    error = capsys.readouterr().err
    assert "metrics: no 'height'; there are accuracy, loss, " in error
    assert error.count("\n") == 1
