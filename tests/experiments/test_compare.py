"""Runs side by side: the table, the picture, wrong input."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from reported import edit, record

import experiments
from experiments import compare
from experiments.base.formats import setting
from experiments.runs.run_folder import read
from experiments.runs.run_names import names
from experiments.tables import frame, grid, plots, terminal
from experiments.tables.latex import escaped
from fedpriv.privacy import VIEWS


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
    assert head.startswith("| run | algorithm |")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:4]]
    names = ["DP-SCAFFOLD", "DP-FedAvg"]
    assert [row[1] for row in rows] == names * 2
    assert all(f"beta = {beta}" in rows[i][0] for i, beta in enumerate("0055"))
    assert ["(interrupted)" in row[0] for row in rows] == [False, False, True, True]
    accuracy = 100 * histories["dp_scaffold"].accuracy[-1]
    assert [row[2] for row in rows] == ["40"] * 2 + ["40 of 400"] * 2
    assert [row[3:5] for row in rows] == [["2", "60"]] * 4
    assert rows[0][5] == f"{accuracy.mean():.2f} ± {accuracy.std(ddof=1):.2f}"
    privacy = read(Path(folders[0])).summary.privacy["dp_scaffold"]
    below = "\n".join(lines[4:])
    for row in rows:
        for cell, status in ((row[7], "claimed by .*, not proved"), (row[8], r"certified \(con")):
            letter = cell.split("[")[1][0]
            assert re.search(f"- {letter}: record level, view .*, replace-one.*{status}", below)
        assert row[7].endswith(" not proved")
        assert float(row[7].split()[0]) > float(row[8].split()[0])
    assert float(rows[0][8].split()[0]) == pytest.approx(
        privacy.certified["third_party"].epsilon, rel=1e-3
    )
    assert "tuned without privacy" in below
    assert "not trained to the end; its epsilon counts" in below


def test_every_algorithm_is_drawn_with_its_numbers_and_its_colour(recorded, tmp_path):
    folders, histories = recorded
    runs = compare.evaluated([Path(folder) for folder in folders])
    apart, together = (plots.columns(runs, one) for one in (False, True))
    assert [len(curves) for curves in apart.values()] == [2, 2]
    (curves,) = together.values()
    labels = [one.look["label"] for one in curves]
    assert [label.partition(",")[0] for label in labels] == ["DP-SCAFFOLD", "DP-FedAvg"] * 2
    assert "beta = 5" in labels[2]
    looks = {(one.look["color"], str(one.look["linestyle"]), one.look["marker"]) for one in curves}
    assert len(looks) == 4
    axes = Figure().subplots()
    plots.draw(axes, curves[0], "log_gap")
    (line,) = axes.lines
    expected = [e.measures["log_gap"].mean() for e in histories["dp_scaffold"].evaluations]
    np.testing.assert_allclose(line.get_xydata(), np.stack([[20, 40], expected], 1))
    assert line.get_color() == curves[0].look["color"]
    for option in ([], ["--together"]):
        path = tmp_path / f"p{len(option)}.png"
        given = ["--metric", "accuracy", "log_gap", "--output", str(path)]
        assert compare.main([*folders, *option, *given]) == 0
        assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--together"], "--together: there is no picture"),
        ([], "folders: none is given"),
        (["--metric", "height"], "metric: there is no 'height'; there are accuracy, loss, log_gap"),
        (["--by", "client", "--best"], "--best: it has no meaning by client"),
        (["--by", "client", "--output", "p.png"], "by: client is for tables, not for p.png"),
        (["--by", "client"], "by: nothing was recorded client by client"),
        (["--output", "p.nonsense"], "output: cannot write"),
        (["--output", "config.json/x.tex"], "output: cannot write"),
        (["--names", "one"], "names: 'one' for 0, 5; give each run its own name"),
        (["--names", "one", "one"], "names: 'one' 'one' for 0, 5; give each run its own name"),
        (["--outptu", "p.png"], "--outptu: unknown field"),
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
        own = {"p": p, "algorithms": ("fed_avg",)}
        record(tmp_path / f"p={p}", rounds=(5,), seeds=1, seed=number, **own)
    points = [{"folder": f"p={p}"} for p in (0.5, 0.1)]
    (tmp_path / "sweep.json").write_text(json.dumps({"points": points}))
    assert compare.main([str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| p ")]
    assert [line.split()[3] for line in lines] == ["0.5", "0.1"]


def cells_of(line):
    """Of a row of LaTeX, at the ampersands that are not escaped."""
    return re.split(r"(?<!\\)&", line.removesuffix(r"\\"))


def test_latex_is_well_formed_whatever_the_names(tmp_path):
    nasty = r"a_b & 100% #1 $x$ {y} ^~\\ <é>"
    record(tmp_path / nasty, rounds=(5, 10), seeds=2)
    record(tmp_path / "plain", rounds=(5, 10), seeds=3, seed=1)
    folders = [str(tmp_path / nasty), str(tmp_path / "plain")]
    assert compare.main([*folders, "--output", str(tmp_path / "o")]) == 0
    text = (tmp_path / "o" / "table.tex").read_text()
    bare = re.sub(r"\\[\\{}$&%#_]", "", text)  # what is escaped does not count
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    head = text.split(r"\toprule")[1].split(r"\midrule")[0].strip()
    (columns,) = re.findall(r"begin{tabular}{(\w+)}", text)
    assert {len(cells_of(line)) for line in [head, *body]} == {len(columns)}
    assert len(body) == 8
    caption = text.split(r"\caption{")[1].split(r"\begin{tabular}")[0]
    for word in (
        "client level",
        "third party",
        "adjacency",
        r"$\delta$ = ",
        "certified (constructed)",
        "standard deviation",
    ):
        assert word in caption
    assert sum("not private" in line for line in body) == 2


def test_csv_has_the_numbers_of_the_summary(tmp_path):
    record(tmp_path / "run", rounds=(5, 10), seeds=2)
    assert compare.main([str(tmp_path / "run"), "--output", str(tmp_path / "t.csv")]) == 0
    summary = read(tmp_path / "run").summary
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(summary.rounds)
    for name, row in rows.items():
        spread = summary.final[name]["accuracy"]
        assert float(row["accuracy_final_mean"]) == spread.mean
        assert float(row["accuracy_final_std"]) == spread.std
        for view, certificate in summary.privacy[name].certified.items():
            assert float(row[f"certified_{view}_epsilon"]) == certificate.epsilon
            said = [
                row[f"certified_{view}_{part}"] for part in ("unit", "view", "relation", "basis")
            ]
            assert said == [certificate.unit, view, certificate.relation, certificate.basis]
            assert float(row[f"certified_{view}_delta"]) == certificate.delta


def test_the_best_evaluation_is_said_to_be_chosen_on_the_test_set(recorded, tmp_path, capsys):
    """In every format; without --best it is not there."""
    folders, _ = recorded
    assert compare.main(folders) == 0
    assert "chosen on the test" not in capsys.readouterr().out
    assert compare.main([*folders, "--best", "--output", str(tmp_path)]) == 0
    assert "chosen on the test" in capsys.readouterr().out
    for kind in ("md", "tex"):
        assert "chosen on the test" in (tmp_path / f"table.{kind}").read_text()
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        assert {row["best_chosen_on"] for row in csv.DictReader(file)} == {"test set"}


def test_a_curve_is_named_by_few_settings_or_by_its_folder(tmp_path):
    many = {"p": 0.2, "clip_norm": 2.0, "noise_multiplier": 3.0, "clients": 50}
    for name, settings in (("one", {}), ("two", {"p": 0.3}), ("three", many)):
        record(tmp_path / name, rounds=(5,), seeds=1, algorithms=("fed_avg",), **settings)
    pair = [read(tmp_path / name) for name in ("one", "two")]
    assert names(pair)[1] == "p = 0.3"
    assert names([*pair, read(tmp_path / "three")]) == ["one", "two", "three"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of which one algorithm was ended by the test set, at round 10 of 20."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    record(folder, rounds=(5, 10), seeds=2)
    of = json.loads((folder / "summary.json").read_text())
    planned = of["rounds_planned"] | {"top_k": 20}
    why = {"top_k": "stopped at round 10: accuracy reached 0.8"}
    edit(folder / "summary.json", rounds_planned=planned, stopped=why)
    return folder


@pytest.mark.parametrize("kind", ["md", "tex", "csv"])
def test_a_paper_says_what_was_stopped_early(kind, stopped, tmp_path):
    path = tmp_path / f"t.{kind}"
    assert compare.main([str(stopped), "--output", str(path)]) == 0
    said = " ".join(path.read_text().split())
    assert said.count("10 of 20" if kind != "csv" else "10,20,stopped at round 10") == 1
    assert "accuracy reached 0.8" in said
    if kind != "csv":
        assert "selected on the test set" in said
        assert "of all N rounds planned" in said


def test_a_stop_by_records_of_clients_says_so(stopped, tmp_path):
    """Whether the metric is over clients, or the test records are theirs; no epsilon covers the choice."""
    held_out = "stopped at round 10: held_out_auc_mean no higher for 1 evaluation"
    ways = [("held-out records", {"stopped": {"top_k": held_out}}), ("test records", {})]
    for i, (records, changes) in enumerate(ways):
        folder = shutil.copytree(stopped, tmp_path / f"run{i}")
        edit(folder / "summary.json", **changes)
        edit(folder / "config.json", own_test=not changes)
        (note,) = (n for n in experiments.table(folder).attrs["notes"] if "stopped early" in n)
        assert f"stopped early, by the clients' {'own ' * (not changes)}{records}" in note
        assert "no epsilon covers this choice" in note
        assert "test set" not in note
        table = experiments.table(folder).set_index("algorithm")
        assert np.isinf(table.loc["top_k", "certified_third_party_epsilon"])
        assert table.loc["top_k", "not_covered"].startswith(
            "not covered: the last round was chosen"
        )
    assert table["best_chosen_on"].isna().all()  # no best is chosen by test records of clients


def test_a_run_that_was_killed_has_the_noise_it_was_trained_with(tmp_path):
    """Whatever wrote its config.json: an older version has the numbers alone."""
    noise = {"top_k": 63.86, "dp_fed_avg": 50.0}
    solved = {name: {"noise_multiplier": x} for name, x in noise.items()}
    for name, about in (("new", {"solved": solved}), ("old", {})):
        record(tmp_path / name, rounds=(5,), status=None, algorithms=(*noise,))
        edit(tmp_path / name / "config.json", noise=noise, **about)
        frame = experiments.table(tmp_path / name).set_index("algorithm")
        assert frame["trained_noise_multiplier"].to_dict() == noise
        assert read(tmp_path / name).results.solved == solved


def test_the_run_itself_marks_what_was_stopped(stopped):
    shown = terminal.table(read(stopped).summary)
    rows, _, below = shown.partition("\n\n")
    (row,) = (line for line in rows.splitlines() if " of " in line)
    assert row.startswith("Fed-SMP top_k ")
    assert "10 of 20" in row
    below = " ".join(below.split())
    assert "Fed-SMP top_k" in below
    assert "stopped early, by the test set (accuracy reached 0.8" in below


def test_noise_and_uplink_and_best_only_where_asked(stopped, tmp_path, capsys):
    for given in ([], ["--best"]):
        path = tmp_path / f"{len(given)}.tex"
        assert compare.main([str(stopped), *given, "--output", str(path)]) == 0
        printed = capsys.readouterr().out
        lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
        head, _, *rows = lines
        in_tex = "Best accuracy" in path.read_text()
        assert ("best accuracy (%)" in head) == in_tex == bool(given)
        of = {row[1]: dict(zip(head, row, strict=True)) for row in rows}
        summary = read(stopped).summary
        assert of["FedAvg"]["noise multiplier"] == "-"
        assert of["DP-FedAvg"]["noise multiplier"] == "4"
        assert float(of["DP-FedAvg"]["MB up"]) == summary.uplink_mb_per_client["dp_fed_avg"]
        assert of["FedAvg"]["ε, third party"] == "not private"
        body = path.read_text().partition(r"\midrule")[2].splitlines()
        (line,) = (line for line in body if "& DP-FedAvg &" in line)
        cells = dict(zip(cells_of(tex_head(path)), cells_of(line), strict=True))
        assert cells[" Noise multiplier "].strip() == "4"
        assert cells[" MB up "].strip() == "0.1"


def tex_head(path):
    return path.read_text().split(r"\toprule")[1].split(r"\midrule")[0].strip()


def test_a_noise_that_was_solved_for_stands_in_the_table(stopped):
    summary = read(stopped).summary
    for solved, said in (({"noise_multiplier": 1.2345}, "1.234"), ({"ldp.epsilon": 0.5}, "0.5")):
        of = replace(summary, solved={"top_k": solved})
        (field,), row = solved, frame.Row({"run": "one"}, "top_k", of, "one")
        shown = grid.grid([row])
        cell = shown.rows[0][shown.head.index("noise multiplier")]
        assert cell == (said if field == "noise_multiplier" else f"{field} {said}")
        assert frame.frame([row])[f"trained_{field}"][0] == solved[field]


def test_the_columns_follow_the_views_that_runs_show(tmp_path):
    record(tmp_path / "run", rounds=(5,), seeds=1, view="server_secagg")
    run = read(tmp_path / "run")
    assert grid.own_views([run.results]) == ["server_secagg"]
    head = grid.grid(frame.rows([run])).head
    assert [name for name in head if name[0] == "ε"] == [
        *["ε claimed", "ε, third party", "ε, server secagg"]
    ]
    assert grid.own_views([replace(run.results, settings={"views": "all"})]) == list(VIEWS)


def test_settings_are_named_for_people(tmp_path):
    for target in (1.0, 4.5):
        record(tmp_path / f"{target}", rounds=(5,), seeds=1, target_epsilon=target)
    assert names([read(tmp_path / "1.0"), read(tmp_path / "4.5")]) == ["ε = 1", "ε = 4.5"]
    assert setting("noise_multiplier", 0.1 + 0.2) == "noise multiplier = 0.30000000000000004"
    assert setting("local.learning_rate", [1, 2]) == "local learning rate = 1 2"
    assert setting("flag", False) == "flag = false"
    assert setting("seeds", 1) == "seeds = 1"
    assert escaped("ε = 4") == r"$\varepsilon$ = 4"
