"""Runs side by side: the table, the picture, wrong input."""

from pathlib import Path

import pytest

from experiments import compare, run

pytestmark = pytest.mark.usefixtures("quick_to_compile")

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
    for row in rows:
        assert "+-" in row[3]
        assert row[5] == "record"
        claimed, third_party = row[7], row[8]
        assert claimed.endswith("(replace-one)")
        assert third_party.endswith("(replace-one)")
        assert float(claimed.split()[0]) > float(third_party.split()[0])
    assert "no epsilon covers the preprocessing" in "\n".join(lines[6:])


def test_a_run_that_was_cut_short_is_shown_as_such(folders):
    found = compare.read(Path(folders[0]))
    cut = found._replace(summary=found.summary | {"status": "interrupted"})
    assert "(interrupted)" in compare.table([cut])
    assert "(interrupted)" not in compare.table([found])


def test_a_picture(folders, tmp_path):
    path = tmp_path / "p.png"
    given = ["--metrics", "accuracy", "log_gap", "user_drift", "--output", str(path)]
    assert compare.main([*folders, *given]) == 0
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_every_algorithm_is_drawn_with_its_numbers_and_its_colour(folders):
    from matplotlib.figure import Figure

    axes, found = Figure().subplots(), compare.read(Path(folders[0]))
    looks = {"dp_scaffold": compare.Look("ours", "C5"), "dp_fed_avg": compare.Look("theirs", "C3")}
    compare._draw(axes, found, "log_gap", looks)
    assert [line.get_label() for line in axes.lines] == ["ours", "theirs"]
    assert [line.get_color() for line in axes.lines] == ["C5", "C3"]
    own = [x for x in found.lines if x["algorithm"] == "dp_scaffold"]
    expected = [x["diagnostics_not_private"]["log_gap"]["mean"] for x in own]
    assert list(axes.lines[0].get_ydata()) == pytest.approx(expected)


def test_all_runs_in_one_panel(folders, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(compare, "_picture", lambda columns, *_: drawn.update(columns))
    assert compare.main([*folders, "--together", "--output", "p.png"]) == 0
    (runs,) = drawn.values()
    looks = [look for _, looks in runs for look in looks.values()]
    assert [look.label for look in looks] == [
        f"{name}, beta {beta}" for beta in ("0.0", "5.0") for name in ("DP-SCAFFOLD", "DP-FedAvg")
    ]
    assert len({look.colour for look in looks}) == 4
    monkeypatch.undo()
    path = tmp_path / "p.png"
    assert compare.main([*folders, "--together", "--output", str(path)]) == 0
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
def test_bad_input(args, said, folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = compare.main([*(folders if args else []), *args])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_a_folder_without_a_run(content, tmp_path, capsys):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
        (tmp_path / "metrics.jsonl").write_text("")
    assert compare.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "does not hold a run that ended; give a run folder" in error
    assert error.count("\n") == 1


def test_the_whole_traceback_is_there_for_the_asking(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    with pytest.raises(ValueError, match="does not hold a run"):
        compare.main([str(tmp_path)])


def test_the_folder_of_a_sweep(tmp_path, capsys):
    (tmp_path / "sweep.json").write_text("{}")
    assert compare.main([str(tmp_path)]) == 2
    assert f"give its points, {tmp_path}/*/" in capsys.readouterr().err
