"""Runs side by side: what the table and the picture have beside the laws of `test_readers.py`."""

import csv
import io
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from recorded import made
from reported import edit, record

from fedpriv import experiments
from fedpriv.experiments.base.formats import setting
from fedpriv.experiments.commands import compare
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.runs.run_names import names
from fedpriv.experiments.tables import frame, grid, plots, terminal
from fedpriv.experiments.tables.latex import escaped
from fedpriv.privacy import VIEWS

RECORDS, OTHER = "claimed of records", "other settings"


@pytest.fixture
def pair():
    """Folders of two runs with different settings."""
    return [made(kind).path for kind in (RECORDS, OTHER)]


def cells(printed):
    """Rows of a Markdown table, the head first."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_a_table_says_what_differs_and_has_the_last_scores(pair, capsys):
    assert compare.main([*map(str, pair)]) == 0
    head, _, *rows = cells(printed := capsys.readouterr().out)
    assert head[:2] == ["run", "algorithm"]
    assert [row[1] for row in rows] == ["DP-SCAFFOLD", "DP-FedAvg"] * 2
    assert all(f"beta = {beta}" in row[0] for row, beta in zip(rows, "0055", strict=True))
    assert ["(interrupted)" in row[0] for row in rows] == [False, False, True, True]
    accuracy = 100 * made(RECORDS).histories["dp_scaffold"].accuracy[-1]
    assert [row[2] for row in rows] == ["40"] * 2 + ["40 of 400"] * 2
    assert [row[3:5] for row in rows] == [["3", "60"]] * 4
    assert rows[0][5] == f"{accuracy.mean():.2f} ± {accuracy.std(ddof=1):.2f}"
    assert "tuned without privacy" in printed
    assert "not trained to the end; its epsilon counts" in printed


def test_every_algorithm_is_drawn_with_its_colour(pair):
    runs = compare.evaluated(pair)
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
    evaluations = made(RECORDS).histories["dp_scaffold"].evaluations
    expected = [e.measures["log_gap"].mean() for e in evaluations]
    np.testing.assert_allclose(line.get_xydata(), np.stack([[20, 40], expected], 1))
    assert line.get_color() == curves[0].look["color"]


def cells_of(line):
    """Of a row of LaTeX, at the ampersands that are not escaped."""
    return re.split(r"(?<!\\)&", line.strip().removesuffix(r"\\"))


def test_latex_is_well_formed_whatever_the_names(tmp_path):
    nasty = r"a_b & 100% #1 $x$ {y} ^~\\ <é>"
    shutil.copytree(made("private").path, tmp_path / nasty)
    table = tmp_path / "table.tex"
    assert compare.main([str(tmp_path / nasty), "--names", nasty, "--output", str(table)]) == 0
    text = table.read_text()
    bare = re.sub(r"\\[\\{}$&%#_]", "", text)  # what is escaped does not count
    depth = np.cumsum([(c == "{") - (c == "}") for c in bare])
    assert depth.min() >= depth[-1] == 0
    assert bare.count("$") % 2 == 0
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    head = text.split(r"\toprule")[1].split(r"\midrule")[0]
    (columns,) = re.findall(r"begin{tabular}{(\w+)}", text)
    assert {len(cells_of(line)) for line in [head, *body]} == {len(columns)}
    assert len(body) == 4
    assert sum("not private" in line for line in body) == 1


@pytest.mark.parametrize("kind", ["md", "tex", "csv"])
def test_the_best_is_said_to_be_chosen_on_the_test_set(kind, pair, tmp_path):
    """Where it is asked for."""
    path = tmp_path / f"t.{kind}"
    for options in ([], ["--best"]):
        assert compare.main([*map(str, pair), *options, "--output", str(path)]) == 0
        said = path.read_text()
        if kind == "csv":
            rows = list(csv.DictReader(io.StringIO(said)))
            assert [row["best_chosen_on"] for row in rows] == ["test set"] * 4
        else:
            assert ("chosen on the test" in said) == bool(options)
            assert ("est accuracy" in said) == bool(options)


def test_a_curve_is_named_by_few_settings_or_by_its_folder(tmp_path):
    run = read(made("plain").path)

    def named(folder, **changes):
        settings = run.begun.settings | changes
        return replace(
            run, path=tmp_path / f"{folder}", begun=replace(run.begun, settings=settings)
        )

    pair = [named("one"), named("two", p=0.3)]
    assert names(pair)[1] == "p = 0.3"
    many = named("three", p=0.2, clip_norm=2.0, noise_multiplier=3.0, clients=50)
    assert names([*pair, many]) == ["one", "two", "three"]
    assert names([named(x, target_epsilon=x) for x in (1.0, 4.5)]) == ["ε = 1", "ε = 4.5"]


@pytest.mark.parametrize("kind", ["md", "tex", "csv"])
def test_a_paper_says_what_was_stopped_early(kind, tmp_path):
    path = tmp_path / f"t.{kind}"
    assert compare.main([str(made("stopped").path), "--output", str(path)]) == 0
    said = " ".join(path.read_text().split())
    assert said.count("20 of 40" if kind != "csv" else "20,40,0,stopped at round 20") == 1
    assert "accuracy reached 0.8" in said
    if kind != "csv":
        assert "selected on the test set" in said
        assert "of all N rounds planned" in said


def test_a_stop_by_records_of_clients_says_so(tmp_path):
    """Whether the metric is over clients, or the test records are theirs; no epsilon covers the choice."""
    held_out = "stopped at round 10: held_out_auc_mean no higher for 1 evaluation"
    ways = [("held-out records", {"stopped": {"top_k": held_out}}), ("test records", {})]
    for i, (records, changes) in enumerate(ways):
        folder = shutil.copytree(made("stopped").path, tmp_path / f"run{i}")
        edit(folder / "summary.json", **changes)
        edit(folder / "config.json", own_test=not changes)
        table = experiments.table(folder)
        (note,) = (n for n in table.attrs["notes"] if "stopped early" in n)
        assert f"stopped early, by the clients' {'own ' * (not changes)}{records}" in note
        assert "no epsilon covers this choice" in note
        assert "test set" not in note
        top_k = table.set_index("algorithm").loc["top_k"]
        assert np.isinf(top_k["certified_third_party_epsilon"])
        assert top_k["not_covered"].startswith("not covered: the last round was chosen")
    assert table["best_chosen_on"].isna().all()  # no best is chosen by test records of clients


def test_a_run_that_was_killed_has_the_noise_it_was_trained_with(tmp_path):
    """Whatever wrote its config.json: an older version has the numbers alone."""
    noise = {"top_k": 63.86, "dp_fed_avg": 50.0}
    solved = {name: {"noise_multiplier": x} for name, x in noise.items()}
    for name, about in (("new", {"solved": solved}), ("old", {})):
        record(tmp_path / name, rounds=(5,), status=None, algorithms=(*noise,))
        edit(tmp_path / name / "config.json", noise=noise, **about)
        found = experiments.table(tmp_path / name).set_index("algorithm")
        assert found["trained_noise_multiplier"].to_dict() == noise
        assert read(tmp_path / name).results.solved == solved


def test_the_run_itself_marks_what_was_stopped():
    rows, _, below = terminal.table(read(made("stopped").path).summary).partition("\n\n")
    (row,) = (line for line in rows.splitlines() if " of " in line)
    assert row.startswith("Fed-SMP top_k ")
    assert "20 of 40" in row
    below = " ".join(below.split())
    assert "Fed-SMP top_k" in below
    assert "stopped early, by the test set (accuracy reached 0.8" in below


def test_noise_and_uplink_stand_in_the_table(tmp_path, capsys):
    folder = made("stopped").path
    assert compare.main([str(folder), "--output", str(tmp_path / "t.tex")]) == 0
    head, _, *rows = cells(capsys.readouterr().out)
    of = {row[1]: dict(zip(head, row, strict=True)) for row in rows}
    sent = read(folder).summary.uplink_mb_per_client["dp_fed_avg"]
    assert of["FedAvg"]["noise multiplier"] == "-"
    assert of["DP-FedAvg"]["noise multiplier"] == "4"
    assert of["DP-FedAvg"]["MB up"] == f"{sent:.4g}"
    text = (tmp_path / "t.tex").read_text()
    head = cells_of(text.split(r"\toprule")[1].split(r"\midrule")[0])
    (line,) = (
        line for line in text.partition(r"\midrule")[2].splitlines() if "& DP-FedAvg &" in line
    )
    row = {n.strip(): x.strip() for n, x in zip(head, cells_of(line), strict=True)}
    assert (row["Noise multiplier"], row["MB up"]) == ("4", f"{sent:.4g}")


def test_a_noise_that_was_solved_for_stands_in_the_table():
    summary = read(made("stopped").path).summary
    for solved, said in (({"noise_multiplier": 1.2345}, "1.234"), ({"ldp.epsilon": 0.5}, "0.5")):
        of = replace(summary, solved={"top_k": solved})
        (field,), row = solved, frame.Row({"run": "one"}, "top_k", of, "one")
        shown = grid.grid([row])
        cell = shown.rows[0][shown.head.index("noise multiplier")]
        assert cell == (said if field == "noise_multiplier" else f"{field} {said}")
        assert frame.frame([row])[f"trained_{field}"][0] == solved[field]


def test_the_columns_follow_the_views_that_runs_show():
    run = read(made("private").path)

    def shown(**settings):
        return replace(run.results, settings=run.results.settings | settings)

    own = shown(view="server_secagg")
    assert grid.own_views([own]) == ["server_secagg"]
    head = grid.grid([frame.Row({"run": "one"}, "top_k", own, "one")]).head
    epsilons = ["ε claimed", "ε, third party", "ε, server secagg"]
    assert [name for name in head if name[0] == "ε"] == epsilons
    assert grid.own_views([shown(views="all")]) == list(VIEWS)


def test_settings_are_named_for_people():
    assert setting("noise_multiplier", 0.1 + 0.2) == "noise multiplier = 0.30000000000000004"
    assert setting("local.learning_rate", [1, 2]) == "local learning rate = 1 2"
    assert setting("flag", False) == "flag = false"
    assert setting("seeds", 1) == "seeds = 1"
    assert escaped("ε = 4") == r"$\varepsilon$ = 4"
