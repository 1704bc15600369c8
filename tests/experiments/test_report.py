"""The HTML report: its tables, its ledger, what differs, where it is from; its epsilons are in `test_readers.py`."""

import re
import shlex
import shutil

import pytest
from recorded import made
from reported import edit, tables, text, tree, with_class

from fedpriv.core.json_values import plain
from fedpriv.experiments.commands import report as command
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.report import charts

RESULTS = "The last state of each"


@pytest.fixture(scope="module", autouse=True)
def _without_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
        yield


def report(*folders, options=("--best",)):
    output = folders[0].parent / "page.html"
    assert command.main([*map(str, folders), "--output", str(output), *options]) == 0
    return tree(output)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two runs of one config, the other of which says to have other settings, and one whose claim is not proved."""
    base = tmp_path_factory.mktemp("several")
    shutil.copytree(made("private").path, base / "a")
    shutil.copytree(made("private").path, base / "b")
    shutil.copytree(made("claimed of records").path, base / "c")
    for name in ("config.json", "summary.json"):
        other = read(base / "b").settings | {"p": 0.05, "noise_multiplier": 2.0}
        edit(base / "b" / name, settings=other | {"output": str(base / "b")})
    return base, report(base / "a", base / "b", base / "c")


@pytest.fixture(scope="module")
def alike(several):
    """The page of the two runs of one config."""
    base, _ = several
    return report(base / "a", base / "b")


def account(root, name):
    """The ledger's block that begins with this algorithm."""
    blocks = with_class(root, "account")
    (found,) = (e for e in blocks if re.split("[;·]", text(e.find("h3")))[0] == name)
    return found


def test_the_best_is_shown_where_it_is_asked_for(several):
    base, _ = several
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
        accuracy = of[name]["accuracy"]
        assert shown == pytest.approx([100 * accuracy.mean, 100 * accuracy.std], abs=0.00501)
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


def test_the_ledger_has_what_a_number_rests_on(several):
    base, root = several
    report = read(base / "a").summary.privacy["top_k"]
    block = account(root, "DP-FedAvg ")
    assert text(block.find("h3")).startswith("DP-FedAvg · a; Fed-SMP rand_k · a; Fed-SMP top_k · a")
    _, *rows = tables(block)["Epsilons of 20 rounds"]
    views = [row[0].split()[0] for row in rows]
    assert views == ["third_party", "third_party", "server", "server_secagg"]
    said = text(block)
    for c in report.certified.values():
        assert f"{c.accountant} ({c.bound}); composed: {c.event}" in said
        assert all(assumption in said for assumption in c.assumptions)
    assert all(reason in said for reason in (*report.claimed.reasons, report.claimed.source))
    assert "It holds for this run" in said
    assert "It is not proved for this run" in text(account(root, "DP-SCAFFOLD "))
    assert "Note: tuned without privacy" in text(root)


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


def test_epsilons_of_different_meaning_are_not_drawn_together(several, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        charts, "_picture", lambda c, key: drawn.append(c) or charts.Picture(key, c.title, "", [])
    )
    base, _ = several
    report(base / "a", base / "c")
    first, second = (c for c in drawn if c.title == "Test accuracy (%) by certified epsilon")
    for chart, words in (
        (first, ("client level", "view third party", "add-or-remove", "1e-06", "constructed")),
        (second, ("record level", "view third party", "replace-one", "2.5e-06", "constructed")),
    ):
        assert all(word in chart.x_label for word in words)


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
    assert command[:3] == ["fedpriv", "run", "quickstart"]
    again = plain(parse(modules.load("quickstart"), "quickstart", command[3:]))
    assert again | {"output": str(base / "b")} == summary.settings


def test_one_seed_has_no_band_and_a_config_of_a_colleague_no_command(tmp_path):
    folder = shutil.copytree(made("one seed").path, tmp_path / "one")
    edit(folder / "config.json", config="of_a_colleague")
    root = report(folder)
    assert "No band, as there is a single seed: FedAvg; " in text(root)
    assert "±" not in "".join(
        cell for rows in tables(root).values() for row in rows for cell in row
    )
    assert tables(root)["Runs"][1][3] == "no command of this version gives these settings"
