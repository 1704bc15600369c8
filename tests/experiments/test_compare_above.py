"""`compare --above`: scores beside those of one algorithm, seed by seed."""

import csv
from pathlib import Path

import pytest
from reported import record

from experiments import compare
from experiments.tables import comparison


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two runs with different settings, and what was recorded of the first."""
    base = tmp_path_factory.mktemp("above")
    given = {"name": "dp_scaffold_synthetic", "rounds": (20, 40), "seeds": 2}
    histories = record(base / "0", **given)
    record(base / "5", seed=1, beta=5.0, **given)
    return [str(base / "0"), str(base / "5")], histories


def test_what_a_score_is_above_a_rivals_is_paired(recorded, tmp_path, capsys):
    folders, histories = recorded
    files = [str(tmp_path / name) for name in ("t.csv", "t.tex", "t.png")]
    given = [*folders, "--above", "dp_fed_avg", "--best", "--output", *files]
    assert compare.main(given) == 0
    column = "above DP-FedAvg's accuracy"
    head, _, *lines = (
        [cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()
    )
    own, rival = (100 * histories[name].accuracy for name in ("dp_scaffold", "dp_fed_avg"))
    for lead, i in ((own[-1] - rival[-1], 0), (own.max(0) - rival.max(0), 1)):
        said = lines[0][head.index(column) + i]
        assert said == f"{lead.mean():.2f} ± {lead.std(ddof=1):.2f}"
    assert lines[1][head.index(column)] == "-"  # the rival itself
    with (tmp_path / "t.csv").open() as file:
        first, _, second, _ = csv.DictReader(file)
    assert float(first[f"{column}_final_mean"]) == pytest.approx((own - rival)[-1].mean() / 100)
    means = [
        float(x["accuracy_final_mean"])
        for x in comparison.records(comparison.rows(compare.evaluated(list(map(Path, folders)))))
    ]
    assert float(second[f"{column}_final_mean"]) == pytest.approx(means[2] - means[3])
    tex = (tmp_path / "t.tex").read_text()
    assert r"Above DP-FedAvg's accuracy (\%)" in tex
    assert "above: seed by seed" in tex


def test_a_rival_is_of_the_same_run_or_the_only_one(recorded):
    kept = compare.rows(compare.evaluated([Path(folder) for folder in recorded[0]]))
    own, rival, other = kept[:3]
    _, _, alone = comparison.above([own, rival, other], "dp_fed_avg")
    lead = alone.summary.final["dp_scaffold"]["above DP-FedAvg's accuracy"].mean
    accuracies = (r.summary.final[r.algorithm]["accuracy"].mean for r in (other, rival))
    assert lead == pytest.approx(next(accuracies) - next(accuracies))
    assert any(f"compared with DP-FedAvg of {rival.title}" in x for x in comparison.notes([alone]))


def test_a_rival_that_cannot_be_compared_with(recorded, tmp_path):
    kept = compare.rows(compare.evaluated([Path(folder) for folder in recorded[0]]))
    record(tmp_path / "one", name="dp_scaffold_synthetic", rounds=(20, 40), seeds=1)
    record(tmp_path / "short", name="dp_scaffold_synthetic", rounds=(20,), seeds=2)
    one, short = (compare.rows(compare.evaluated([tmp_path / x]))[0] for x in ("one", "short"))
    for found, said in (
        (kept[:1], "is in no run of dp_scaffold_synthetic; choose one of dp_scaffold"),
        ([kept[0]._replace(title="third"), kept[1], kept[3]], "in neither"),
        ([one, kept[1]], "and 1 seed.*dp_fed_avg of .* 2 seed"),
        ([short, kept[1]], "has 20 rounds.*dp_fed_avg of .* 40 rounds"),
    ):
        with pytest.raises(ValueError, match=said):
            comparison.above(found, "dp_fed_avg")
