"""Scores beside those of one algorithm, with an interval."""

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from recorded import made
from reported import record
from scipy import stats
from small import refused

from fedpriv import experiments
from fedpriv.experiments.commands import compare
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables import frame, grid
from fedpriv.experiments.tables.latex import latex
from fedpriv.experiments.tables.leads import lead


@pytest.fixture(scope="module")
def recorded():
    """Folders of two runs with different settings, and what was recorded of the first."""
    folders = [made(kind) for kind in ("claimed of records", "other settings")]
    return [str(each.path) for each in folders], folders[0].histories


def kept(*folders):
    return frame.rows([read(Path(folder)) for folder in folders])


def test_what_a_score_is_above_a_rivals_is_paired(recorded, tmp_path, capsys):
    folders, histories = recorded
    files = [str(tmp_path / name) for name in ("t.csv", "t.tex", "t.png")]
    given = [*folders, "--above", "dp_fed_avg", "--best", "--output", *files]
    assert compare.main(given) == 0
    printed = capsys.readouterr().out
    head, _, *lines = ([c.strip() for c in line.split("|")] for line in printed.splitlines())
    own, rival = (histories[name].accuracy for name in ("dp_scaffold", "dp_fed_avg"))
    numbers = frame.frame(frame.above(kept(*folders), "dp_fed_avg", best=True))
    alone = experiments.table(folders, above="dp_fed_avg")
    assert not [name for name in alone if "lead_best" in name]
    assert any("comparisons: 2" in note for note in alone.attrs["notes"])
    for which, mine, theirs in (("final", own[-1], rival[-1]), ("best", own.max(0), rival.max(0))):
        interval = stats.ttest_rel(mine, theirs).confidence_interval(0.95)
        expected = (mine - theirs).mean(), *interval
        found = [numbers[f"accuracy_lead_{which}_{part}"][0] for part in ("mean", "low", "high")]
        assert found == pytest.approx(expected, rel=1e-5)
        column = head.index("best " * (which == "best") + "above DP-FedAvg (95 %)")
        mean, low, high = (100 * x for x in expected)
        assert lines[0][column] == f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"
        assert lines[1][column] == "-"  # the rival itself
    assert "comparisons: 4" in printed  # of the last scores and of the best
    assert "no fair comparison" not in printed
    assert "share their seeds" in printed
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seeds"] for row in rows] == ["3"] * 4
    assert float(rows[2]["accuracy_lead_final_low"]) == numbers["accuracy_lead_final_low"][2]
    tex = (tmp_path / "t.tex").read_text()
    assert r"Above DP-FedAvg (95 \%)" in tex
    assert "Student's t of the differences seed by seed" in tex


def test_a_rival_is_of_the_same_run_or_the_only_one(recorded):
    own, rival, other = kept(*recorded[0])[:3]
    ended = dataclasses.replace(other.summary, privacy=own.summary.privacy)
    other = other._replace(summary=ended)
    _, _, alone = frame.above([own, rival, other], "dp_fed_avg")
    accuracies = (r.summary.final[r.algorithm]["accuracy"].mean for r in (other, rival))
    assert alone.leads["accuracy"]["final"].mean == pytest.approx(
        next(accuracies) - next(accuracies)
    )
    said = grid.grid([own, rival, alone]).notes
    text = f"compared with DP-FedAvg of {rival.title}, which has "
    assert any(text in x and "beta = 0" in x for x in said)
    assert not any("not at the same ε" in x for x in said)


def test_a_rival_is_of_the_run_of_a_title_too(recorded):
    found = kept(*recorded[0])
    first = found[0].title
    there = {r.algorithm: r for r in found if r.title == first}
    for own, row in zip(found, frame.above(found, first), strict=True):
        if own.title == first:
            assert not row.leads
            continue
        mine, other = (of.score("final", "accuracy").mean for of in (own, there[own.algorithm]))
        lead = row.leads["accuracy"]["final"]
        assert (lead.mean, lead.how) == (pytest.approx(mine - other), "paired")


def test_what_is_not_at_one_epsilon_is_named(recorded):
    own, rival = kept(recorded[0][0])
    of = own.summary.privacy[own.algorithm]
    certified = {v: dataclasses.replace(c, epsilon=9 * c.epsilon) for v, c in of.certified.items()}
    privacy = own.summary.privacy | {own.algorithm: dataclasses.replace(of, certified=certified)}
    loud = own._replace(summary=dataclasses.replace(own.summary, privacy=privacy))
    found = frame.above([loud, rival], "dp_fed_avg")
    said = "not at the same ε, and so no fair comparison: DP-SCAFFOLD"
    assert any(note.startswith(said) for note in grid.grid(found).notes)


def test_seeds_that_only_one_has_are_left_out_and_those_of_another_config_are_not_paired(
    recorded, tmp_path
):
    rival = kept(recorded[0][0])[1]
    record(tmp_path / "four", name="dp_scaffold_synthetic", rounds=(20, 40), seeds=4, seed=2)
    (four, _), other = kept(tmp_path / "four"), kept(made("private").path)[0]
    rounds = dict.fromkeys(other.summary.rounds, 40)
    other = other._replace(summary=dataclasses.replace(other.summary, rounds=rounds))
    of_four, of_other = frame.above([four, other, rival], "dp_fed_avg")[:2]
    scores = [r.summary.final[r.algorithm]["accuracy"].per_seed for r in (four, other, rival)]
    assert of_four.leads["accuracy"]["final"].seeds == 3
    shown = grid.grid([of_four, rival])
    assert shown.rows[0][-4].endswith(", of 3 seeds")
    assert of_four.leads["accuracy"]["final"].mean == pytest.approx(
        np.mean(np.subtract(scores[0][:3], scores[2]))
    )
    assert of_other.leads["accuracy"]["final"].how == "Welch"
    welch = stats.ttest_ind(scores[1], scores[2], equal_var=False).confidence_interval(0.95)
    assert of_other.leads["accuracy"]["final"][1:3] == pytest.approx(welch, rel=1e-6)


def test_an_interval_holds_the_truth_as_often_as_it_says():
    """Of 1,000 intervals 950 are expected; fewer than 920 or more than 975 once in 10^4."""
    rng, hits = np.random.default_rng(0), {"paired": 0, "Welch": 0}
    for _ in range(1000):
        shared = rng.normal(size=5)
        own, rival = shared + rng.normal(0.3, 0.2, 5), shared + rng.normal(0.0, 0.1, 5)
        for paired in (True, False):
            mine = own if paired else rng.normal(0.3, 0.5, 5)
            found = lead(mine, rival if paired else rng.normal(0.0, 0.4, 5), paired)
            hits[found.how] += found.low <= 0.3 <= found.high
    assert all(920 <= n <= 975 for n in hits.values()), hits


def test_a_rival_that_cannot_be_compared_with(recorded):
    """And too few seeds are no result."""
    first = kept(*recorded[0])
    rounds = dict.fromkeys(first[0].summary.rounds, 20)
    short = first[0]._replace(summary=dataclasses.replace(first[0].summary, rounds=rounds))
    for found, said in (
        (first[:1], "^above: dp_fed_avg is in none"),
        ([first[0]._replace(keys={"run": "third"}), first[1], first[3]], "^above: .* in neither"),
        ([short, first[1]], "^above: .* has 20 rounds, dp_fed_avg of .* 40"),
    ):
        with refused(said):
            frame.above(found, "dp_fed_avg")


def test_too_few_seeds_are_no_result(tmp_path, capsys):
    record(tmp_path / "two", name="dp_scaffold_synthetic", rounds=(20,), seeds=2)
    assert compare.main([str(tmp_path / "two"), "--above", "dp_fed_avg"]) == 0
    said = capsys.readouterr().out
    assert "(too few seeds)" in said.splitlines()[2]
    assert " to +" not in said
    assert "show no result" in said
    low = experiments.table(tmp_path / "two", above="dp_fed_avg")["accuracy_lead_final_low"]
    assert math.isnan(low.astype(float)[0])


def test_what_diverged_at_once_stays_in_the_table_and_has_no_lead(recorded):
    own, rival = kept(recorded[0][0])[:2]
    summary = own.summary
    gone = {
        field: {rival.algorithm: getattr(summary, field)[rival.algorithm]}
        for field in ("rounds", "final")
    }
    lost = own._replace(
        summary=dataclasses.replace(summary, diverged={own.algorithm: "NaN"}, **gone)
    )
    row, _ = frame.above([lost, rival], "dp_fed_avg")
    assert row.leads == {}
    shown = grid.grid([lost, rival])
    assert shown.rows[0][2:4] == ["0 of 40 (diverged)", "-"]
    assert grid.grid([]).rows == []
    with pytest.raises(ValueError, match=r"above: dp_scaffold of .* diverged before"):
        frame.above([lost, rival], "dp_scaffold")
    other = dataclasses.replace(summary, metric="loss")
    with pytest.raises(
        ValueError, match=r"has loss, dp_fed_avg of .* accuracy; give runs of one metric"
    ):
        frame.above([own._replace(summary=other), rival], "dp_fed_avg")


def test_swept_fields_named_like_columns_and_odd_names_stay_readable(recorded):
    own = kept(recorded[0][0])[0]._replace(keys={"rounds": "10", "seeds": "2"})
    own = own._replace(summary=dataclasses.replace(own.summary, names={"dp_scaffold": "[a|b]*"}))
    shown = grid.grid([own])
    assert shown.head[:5] == ["rounds set", "seeds set", "algorithm", "rounds", "seeds"]
    assert shown.rows[0][:5] == ["10", "2", "[a|b]*", "40", "3"]
    assert frame.frame([own])[["swept_rounds", "rounds"]].to_numpy().tolist() == [["10", 40]]
    assert r"[a\|b]*" in grid.as_markdown(shown).splitlines()[2]
    assert r"& {[}a\textbar{}b]{*} &" in latex(shown)
    assert latex(shown).count(r"\textsuperscript{a}") == 2  # in its cell and in the caption


def test_what_an_interval_cannot_be_of():
    assert lead([1.0, 2.0], [0.0, 0.0])[:3] == (1.5, None, None)
    assert lead([math.inf] * 3, [math.inf] * 3).how == "not finite"
    same = lead([1.0] * 3, [0.5] * 3)
    assert same[:3] == (0.5, 0.5, 0.5)
    assert same.is_told_apart
    assert lead([1.0] * 3, [0.5] * 3, paired=False)[:3] == (0.5, 0.5, 0.5)
