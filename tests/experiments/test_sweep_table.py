"""The table that a sweep ends with, of recorded points."""

import pytest
from reported import edit, record

from experiments.runs import run_folder
from experiments.search import sweep_table
from experiments.search.sweep_grid import Point
from experiments.tables.latex import latex
from fedpriv import privacy


@pytest.mark.parametrize("views", ["one", "all"])
def test_a_swept_budget_shows_the_noise_it_took_the_traffic_and_the_views_asked_for(
    views, tmp_path
):
    noises, found = {"1": 3.25, "4": 1.125}, []
    for target, noise in noises.items():
        folder = tmp_path / target
        record(folder, rounds=(5,), seeds=1, target_epsilon=float(target), views=views)
        edit(folder / "summary.json", solved={"top_k": {"noise_multiplier": noise}})
        of = Point({"target_epsilon": target}, None, target)
        found.append((of, run_folder.read(folder).summary))
    table = sweep_table.table(found)
    head, rows = table.head, table.rows
    assert head[0] == "ε budget"
    assert any("ε budget: what the noise was solved for" in note for note in table.notes)
    assert any("share their seeds" in note for note in table.notes)
    top_k = [dict(zip(head, row, strict=True)) for row in rows if "Fed-SMP top_k" in row]
    assert [row["noise multiplier"] for row in top_k] == ["3.25", "1.125"]
    assert [float(row["MB up"]) for row in top_k] == pytest.approx([0.005, 0.005])
    shown = [name.partition(", ")[2] for name in head if name.startswith("ε, ")]
    every = [view.replace("_", " ") for view in privacy.VIEWS]
    assert shown == (every if views == "all" else ["third party"])
    assert ("server" in latex(table)) == (views == "all")
