"""Laws of whatever reads run folders: tables, figures, reports, of runs of every kind."""

import csv
import io
import itertools
import json
import re
from pathlib import Path

import numpy as np
import recorded
from reported import text, tree
from tiers import every

from fedpriv import experiments
from fedpriv.core.json_values import MARK
from fedpriv.experiments.commands import compare
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.runs.run_folder import runs_of
from fedpriv.experiments.tables import plots, terminal
from fedpriv.experiments.tables.report import charts
from fedpriv.privacy.epsilon_words import hyphenated

PUBLIC = Public(("accuracy", "loss"))
CLIENTS, BY_GROUP = ("clients", "personal", "groups"), ("groups",)
QUICK = ("table", "files")  # readers that draw nothing


def of_files(folder: Path, out: Path, *options: str) -> str:
    """What the command writes as Markdown, LaTeX and CSV."""
    files = [out / f"t.{kind}" for kind in ("md", "tex", "csv")]
    assert compare.main([str(folder), *options, "--output", *map(str, files)]) == 0
    # as LaTeX writes it, too
    return "\n".join(file.read_text() for file in files).replace("\\_", "_")


READERS = {
    "table": lambda folder, out: experiments.table(folder).to_csv(),
    "files": of_files,
    "terminal": lambda folder, out: "".join(terminal.table(r.results) for r in runs_of(folder)[0]),
    "by client": lambda folder, out: of_files(folder, out, "--by", "client"),
    "by group": lambda folder, out: of_files(folder, out, "--by", "group"),
    "above": lambda folder, out: of_files(folder, out, "--above", "dp_fed_avg"),
    "figure": lambda folder, out: experiments.figure(folder, out / "f.svg").path.read_text(),
    "groups' figure": lambda folder, out: experiments.figure(
        folder, out / "f.svg", by="group"
    ).path.read_text(),
    "page": lambda folder, out: text(tree(experiments.report(folder, out / "p.html"))),
}
ONLY = {
    "terminal": [kind for kind in recorded.KINDS if kind != "going on"],
    "by client": CLIENTS,
    "by group": BY_GROUP,
    "groups' figure": BY_GROUP,
    "above": ["private", "claimed of records", "clients", "statistics", "audited"],
    # Of other kinds the curves and the pages' tables are read below, which saves to draw and write them.
    "figure": ("private", "one seed", "going on", "sweep", "old"),
    "page": ("private", "going on", "groups", "sweep", "audited"),
}
READ = [(r, kind) for r in READERS for kind in ONLY.get(r, recorded.KINDS)]


@every(
    "read", READ, kind=lambda read: (read[0], read[0] in QUICK and recorded.SPECIAL.get(read[1]))
)
def test_every_reader_names_every_algorithm(read, tmp_path):
    """Also those whose name is in another's."""
    reader, kind = read
    folder = recorded.made(kind).path
    said = READERS[reader](folder, tmp_path)
    for run in runs_of(folder)[0]:
        left, names = said, map(run.results.short_name_of, run.lines)
        for name in sorted(names, key=len, reverse=True):
            assert name in left
            left = left.replace(name, "")


def meaning(number) -> tuple[str, ...]:
    """What has to be said of an epsilon, in words."""
    words = (f"{number.unit} level", f"view {number.view.replace('_', ' ')}")
    return (*words, f"{hyphenated(number.relation)} adjacency", f"δ = {number.delta:.3g}")


def reports(folder):
    """Of the runs that have ended: algorithm and what is certified of it."""
    for run in runs_of(folder)[0]:
        for name, report in run.results.privacy.items():
            yield run, name, report


@every("kind", [*recorded.KINDS], kind=recorded.SPECIAL.get)
def test_every_epsilon_of_a_table_says_what_it_means(kind, tmp_path):
    """In columns beside it, by a letter below it, in the caption."""
    folder = recorded.made(kind).path
    of_files(folder, tmp_path, "--views", "third_party", "server", "server_secagg")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    markdown = (tmp_path / "t.md").read_text()
    head, _, *lines = markdown.splitlines()
    cells = [
        dict(zip(head.split(" | "), line.split(" | "), strict=True)) for line in lines[: len(rows)]
    ]
    below = dict(re.findall(r"^- ([a-z]): (.*)$", markdown, re.MULTILINE))
    caption = (tmp_path / "t.tex").read_text().split(r"\begin{tabular}")[0]
    for (_, _, report), row, shown in zip(reports(folder), rows, cells, strict=True):
        numbers = {f"certified_{view}": c for view, c in report.certified.items()}
        numbers |= {"claimed": report.claimed} if report.claimed else {}
        for of, c in numbers.items():
            said = [row[f"{of}_{part}"] for part in ("unit", "view", "relation")]
            assert said == [c.unit, c.view, c.relation]
            assert float(row[f"{of}_delta"]) == c.delta
            assert float(row[f"{of}_epsilon"]) == c.epsilon
            assert row.get(f"{of}_basis", None) == getattr(c, "basis", None)
            column = "ε claimed" if of == "claimed" else f"ε, {c.view.replace('_', ' ')}"
            (cell,) = (x.strip(" |") for name, x in shown.items() if name.strip(" |") == column)
            if not np.isfinite(c.epsilon):
                assert cell == "not private"
                continue
            number, letter = re.match(r"(\S+) \[(\w)\]", cell).groups()
            assert number == f"{c.epsilon:.4g}"
            assert all(word in below[letter] for word in meaning(c))
            status = f"{c.status} by" if of == "claimed" else f"certified ({c.basis})"
            assert status in below[letter]
            assert cell.endswith("not proved") == (not getattr(c, "sound", True))
            assert rf"\textsuperscript{{{letter}}}\,{c.unit} level, view" in caption


@every("kind", [*recorded.KINDS], kind=lambda kind: kind in recorded.SPECIAL)
def test_every_epsilon_of_a_page_says_what_it_means(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
    folder = recorded.made(kind).path
    root = tree(experiments.report(folder, tmp_path / "p.html"))
    said = text(root)
    for run in runs_of(folder)[0]:
        assert all(run.results.short_name_of(name) in said for name in run.lines)
    found = [rows for caption, rows in every_table(root) if caption.startswith("Epsilons of")]
    kept = {tuple(row[:6]) for _, *rows in found for row in rows}
    for _, _, report in reports(folder):
        for c in report.certified.values():
            epsilon = f"{c.epsilon:.4g}" if np.isfinite(c.epsilon) else "∞"
            words = (f"certified, {c.basis}", epsilon, f"{c.delta:.3g}", c.unit)
            assert any(
                row[0].startswith(c.view) and row[2].startswith(epsilon) and row[1] == words[0]
                and row[3:5] == words[2:] and row[5] == hyphenated(c.relation)
                for row in kept
            )  # fmt: skip
            assert all(assumption in said for assumption in c.assumptions[:1])
        if (claim := report.claimed) and not claim.sound:
            assert any(row[1] == f"{claim.status}, not proved for this run" for row in kept)
            assert all(reason in said for reason in claim.reasons)
        if any(report.statistics.values()):
            assert any(row[1].startswith("of these the statistics, alone") for row in kept)


def every_table(root):
    """(caption, rows of cells) of all, also of those that share their caption."""
    for table in root.iter("table"):
        yield next(iter(tables_of(table)))


def tables_of(table):
    return [(text(table.find("caption")), [[text(c) for c in row] for row in table.iter("tr")])]


@every("kind", [*recorded.KINDS], kind=recorded.SPECIAL.get)
def test_every_private_number_is_marked(kind, tmp_path, capsys):
    """In files, frames and tables: what is no metric of the score on public records."""
    folder = recorded.made(kind).path
    for run in runs_of(folder)[0]:
        lines = [line for of in run.lines.values() for line in of]
        names = {*(n for line in lines for n in (*line.metrics, *line.diagnostics_not_private))}
        assert names - {*PUBLIC.of_score}
        assert {*run.curves["metric"]} == {PUBLIC.marked(name) for name in names}
        for line in (run.path / "metrics.jsonl").read_text().splitlines():
            assert {*json.loads(line)["metrics"]} <= {*PUBLIC.of_score}
        for name in [*sorted(names)[:3], "accuracy"]:
            columns = experiments.table(run.path, metric=name).columns
            assert f"{PUBLIC.marked(name)}_final_mean" in columns
            assert (name in PUBLIC) == (f"{name}_final_mean" in columns)
    private = sorted(names - {*PUBLIC.of_score})[0]
    assert compare.main([str(folder), "--metric", private]) == 0
    assert ", not private |" in capsys.readouterr().out.splitlines()[0]
    for column in experiments.table(folder).columns:
        if re.search("uplink|downlink|rounds_per_second", column):
            assert column.endswith(MARK)


X = {
    "round": lambda line: line.round,
    "uplink": lambda line: line.uplink_mb_per_client,
    "epsilon": lambda line: line.privacy.certified.epsilon,
}
DRAWN = [(kind, x) for kind, x in itertools.product(recorded.KINDS, X) if kind != "sweep"]
DRAWN = [each for each in DRAWN if each != ("plain", "epsilon")]


@every("drawn", DRAWN, kind=lambda drawn: drawn[1])
def test_every_curve_is_drawn_through_what_was_recorded(drawn, tmp_path, monkeypatch):
    """Mean and deviation of each evaluation, accuracies in percent; nothing by an epsilon that is infinite."""
    (kind, x), seen = drawn, []
    monkeypatch.setattr(plots, "save", lambda figure, paths: seen.append(figure))
    folder = recorded.made(kind).path
    made = experiments.figure(folder, tmp_path / "f.pdf", by=x, metric=["accuracy", "loss"])
    (run,), _ = runs_of(folder)
    for axes, metric, factor in zip(seen[0].axes, ("accuracy", "loss"), (100, 1), strict=True):
        curves = {line.get_label(): line.get_xydata() for line in axes.lines}
        bands = [each.get_paths()[0].vertices for each in axes.collections]
        expected = {}
        for name, lines in run.lines.items():
            points = [(X[x](line), factor * line.metric(metric).mean) for line in lines]
            if np.isfinite([at for at, _ in points]).all():
                expected[run.name_of(name)] = points
                last = lines[-1].metric(metric)
                top = factor * (last.mean + (last.std or 0))
                assert any(np.isclose(band, (points[-1][0], top)).all(1).any() for band in bands)
        assert curves.keys() == expected.keys()
        for name, points in expected.items():
            np.testing.assert_allclose(curves[name], points)
    assert ("ε: " in made.caption) == (x == "epsilon")
