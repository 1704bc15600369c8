"""The HTML report: its tables, its ledger, what differs, where it is from; one page, read many times."""

import re
import shlex

import pytest
from commands import report as command
from reported import edit, record, tables, text, tree, with_class

from experiments.base.json_values import plain
from experiments.config import modules
from experiments.config.options import parse
from experiments.runs.run_folder import read
from experiments.tables.report import charts

RESULTS = "The last state of each"


def report(*folders, options=("--best",)):
    output = folders[0].parent / "page.html"
    assert command.main([*map(str, folders), "--output", str(output), *options]) == 0
    return tree(output)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two runs of one config, with other noise, and one of another config with a claim that does not hold."""
    base = tmp_path_factory.mktemp("several")
    record(base / "a", seed=1)
    record(base / "b", seed=2, noise_multiplier=2.0, p=0.05)
    record(base / "c", name="dp_scaffold_synthetic", rounds=(20, 40))
    return base, report(base / "a", base / "b", base / "c")


@pytest.fixture(scope="module")
def alike(several):
    """The page of the two runs of one config."""
    base, _ = several
    return report(base / "a", base / "b")


def account(root, name):
    """The ledger's block that begins with this algorithm."""
    (found,) = [
        e for e in with_class(root, "account") if re.split("[;·]", text(e.find("h3")))[0] == name
    ]
    return found


def test_the_best_is_shown_where_it_is_asked_for(several, monkeypatch):
    base, _ = several
    monkeypatch.setattr(charts, "pictures", lambda drawn, ends: [])
    for options in ((), ("--best",)):
        head, row, *_ = tables(report(base / "a", options=options))[RESULTS]
        assert len(row) == len(head)
        assert ("best accuracy (%)" in head) == bool(options)


def test_the_tables_have_the_numbers_of_the_files(several):
    base, root = several
    run, found = read(base / "a"), tables(root)
    head, *rows = found[RESULTS]
    name, cells = "top_k", next(dict(zip(head, r, strict=True)) for r in rows if "top_k" in r[0])
    for which, of in (("", run.summary.final), ("best ", run.summary.best)):
        shown = [float(x) for x in cells[f"{which}accuracy (%)"].split(" ± ")]
        assert shown == pytest.approx(
            [100 * of[name]["accuracy"].mean, 100 * of[name]["accuracy"].std], abs=0.00501
        )
    lines = run.lines[name]
    numbers = {
        "loss": lines[-1].metrics["loss"].mean,
        "MB up": run.summary.uplink_mb_per_client[name],
        "MB down": run.summary.downlink_mb_per_client[name],
        "rounds/s": run.summary.rounds_per_second[name],
        "seconds": sum(line.seconds for line in lines),
        "compiled (s)": 1.5,
        "ε, third party": lines[-1].privacy.certified.epsilon,
    }
    for column, number in numbers.items():
        assert float(cells[column].split()[0]) == pytest.approx(number, rel=1e-2)
    assert (cells["rounds"], cells["seeds"], cells["status"]) == ("20", "3", "complete")
    letter = cells["ε, third party"].split("[")[1][0]
    meaning = "client level, view third party, add-or-remove adjacency, δ = 1e-06, certified (constructed)"
    assert f"{letter}: {meaning}" in text(root)
    head, *rows = found["Every evaluation."]
    rows = [row for row in rows if row[0] == "Fed-SMP top_k · a"]
    assert [int(row[1]) for row in rows] == [5, 10, 20]
    shown = [float(row[head.index("loss")].split()[0]) for row in rows]
    assert shown == pytest.approx([line.metrics["loss"].mean for line in lines], rel=1e-3)


def test_every_epsilon_of_the_ledger_says_what_it_means(several):
    base, root = several
    report = read(base / "a").summary.privacy["top_k"]
    block = next(e for e in with_class(root, "account") if "top_k · a" in text(e.find("h3")))
    assert text(block.find("h3")) == "DP-FedAvg · a; Fed-SMP rand_k · a; Fed-SMP top_k · a"
    head, *rows = tables(block)["Epsilons of 20 rounds"]
    views = [row[0].split()[0] for row in rows]
    assert views == ["third_party", "third_party", "server", "server_secagg"]
    for row, view in zip(rows, views, strict=True):
        cells, certified = dict(zip(head, row, strict=True)), report.certified[view]
        own = cells["status"] == f"certified, {certified.basis}"
        assert own or cells["status"] == "claimed"
        number = certified if own else report.claimed
        assert float(cells["epsilon"]) == pytest.approx(number.epsilon, rel=1e-3)
        assert float(cells["delta"]) == pytest.approx(number.delta, rel=1e-2)
        assert cells["unit"] == number.unit == "client"
        assert cells["adjacency"] == number.relation.replace("_", "-")
    said = text(block)
    for c in report.certified.values():
        assert f"{c.accountant} ({c.bound}); composed: {c.event}" in said
        assert all(assumption in said for assumption in c.assumptions)
    assert all(reason in said for reason in (*report.claimed.reasons, report.claimed.source))
    assert "It holds for this run" in said
    assert "Note: tuned without privacy" in text(root)


def test_a_claim_that_does_not_hold_says_why(several):
    base, root = several
    claim = read(base / "c").summary.privacy["dp_scaffold"].claimed
    block = next(e for e in with_class(root, "account") if "DP-SCAFFOLD" in text(e.find("h3")))
    _, *rows = tables(block)["Epsilons of 40 rounds"]
    (claimed,) = [row for row in rows if row[1].startswith("claimed")]
    assert claimed[1] == "claimed, not proved for this run"
    assert float(claimed[2]) == pytest.approx(claim.epsilon, rel=1e-3)
    assert "It is not proved for this run" in text(block)
    assert all(reason in text(block) for reason in claim.reasons)


def test_an_algorithm_without_privacy_says_so_in_place_of_a_number(several):
    _, root = several
    block = account(root, "FedAvg ")
    _, *rows = tables(block)["Epsilons of 20 rounds"]
    assert {row[2] for row in rows} == {"∞"}
    assert "Nothing is certified: not private: no noise is added" in text(block)
    figures = [f for f in root.iter("figure") if "by certified epsilon" in text(f.find("h3"))]
    said = [text(f.find("figcaption")) for f in figures]
    missing = [s for s in said if "infinite: FedAvg · a; FedAvg · b (not private: no noise" in s]
    assert len(missing) == 2  # accuracy and loss


def test_epsilons_of_different_meaning_are_not_drawn_together(several):
    _, root = several
    title = "Test accuracy (%) by certified epsilon"
    first, second = [text(f) for f in root.iter("figure") if text(f.find("h3")) == title]
    for said, words in (
        (first, ("client level", "view third party", "add-or-remove", "1e-06", "constructed")),
        (second, ("record level", "view third party", "replace-one", "2.5e-06", "constructed")),
    ):
        assert all(word in said for word in words)


def test_runs_are_named_by_what_they_differ_in(alike):
    found = tables(alike)
    names = ["p = 0.1, noise multiplier = 4", "p = 0.05, noise multiplier = 2"]
    assert [row[0] for row in found["Runs"][1:]] == names
    assert f"Fed-SMP top_k · {names[0]}" in text(with_class(alike, "legend")[0])
    (rows,) = [rows for caption, rows in found.items() if "in which the runs differ" in caption]
    assert rows == [
        ["run", "p", "noise_multiplier"],
        [names[0], "0.1", "4.0"],
        [names[1], "0.05", "2.0"],
    ]
    (rows,) = [rows for caption, rows in found.items() if "Settings common to all" in caption]
    common = dict(rows[1:])
    assert (common["clip_norm"], common["local.batch_size"]) == ("1.0", "5")
    assert common["eta_0 (top_k)"] == "0.5"
    assert not {"p", "noise_multiplier", "output"} & common.keys()


def test_fields_that_a_run_does_not_have(several):
    _, root = several
    head, *rows = tables(root)["Settings in which the runs differ"]
    assert head == ["field", "a", "b", "c"]  # too many fields for a name
    fields = {row[0]: row[1:] for row in rows}
    assert fields["p"] == ["0.1", "0.05", "-"]
    assert fields["alpha"] == ["-", "-", "0.0"]
    assert fields["config"] == ["quickstart", "quickstart", "dp_scaffold_synthetic"]
    assert "clip_norm" not in fields


def test_where_the_numbers_come_from(several):
    base, root = several
    summary, found = read(base / "b").summary, tables(root)
    about = dict(found["Versions and device common to all runs (17)"][1:])
    assert about["jax"] == summary.versions["jax"]
    assert about["device kind"] == summary.device["kind"]
    assert about["prng"] == summary.prng == "threefry2x32"
    assert about["code revision"] == (summary.git_revision or "none")
    command = shlex.split(found["Runs"][2][3])
    assert command[:4] == ["python", "-m", "experiments.run", "quickstart"]
    again = plain(parse(modules.load("quickstart"), "quickstart", command[4:]))
    assert again | {"output": str(base / "b")} == summary.settings


def test_one_seed_has_no_band_and_a_config_of_a_colleague_no_command(tmp_path):
    record(tmp_path / "one", seeds=1, algorithms=("fed_avg", "top_k"))
    edit(tmp_path / "one" / "config.json", config="of_a_colleague")
    root = report(tmp_path / "one")
    assert not with_class(root, "band")
    assert "No band, as there is a single seed: FedAvg; " in text(root)
    assert "±" not in "".join(
        cell for rows in tables(root).values() for row in rows for cell in row
    )
    assert tables(root)["Runs"][1][3] == "no command of this version gives these settings"
