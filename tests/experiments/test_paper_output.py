"""Tables and figures for papers: names, captions, room, TeX."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import report
from PIL import Image
from reported import edit, record

import experiments
from experiments import compare
from experiments.runs.run_folder import read
from experiments.runs.run_names import labelled, named
from experiments.tables import plots


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two runs with different settings, and what was recorded of the first."""
    base = tmp_path_factory.mktemp("compare")
    given = {"name": "dp_scaffold_synthetic", "rounds": (20, 40), "seeds": 2}
    histories = record(base / "0", **given)
    record(base / "5", seed=1, beta=5.0, status="interrupted", **given)
    return [str(base / "0"), str(base / "5")], histories


def test_pictures_are_fit_for_print(recorded, tmp_path):
    """300 dots per inch; TrueType fonts; the legend beside no curve; no label cut off or over another."""
    folders, _ = recorded
    paths = [str(tmp_path / name) for name in ("p.png", "p.pdf")]
    assert compare.main([*folders, "--together", "--output", *paths]) == 0
    with Image.open(paths[0]) as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        assert picture.size[0] == pytest.approx(3.3 * 300, abs=1)
    content = Path(paths[1]).read_bytes()
    assert b"/FontType 42" in content or b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
        runs = compare.evaluated([Path(folder) for folder in folders])
        plots.picture(plots.columns(runs, False), ["accuracy"], [], x="epsilon")
        apart = drawn["figure"]
        plots.picture(plots.columns(runs, True), ["accuracy"], [], x="epsilon")
    figure = drawn["figure"]
    for one in (apart, figure):
        one.canvas.draw()
        extents = [axes.xaxis.label.get_window_extent() for axes in one.axes]
        assert all(box.x0 >= 0 and box.x1 <= one.bbox.width for box in extents)
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))
    (legend,) = figure.legends
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert not any(legend.get_window_extent().overlaps(box) for box in boxes)


def test_a_report_writes_what_a_paper_needs(tmp_path, capsys):
    record(tmp_path / "run", rounds=(5, 10), seeds=2)
    page, folder = str(tmp_path / "r.html"), tmp_path / "paper"
    assert report.main([str(tmp_path / "run"), "--output", page, "--paper", str(folder)]) == 0
    pictures = {f"by_{x}.{kind}" for x in ("round", "uplink", "epsilon") for kind in ("pdf", "png")}
    texts = {"table.tex", "table.csv", "table.md", "captions.md"}
    assert {f.name for f in folder.iterdir()} == texts | pictures


def test_runs_are_called_as_asked(recorded, tmp_path, capsys):
    """In the table and in the figure, whatever they differ in."""
    folders, _ = recorded
    labels = ["ours, $q$", "baseline"]
    paths = [str(tmp_path / name) for name in ("t.tex", "p.svg")]
    assert compare.main([*folders, "--names", *labels, "--output", *paths]) == 0
    printed = capsys.readouterr().out.splitlines()[2:6]
    assert [row.split(" | ")[0][2:] for row in printed] == [labels[0]] * 2 + [
        f"{labels[1]} (interrupted)"
    ] * 2
    assert r"ours, \$q\$" in Path(paths[0]).read_text()
    named = labelled([read(Path(folder)) for folder in folders], labels)
    assert list(plots.columns(named, False)) == labels
    page = tmp_path / "r.html"
    assert report.main([*folders, "--names", *labels, "--output", str(page)]) == 0
    assert "DP-SCAFFOLD · baseline" in page.read_text()


def test_algorithms_are_called_as_asked(recorded, tmp_path, capsys):
    folders, _ = recorded
    given = ["--names", "dp_scaffold=Ours, $q$", "--output", str(tmp_path)]
    assert compare.main([*folders, *given]) == 0
    rows = capsys.readouterr().out.splitlines()[2:6]
    assert [row.split(" | ")[1] for row in rows] == ["Ours, $q$", "DP-FedAvg"] * 2
    assert "beta = 5" in rows[2]
    assert r"Ours, \$q\$" in (tmp_path / "table.tex").read_text()
    assert "Ours, $q$" in (tmp_path / "table.csv").read_text()
    with pytest.raises(
        ValueError, match=r"names: no 'scafold' in these runs; there are dp_fed_avg"
    ):
        experiments.table(folders, names={"scafold": "Mine"})
    assert compare.main([folders[0], "--names", "scafold=Mine"]) == 2
    own = {"dp_scaffold": "Mine"}
    assert list(experiments.table(folders, names=own)["name"]) == ["Mine", "DP-FedAvg"] * 2
    page = experiments.report(folders, tmp_path / "r.html", names=own)
    assert "Mine · " in page.read_text()
    runs = [named(read(Path(folder)), own) for folder in folders]
    curves = plots.columns(runs, True)[""]
    assert curves[0].look["label"].startswith("Mine, ")


def test_a_figure_has_no_title_unless_asked_and_its_meaning_in_the_caption(recorded, tmp_path):
    folders, _ = recorded
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
        for title in (None, "Ours"):
            made = experiments.figure(folders, tmp_path / "f.pdf", by="epsilon", title=title)
            assert drawn["figure"].get_suptitle() == (title or "")
            labels = {axes.get_xlabel() for axes in drawn["figure"].axes}
            assert labels == {"certified ε"}
    for word in ("record level", "view third party", "replace-one", "δ = ", "2 seeds", "ε: "):
        assert word in made.caption


def test_a_legend_leaves_the_plot_its_room(tmp_path):
    """At column width, with twelve curves of long names."""
    for p in (0.1, 0.2, 0.3):
        record(tmp_path / f"{p}", rounds=(5, 10), seeds=1)
        for name in ("config.json", "summary.json"):
            settings = json.loads((tmp_path / f"{p}" / name).read_text())["settings"]
            edit(tmp_path / f"{p}" / name, settings=settings | {"p": p, "clip_norm": p})
    runs = compare.evaluated([tmp_path / f"{p}" for p in (0.1, 0.2, 0.3)])
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", lambda figure, paths: drawn.update(figure=figure))
        plots.picture(plots.columns(runs, True), ["accuracy"], [], "column")
    figure = drawn["figure"]
    figure.canvas.draw()
    (axes,), (legend,) = figure.axes, figure.legends
    box = axes.get_window_extent()
    assert box.height / figure.dpi > 1.2
    assert not legend.get_window_extent().overlaps(box)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no TeX here")
def test_tex_typesets_the_table(recorded, tmp_path):
    table = tmp_path / "table.tex"
    assert compare.main([*recorded[0], "--above", "dp_fed_avg", "--output", str(table)]) == 0
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "page.tex").write_text(head + table.read_text() + r"\end{document}")
    command = ["pdflatex", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_what_is_not_private_is_not_drawn_by_epsilon(tmp_path, capsys):
    record(tmp_path / "run", rounds=(5,), seeds=1, algorithms=("fed_avg",))
    given = [str(tmp_path / "run"), "--by", "epsilon", "--output", str(tmp_path / "p.png")]
    assert compare.main(given) == 2
    assert "by: epsilon is infinite in all" in capsys.readouterr().err
