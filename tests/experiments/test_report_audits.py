"""What audits counted of an attacker's errors, drawn under the certified curves of the report."""

import json

import numpy as np
import pytest
from matplotlib.axes import Axes
from recorded import audit, made
from reported import text, tree

from fedpriv import experiments
from fedpriv.experiments.commands import report as command
from fedpriv.experiments.tables.report import charts
from fedpriv.experiments.tables.report.audits import read_audits


@pytest.fixture
def run():
    return made("audited").path


def test_counts_are_drawn_beside_the_curve_of_their_view(run, tmp_path, monkeypatch):
    drawn, svg, errorbar = [], charts._svg, Axes.errorbar
    monkeypatch.setattr(
        charts,
        "_svg",
        lambda draw, key: svg(draw, key) if draw.__name__ == "draw" else "<svg viewBox='0'/>",
    )
    monkeypatch.setattr(
        Axes, "errorbar", lambda *a, **k: drawn.append((a[1:], k)) or errorbar(*a, **k)
    )
    page = experiments.report(run, tmp_path / "a.html", audits=[run])
    labels = ["third_party, seen", "third_party, seen, natural"]
    assert [look["label"] for _, look in drawn] == labels
    (x, y), look = drawn[0]
    np.testing.assert_allclose(x, [0.01, 0.1])
    np.testing.assert_allclose(y, [0.98, 0.8])
    np.testing.assert_allclose(look["xerr"], [[0.005, 0.05], [0.01, 0.1]])
    np.testing.assert_allclose(look["yerr"], [[0.01, 0.1], [0.01, 0.1]])
    said = text(tree(page))
    assert "Points: what audits by 4,000 trainings counted" in said
    assert "is not what was run here" not in said


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"delta": 1e-9, "epsilon": 5.0},  # another point of the same curve
        {"event": "another"},
        {"unit": "record"},
        {"relation": "zero_out"},
        {"basis": "declared"},
        {"config": "another"},
    ],
)
def test_audits_of_something_else_are_not_drawn_but_named(run, tmp_path, other, monkeypatch):
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
    folder, page = audit(tmp_path / "a", run, **other), tmp_path / "a.html"
    files = ["--audits", str(folder / "audit.json"), "--output", str(page)]
    assert command.main([str(run), *files]) == 0
    said, same = text(tree(page)), "delta" in other or not other
    unlike = "what it audited of dp_fed_avg is not what was run here, and not drawn"
    assert (unlike in said) != same
    assert ("Points: what audits by" in said) == same


def test_an_audit_without_many_runs_has_nothing_to_draw(tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps({"mechanisms": []}))
    assert read_audits([tmp_path]) == []
