"""The HTML report: its tables, its ledger, what differs, where it is from."""

import json
import re
import shlex

import pytest
from reported import edit, record, tables, text, tree, with_class

from experiments import config as configuration
from experiments import run
from experiments.command_line import parse
from experiments.record import plain
from experiments.report.__main__ import main
from experiments.report.records import certificate

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "30", "--cohort", "6", "--sampling", "fixed_size", "--local.epochs", "1"]
SMALL += ["--algorithms", "fed_avg", "top_k", "--rounds", "4", "--every", "2", "--seeds", "2"]
RESULTS = "The last state of each"


def report(*folders):
    output = folders[0].parent / "page.html"
    assert main([*map(str, folders), "--output", str(output)]) == 0
    return tree(output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the launcher, and its page."""
    folder = tmp_path_factory.mktemp("trained") / "here"
    assert run.main(["quickstart", *SMALL, "--output", str(folder)]) == 0
    return folder, report(folder)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two runs of one config, with other noise, and one of another config with a claim that does not hold."""
    base = tmp_path_factory.mktemp("several")
    record(base / "a", seed=1)
    record(base / "b", seed=2, noise_multiplier=2.0, p=0.05)
    record(base / "c", name="dp_scaffold_synthetic", rounds=(20, 40))
    return base, report(base / "a", base / "b", base / "c")


def test_the_table_has_the_numbers_of_the_summary(trained):
    folder, root = trained
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    head, *rows = tables(root)[RESULTS]
    assert [row[0] for row in rows] == ["FedAvg", "Fed-SMP top_k"]
    for name, row in zip(("fed_avg", "top_k"), rows, strict=True):
        cells = dict(zip(head, row, strict=True))
        for which in ("final", "best"):
            mean, std = re.match(r"(\S+) ± (\S+)$", cells[f"{which} accuracy (%)"]).groups()
            expected = summary["accuracy"][which][name]
            assert float(mean) == pytest.approx(100 * expected["mean"], abs=0.00501)
            assert float(std) == pytest.approx(100 * expected["std"], abs=0.00501)
        last = next(x for x in reversed(lines) if x["algorithm"] == name)
        assert float(cells["final loss"].split()[0]) == pytest.approx(
            last["loss"]["mean"], rel=1e-3
        )
        assert (cells["rounds"], cells["seeds"], cells["status"]) == ("4 of 4", "2", "complete")
        for column, key in (("MB up", "uplink"), ("MB down", "downlink")):
            assert float(cells[column]) == pytest.approx(
                summary[f"{key}_mb_per_client"][name], rel=1e-3
            )
        assert float(cells["rounds/s"]) == pytest.approx(
            summary["rounds_per_second"][name], rel=1e-2
        )
        seconds = sum(x["seconds"] for x in lines if x["algorithm"] == name)
        assert float(cells["seconds"]) == pytest.approx(seconds, rel=1e-2)
        assert float(cells["compiled (s)"]) == pytest.approx(
            summary["compile_seconds"][name], rel=1e-2
        )


def test_every_evaluation_is_in_the_folded_table(trained):
    folder, root = trained
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    head, *rows = tables(root)["Every evaluation."]
    at = head.index("loss")
    assert [int(row[1]) for row in rows] == [x["round"] for x in lines]
    shown = [float(row[at].split()[0]) for row in rows]
    assert shown == pytest.approx([x["loss"]["mean"] for x in lines], rel=1e-3)


def test_every_epsilon_of_the_ledger_says_what_it_means(several):
    base, root = several
    summary = json.loads((base / "a" / "summary.json").read_text())
    report = summary["privacy"]["top_k"]
    (account,) = [
        e for e in with_class(root, "account") if "Fed-SMP top_k · a" in text(e.find("h3"))
    ]
    assert text(account.find("h3")) == "DP-FedAvg · a; Fed-SMP rand_k · a; Fed-SMP top_k · a"
    head, *rows = tables(account)["Epsilons of 20 rounds"]
    assert [row[0].split()[0] for row in rows] == [
        "third_party",
        "third_party",
        "server_secagg",
        "server",
    ]
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        view = cells["view"].split()[0]
        certified = report["certified"][view]
        own = cells["status"] == f"certified, {certified['basis']}"
        number = certified if own else report["claimed"]
        assert float(cells["epsilon"]) == pytest.approx(number["epsilon"], rel=1e-3)
        assert float(cells["delta"]) == pytest.approx(number["delta"], rel=1e-2)
        assert cells["unit"] == number["unit"] == "client"
        assert cells["adjacency"] == number["relation"].replace("_", "-")
    said = text(account)
    everything = [c for view in report["certified"].values() for c in view["assumptions"]]
    for expected in (*everything, *report["claimed"]["reasons"], report["claimed"]["source"]):
        assert expected in said
    for view in report["certified"].values():
        assert f"{view['accountant']} ({view['bound']}); composed: {view['event']}" in said
    assert "It holds for this run" in said


def test_a_certificate_of_an_older_run_says_nothing_of_its_basis(several):
    base, _ = several
    summary = json.loads((base / "a" / "summary.json").read_text())
    found = summary["privacy"]["top_k"]["certified"]["server"]
    assert certificate(found).basis == found.pop("basis") == "constructed"
    assert certificate(found).basis == "declared"


def test_a_claim_that_does_not_hold_says_why(several):
    base, root = several
    summary = json.loads((base / "c" / "summary.json").read_text())
    claim = summary["privacy"]["dp_scaffold"]["claimed"]
    assert not claim["sound"]
    account = next(e for e in with_class(root, "account") if "DP-SCAFFOLD" in text(e.find("h3")))
    _, *rows = tables(account)["Epsilons of 40 rounds"]
    (claimed,) = [row for row in rows if row[1].startswith("claimed")]
    assert claimed[1] == "claimed, not proved for this run"
    assert float(claimed[2]) == pytest.approx(claim["epsilon"], rel=1e-3)
    assert "It is not proved for this run" in text(account)
    assert all(reason in text(account) for reason in claim["reasons"])


def test_an_algorithm_without_privacy_says_so_in_place_of_a_number(several):
    _, root = several
    account = next(
        e for e in with_class(root, "account") if text(e.find("h3"))[:10] == "FedAvg · a"
    )
    _, *rows = tables(account)["Epsilons of 20 rounds"]
    assert {row[2] for row in rows} == {"∞"}
    assert "Nothing is certified: not private: no noise is added" in text(account)
    figures = [f for f in root.iter("figure") if "by certified epsilon" in text(f.find("h3"))]
    said = [text(f.find("figcaption")) for f in figures if f.find("figcaption") is not None]
    assert len(said) == 2  # accuracy and loss
    for caption in said:
        assert "infinite: FedAvg · a; FedAvg · b (not private: no noise is added)" in caption


def test_epsilons_of_different_meaning_are_not_drawn_together(several):
    _, root = several
    labels = [
        text(f)
        for f in root.iter("figure")
        if text(f.find("h3")) == "Test accuracy (%) by certified epsilon"
    ]
    assert len(labels) == 2
    assert "client level, add-or-remove, delta 0.00516" in labels[0]
    assert "record level, replace-one, delta 2.5e-06" in labels[1]


def test_what_the_configs_differ_in(several):
    base, _ = several
    root = report(base / "a", base / "b")
    found = tables(root)
    assert found["Settings in which the runs differ"] == [
        ["run", "p", "noise_multiplier"],
        ["a", "0.1", "4.0"],
        ["b", "0.05", "2.0"],
    ]
    (rows,) = [rows for caption, rows in found.items() if "Settings common to all" in caption]
    common = dict(rows[1:])
    assert common["clip_norm"] == "1.0"
    assert common["local.batch_size"] == "5"
    assert common["eta_0 (top_k)"] == "0.5"
    assert not {"p", "noise_multiplier", "output"} & common.keys()


def test_fields_that_a_run_does_not_have(several):
    _, root = several
    head, *rows = tables(root)["Settings in which the runs differ"]
    assert head == ["field", "a", "b", "c"]
    fields = {row[0]: row[1:] for row in rows}
    assert fields["p"] == ["0.1", "0.05", "-"]
    assert fields["alpha"] == ["-", "-", "0.0"]
    assert fields["config"] == ["quickstart", "quickstart", "dp_scaffold_synthetic"]
    assert "clip_norm" not in fields


def test_where_the_numbers_come_from(trained):
    folder, root = trained
    summary = json.loads((folder / "summary.json").read_text())
    found = tables(root)
    about = dict(found["Versions and device"][1:])
    assert about["jax"] == summary["versions"]["jax"]
    assert about["device kind"] == summary["device"]["kind"]
    assert about["code revision"] == (summary["git_revision"] or "none")
    command = shlex.split(found["Runs"][1][3])
    assert command[:4] == ["python", "-m", "experiments.run", "quickstart"]
    again = plain(parse(configuration.load("quickstart"), "quickstart", command[4:]))
    assert again | {"output": str(folder)} == summary["settings"]


def test_a_command_is_left_out_where_the_config_is_not_known(tmp_path):
    record(tmp_path / "a")
    edit(tmp_path / "a" / "config.json", config="of_a_colleague")
    root = report(tmp_path / "a")
    assert tables(root)["Runs"][1][3] == "no command of this version gives these settings"


def test_one_seed_has_no_band_and_the_page_says_so(tmp_path):
    record(tmp_path / "one", seeds=1)
    root = report(tmp_path / "one")
    assert not with_class(root, "band")
    assert "No band, as there is a single seed: FedAvg; DP-FedAvg;" in text(root)
    assert not [
        cell for rows in tables(root).values() for row in rows for cell in row if "±" in cell
    ]
    record(tmp_path / "two", seeds=2)
    root = report(tmp_path / "two")
    assert with_class(root, "band")
    assert "single seed" not in text(root)


def test_notes_of_the_experiment_are_shown(several):
    _, root = several
    assert "Note: tuned without privacy" in text(root)
