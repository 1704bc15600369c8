"""Tables and figures for papers: names, captions, room, TeX."""

import itertools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from recorded import made
from small import refused

from fedpriv import experiments
from fedpriv.experiments.commands import compare, report
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.runs.run_names import labelled, named
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.report import charts


@pytest.fixture
def folders():
    """Of two runs with different settings."""
    return [str(made(kind).path) for kind in ("claimed of records", "other settings")]


@pytest.fixture
def drawn(monkeypatch):
    """Figures in place of files, and nothing in pages."""
    found = []
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")

    def save(figure, paths):
        found.append(figure)
        for path in paths:
            if isinstance(path, Path):  # others are in memory
                path.touch()

    monkeypatch.setattr(plots, "save", save)
    return found


@pytest.mark.slow
def test_pictures_are_fit_for_print(folders, tmp_path):
    """300 dots per inch; TrueType fonts."""
    paths = [str(tmp_path / name) for name in ("p.png", "p.pdf")]
    assert compare.main([*folders, "--together", "--output", *paths]) == 0
    with Image.open(paths[0]) as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        assert picture.size[0] == pytest.approx(3.3 * 300, abs=1)
    content = Path(paths[1]).read_bytes()
    assert b"/FontType 42" in content or b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content


@pytest.mark.slow
def test_no_label_is_cut_off_or_over_another_and_the_legend_leaves_room(folders, drawn):
    """Also twelve curves of long names at column width."""
    runs = compare.evaluated([Path(folder) for folder in folders])
    for together in (False, True):
        plots.picture(plots.columns(runs, together), ["accuracy"], [], x="epsilon")
    run = read(made("private").path)
    many = [replace(run, label=f"p = {p}, clip norm = {p}") for p in (0.1, 0.2, 0.3)]
    plots.picture(plots.columns(many, True), ["accuracy"], [], "column")
    for figure in drawn:
        figure.canvas.draw()
        extents = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in extents)
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))
        (legend,) = figure.legends
        for axes in figure.axes:
            box = axes.get_window_extent()
            assert not legend.get_window_extent().overlaps(box)
            assert box.height / figure.dpi > 1


def test_a_report_writes_what_a_paper_needs(tmp_path, drawn):
    run, page, folder = made("private").path, str(tmp_path / "r.html"), tmp_path / "paper"
    assert report.main([str(run), "--output", page, "--paper", str(folder)]) == 0
    pictures = {f"by_{x}.{kind}" for x in ("round", "uplink", "epsilon") for kind in ("pdf", "png")}
    texts = {"table.tex", "table.csv", "table.md", "captions.md"}
    assert {f.name for f in folder.iterdir()} == texts | pictures
    labels = ["round", "uplink per client (MB)", "certified ε"]
    assert [figure.axes[0].get_xlabel() for figure in drawn] == labels


def test_runs_are_called_as_asked(folders, tmp_path, capsys, drawn):
    """In the table, in the figure and on the page, whatever they differ in."""
    labels = ["ours, $q$", "baseline"]
    assert compare.main([*folders, "--names", *labels, "--output", str(tmp_path / "t.tex")]) == 0
    printed = capsys.readouterr().out.splitlines()[2:6]
    titles = [labels[0]] * 2 + [f"{labels[1]} (interrupted)"] * 2
    assert [row.split(" | ")[0][2:] for row in printed] == titles
    assert r"ours, \$q\$" in (tmp_path / "t.tex").read_text()
    runs = labelled([read(Path(folder)) for folder in folders], labels)
    assert list(plots.columns(runs, False)) == labels
    page = tmp_path / "r.html"
    assert report.main([*folders, "--names", *labels, "--output", str(page)]) == 0
    assert "DP-SCAFFOLD · baseline" in page.read_text()


def test_algorithms_are_called_as_asked(folders, tmp_path, capsys, drawn):
    given = ["--names", "dp_scaffold=Ours, $q$", "--output", str(tmp_path)]
    assert compare.main([*folders, *given]) == 0
    rows = capsys.readouterr().out.splitlines()[2:6]
    assert [row.split(" | ")[1] for row in rows] == ["Ours, $q$", "DP-FedAvg"] * 2
    assert "beta = 5" in rows[2]
    assert r"Ours, \$q\$" in (tmp_path / "table.tex").read_text()
    assert "Ours, $q$" in (tmp_path / "table.csv").read_text()
    with refused("^names: no 'scafold'"):
        experiments.table(folders, names={"scafold": "Mine"})
    own = {"dp_scaffold": "Mine"}
    assert list(experiments.table(folders, names=own)["name"]) == ["Mine", "DP-FedAvg"] * 2
    assert "Mine · " in experiments.report(folders, tmp_path / "r.html", names=own).read_text()
    runs = [named(read(Path(folder)), own) for folder in folders]
    assert plots.columns(runs, True)[""][0].look["label"].startswith("Mine, ")


def test_a_figure_has_no_title_unless_asked_and_its_meaning_in_the_caption(
    folders, drawn, tmp_path
):
    for title in (None, "Ours"):
        caption = experiments.figure(folders, tmp_path / "f.pdf", by="epsilon", title=title).caption
        assert drawn[-1].get_suptitle() == (title or "")
        assert {axes.get_xlabel() for axes in drawn[-1].axes} == {"certified ε"}
    for word in ("record level", "view third party", "replace-one", "δ = ", "3 seeds", "ε: "):
        assert word in caption


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no TeX here")
def test_tex_typesets_the_table(folders, tmp_path):
    table = tmp_path / "table.tex"
    assert compare.main([*folders, "--above", "dp_fed_avg", "--output", str(table)]) == 0
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "page.tex").write_text(head + table.read_text() + r"\end{document}")
    command = ["pdflatex", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_what_is_not_private_is_not_drawn_by_epsilon():
    with refused("^by: epsilon is infinite in all"):
        experiments.figure(made("plain").path, "p.png", by="epsilon")
