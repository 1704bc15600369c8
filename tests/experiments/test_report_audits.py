"""What audits counted of an attacker's errors, drawn under the certified curves of the report."""

import json

import numpy as np
import pytest
from commands import report as command
from matplotlib.axes import Axes
from reported import record, text, tree
from small import refused

import experiments
from experiments.base.json_values import plain
from experiments.runs.run_folder import read
from experiments.tables.report.audits import read_audits

POINTS = [
    {
        "false_positives": {"rate": x, "low": x / 2, "high": 2 * x},
        "false_negatives": {"rate": 1 - 2 * x, "low": 1 - 3 * x, "high": 1 - x},
    }
    for x in (0.01, 0.1)
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited") / "run"
    record(folder, algorithms=("fed_avg", "dp_fed_avg"))
    return folder


def an_audit(folder, run, config="quickstart", **other):
    """As `experiments.audit` writes it, of the run's own certificate towards a third party."""
    certificate = read(run).summary.privacy["dp_fed_avg"].certified["third_party"]
    row = {
        "algorithm": "dp_fed_avg",
        "views": ["third_party"],
        "canary": "worst_case",
        "runs": 4000,
        "certified": plain(certificate) | other,
        "audited": {"errors": {"certified": None, "seen": POINTS}},
    }
    last = row | {"views": ["last_model"]}
    later = row | {"audited": {}}
    weaker = row | {"canary": "natural"}
    folder.mkdir(exist_ok=True)
    found = {"config": config, "many_runs": [row, last, later, weaker]}
    (folder / "audit.json").write_text(json.dumps(found))
    return folder


def test_counts_are_drawn_beside_the_curve_of_their_view(run, tmp_path, monkeypatch):
    drawn = []
    errorbar = Axes.errorbar
    monkeypatch.setattr(
        Axes, "errorbar", lambda *a, **k: drawn.append((a[1:], k)) or errorbar(*a, **k)
    )
    page = experiments.report(run, tmp_path / "a.html", audits=[an_audit(tmp_path / "a", run)])
    assert [look["label"] for _, look in drawn] == [
        "third_party, seen",
        "third_party, seen, natural",
    ]
    (x, y), look = drawn[0]
    np.testing.assert_allclose(x, [0.01, 0.1])
    np.testing.assert_allclose(y, [0.98, 0.8])
    np.testing.assert_allclose(look["xerr"], [[0.005, 0.05], [0.01, 0.1]])
    np.testing.assert_allclose(look["yerr"], [[0.01, 0.1], [0.01, 0.1]])
    said = text(tree(page))
    assert "Points: what audits by 4,000 trainings counted" in said
    assert "is not what was run here" not in said


def test_the_command_draws_them_too(run, tmp_path):
    folder, output = an_audit(tmp_path / "a", run), tmp_path / "page.html"
    given = [str(run), "--output", str(output), "--audits", str(folder / "audit.json")]
    assert command.main(given) == 0
    assert "Points: what audits by" in text(tree(output))


@pytest.mark.parametrize(
    "other",
    [
        {"event": "another"},
        {"unit": "record"},
        {"relation": "zero_out"},
        {"basis": "declared"},
        {"config": "another"},
    ],
)
def test_audits_of_something_else_are_not_drawn_but_named(run, tmp_path, other):
    folder = an_audit(tmp_path / "a", run, **other)
    said = text(tree(experiments.report(run, tmp_path / "a.html", audits=[folder])))
    assert "what it audited of dp_fed_avg is not what was run here, and not drawn" in said
    assert "Points: what audits by" not in said


def test_an_audit_at_another_delta_is_of_the_same_curve(run, tmp_path):
    folder = an_audit(tmp_path / "a", run, delta=1e-9, epsilon=5.0)
    assert "Points: what audits by" in text(tree(experiments.report(run, audits=[folder])))


@pytest.mark.parametrize("content", ["{", "[]", '{"many_runs": [{}]}'])
def test_what_is_no_audit_is_refused(tmp_path, content):
    file = tmp_path / "audit.json"
    with refused("cannot read .*; give the --output folder of experiments.audit"):
        read_audits([file])
    file.write_text(content)
    with refused("audits: .* holds no audit .*; give the --output folder of experiments.audit"):
        read_audits([file])


def test_an_audit_without_many_runs_has_nothing_to_draw(tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps({"mechanisms": []}))
    assert read_audits([tmp_path]) == []
