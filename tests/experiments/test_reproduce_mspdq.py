"""The MSPDQ paper's items: its settings, claims judged on runs made up for them, and some from end to end."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
from made_runs import run_folder, settled
from prepared import random_split, write_images

from configs import mspdq_mnist
from experiments.compare import RunFolder
from experiments.inversion import figure6
from experiments.reproduce import __main__ as reproduce
from experiments.reproduce import mspdq, mspdq_defence
from experiments.reproduce.filled import fill
from experiments.reproduce.item import Scale, Training
from experiments.reproduce.mspdq_trainings import (
    MNIST,
    early_shortfall,
    late_loss,
    least_lead,
    quantized,
    training,
)
from experiments.reproduce.picture import save
from experiments.reproduce.shelf import Shelf
from fedpriv import models

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ITEMS = {item.name: item for item in mspdq.ITEMS}
TRAININGS = {w for item in ITEMS.values() for w in item.needs if isinstance(w, Training)}


def test_every_training_is_accepted():
    assert {w.config for w in TRAININGS} == {"mspdq_mnist", "mspdq_cifar10"}
    for work in TRAININGS:
        config = settled(work)
        expected = (10, 10, 0.2) if work.config == MNIST else (5, 40, 0.1)
        assert (config.local_epochs, config.batch_size, config.learning_rate) == expected
        assert (config.clients, config.cohort) == (100, 20)


def test_the_papers_settings():
    figure_2 = {w.algorithm: settled(w) for w in ITEMS["fig2"].needs}
    assert list(figure_2) == ["fed_avg", "msp_fl", "mspdq_fl", "ldp_fed_avg", "jopeq"]
    assert figure_2["msp_fl"].msp_exchanges == 4
    assert (figure_2["mspdq_fl"].exchanges, figure_2["mspdq_fl"].bits) == (10, 8)
    assert figure_2["ldp_fed_avg"].ldp.epsilon == figure_2["jopeq"].jopeq.epsilon == 10
    drawn = {(c.config, c.settings["exchanges"], c.settings["bits"]) for c in ITEMS["fig3"].needs}
    data = ("mspdq_mnist", "mspdq_cifar10")
    assert drawn == {(d, k, bits) for d in data for k in (20, 30) for bits in (8, 6, 4)}
    splits = [settled(w) for w in ITEMS["fig7"].needs if w.settings["decay"] == "linear"]
    assert {(c.msp_exchanges, c.gamma) for c in splits} == {(10, 0.1), (4, 0.1), (10, 0.3)}
    assert (18, 18) in {c.submodels for c in splits if c.gamma == 0.1}


def runs_of(item, level, **others):
    """Runs that rise to what `level` says; None is one that diverges after the first of three evaluations."""
    found = {}
    for work in item.needs:
        if not isinstance(work, Training):
            continue
        last = level(work)
        rows = [[0.2]] if last is None else [[0.2], [last / 2], [last]]
        status = "diverged: NaN" if last is None else "complete"
        found[work] = run_folder(work, rows, status=status, **others)
    return found


def judged(item, results):
    return {f.cell.row: f for f in fill(item, Scale(), results) if f.cell.claim}


def test_claims_of_figure_2():
    item = ITEMS["fig2"]
    levels = {"fed_avg": 0.6, "msp_fl": 0.58, "ldp_fed_avg": 0.5, "jopeq": 0.55}

    def level(work):
        return 0.9 if work.settings.get("interval") else levels.get(work.algorithm)

    filled = {(f.cell.row, f.cell.column): f for f in fill(item, Scale(), runs_of(item, level))}
    last, always = "difference in accuracy (points)", "least over the evaluations (points)"
    about = filled["claim: MSP-FL within 3 points of FedAvg", last]
    assert about.value.mean == pytest.approx(-2)
    assert about.verdict == "agrees"
    assert filled["MSPDQ-FL (as printed)", "last accuracy (%)"].said == "diverged"
    assert filled["claim: MSPDQ-FL (as printed) above JoPEQ", last].value.mean == pytest.approx(-45)
    assert filled["claim: MSPDQ-FL (as printed) above JoPEQ", last].verdict == "does not agree"
    columns = "claim: MSPDQ-FL (by columns, gamma = 0.3) above JoPEQ"
    assert filled[columns, last].verdict == "agrees"
    assert filled[columns, always].value.mean == pytest.approx(0)  # equal at first
    assert filled[columns, always].verdict == "does not agree"
    assert len([column for _, column in filled if column == always]) == 6


def test_how_claims_read_a_run():
    one, other = training(MNIST, "fed_avg"), training(MNIST, "msp_fl")
    rising = run_folder(one, [[0.1], [0.3], [0.5], [0.6], [0.7], [0.8]])
    falling = run_folder(other, [[0.1], [0.2], [0.6], [0.9], [0.5], [0.4]])
    assert late_loss(falling).mean == pytest.approx(50)
    assert late_loss(rising).mean == pytest.approx(0)
    assert least_lead(falling, rising).mean == pytest.approx(-40)
    assert early_shortfall(falling, rising).mean == pytest.approx(10)  # of the first two of six
    gone = run_folder(other, [[0.5]], status="diverged: NaN")
    assert late_loss(gone).mean == pytest.approx(40)  # down to chance
    never = RunFolder({"status": "diverged: NaN"}, [])
    assert late_loss(never).mean == 0


def test_a_breakdown_that_is_there_agrees():
    """18 submodels diverge and 17 train, as the paper has it; with gamma = 0.3 so do 5 and 4."""
    item = ITEMS["fig7"]

    def level(work):
        most = 17 if work.settings["gamma"] == 0.1 else 4
        return 0.6 if work.settings["submodels"][0] <= most else None

    found = judged(item, runs_of(item, level))
    assert len(found) == 3 * 2 * 2
    assert {f.verdict for f in found.values()} == {"agrees"}
    found = judged(item, runs_of(item, lambda work: 0.6))
    for row, f in found.items():
        assert f.verdict == ("agrees" if "trains" in row else "does not agree")


def test_figures_3_and_5_are_read():
    for name, count in (("fig3", 8 * 3), ("fig5", 2 * (2 + 3))):
        item = ITEMS[name]
        found = judged(item, runs_of(item, lambda work: 0.6))
        assert len(found) == count
        wrong = {row for row, f in found.items() if f.verdict != "agrees"}
        said = (
            "6 bits lose late",
            "the root is worse",
        )  # claims of a difference, where there is none
        assert wrong == {row for row in found if any(text in row for text in said)}


def test_uploads_of_figure_4(tmp_path):
    """K_t = 4 in every round and 20 clients: 100 uploads a round, and 10 rounds an evaluation."""
    item = ITEMS["fig4"]
    results = runs_of(item, lambda work: 0.8 if work.settings["bits"] > 6 else 0.7, exchanges=4.0)
    results = {
        w: r._replace(lines=[*r.lines[:1], _at(r, 1, 0.65), _at(r, 2)]) for w, r in results.items()
    }
    filled = {f.cell.row: f for f in fill(item, Scale(), results)}
    first = {row[:3]: f for row, f in filled.items() if not row.startswith("claim")}
    assert list(first) == [f"{group}.{letter}" for group in "123" for letter in "abc"]
    assert [first[f"1.{x}"].value.mean for x in "abc"] == [2000, 3000, 3000]
    assert first["2.c"].said == "not in 3000"
    assert filled["claim: 1.b above 1.a"].verdict == "agrees"
    assert filled["claim: 1.c above 1.b"].verdict == "does not agree"
    assert filled["claim: 2.c above 2.b"].said == "not reached"
    save(item, list(filled.values()), results, "", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def _at(run, index, accuracy=None):
    line = run.lines[index]
    return (
        line if accuracy is None else {**line, "accuracy": {**line["accuracy"], "mean": accuracy}}
    )


def test_scores_of_figure_6(tmp_path):
    """Scores made up as the paper has them: fewer bits and more noise, larger."""
    item = ITEMS["fig6"]
    results = runs_of(item, lambda work: 0.5)
    base = {
        "MSP-FL": 0.1,
        "MSPDQ-FL, 8 bits": 0.2,
        "MSPDQ-FL, 6 bits": 0.3,
        "MSPDQ-FL, 4 bits": 0.4,
    }
    base |= {"JoPEQ": 0.2, "MSP + Lap": 0.3}
    for key, points in mspdq_defence.curves().items():
        rows = [
            {"x": p.x, "reading": r, "value": base[key[1]] - 0.01 * i}
            for p in points
            for i, r in enumerate(p.readings)
        ]
        summary = {"status": "complete", "rows": rows, "mean_image": 0.06}
        results[mspdq_defence.attack(key)] = RunFolder(summary, [])
    assert set(results) == set(item.needs)
    filled = fill(item, Scale(), results)
    assert all(f.value is not None for f in filled)
    verdicts = {f.cell.row: f.verdict for f in filled if f.cell.claim}
    assert len(verdicts) == 3 + 3 + 4 + 4 + 1 + 1
    less = "claim: MSPDQ-FL (4 bits, factor 0.3) loses less than JoPEQ (eps = 1)"
    assert {row for row, verdict in verdicts.items() if verdict != "agrees"} == {
        less
    }  # both at 0.5
    cells = {(f.cell.row, f.cell.column): f.value.mean for f in filled}
    row = "MSP-FL, as printed, splitting factor 0.3"
    assert cells[row, "MSE by one message"] == 0.1
    assert cells[row, "MSE by all messages"] == pytest.approx(0.08)
    assert cells["JoPEQ, eps (a setting) 1", "MSE by one message"] == 0.2
    save(item, filled, results, "", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("mspdq"), np.random.default_rng(0)
    splits = {n: random_split(rng, c, (28, 28, 1), 10) for n, c in (("train", 48), ("test", 20))}
    write_images(folder, "mnist", splits, 10)
    return folder


@pytest.mark.slow
def test_from_end_to_end(prepared, tmp_path, monkeypatch):
    """One of Figure 3's trainings, 2 of 30 rounds, on 4 clients with a tiny network."""
    assert jax.device_count() == 2
    small = dataclasses.replace(mspdq_mnist.config, clients=4, cohort=2)
    monkeypatch.setattr(mspdq_mnist, "config", small)
    network = models.classifier(models.MLP((3,), 10), (28, 28, 1))
    monkeypatch.setattr(models, "small_mnist_cnn", lambda: network)
    only = "mspdq_mnist bits=6 exchanges=20 interval=columns"
    given = ["--scale", "0.05", "--only", only, "--data-dir", str(prepared)]
    assert reproduce.main(["mspdq", "fig3", *given, "--output", str(tmp_path)]) == 0
    item, shelf = ITEMS["fig3"], Shelf.of(tmp_path, Scale(0.05))
    work = quantized(MNIST, 6, 20, interval="columns", gamma=0.3)
    summary = json.loads((shelf.run(item, work) / "summary.json").read_text())
    assert (summary["settings"]["local_epochs"], summary["rounds"]) == (1, {"mspdq_fl": 2})
    assert summary["settings"]["every"] == 1
    lines = (shelf.run(item, work) / "metrics.jsonl").read_text().splitlines()
    accuracy = [100 * json.loads(line)["accuracy"]["mean"] for line in lines]
    with (shelf.item(item) / "table.csv").open() as file:
        rows = {r["row"]: r for r in csv.DictReader(file)}
    name = "MNIST, K_t = 20, by columns, gamma = 0.3, 6 bits"
    assert float(rows[name]["measured"]) == pytest.approx(accuracy[-1])
    lost = rows[f"claim: {name} do not lose late"]
    assert float(lost["measured"]) == pytest.approx(max(accuracy) - accuracy[-1])
    assert lost["verdict"] in ("agrees", "does not agree")
    assert lost["scaled"] == "scaled: 2 of 30 rounds, 1 of 10 and 1 of 5 local epochs"


def test_attacks_on_a_curve(prepared, monkeypatch):
    """On 2 of 20 images; the attack itself is tested with experiments.inversion."""

    def attacked(point, victims, attack, seed):
        assert len(victims.images) == 2
        return [{"x": point.x, "reading": reading, "value": 0.5} for reading in point.readings]

    monkeypatch.setattr(figure6, "attacked", attacked)
    found = mspdq_defence.attack(("noise", "JoPEQ")).compute(Scale(0.01), prepared)
    assert [row["x"] for row in found["rows"]] == list(figure6.EPSILONS)
    assert {row["reading"] for row in found["rows"]} == {"update"}
    assert 0 < found["mean_image"] < 1
    assert found["scaled"] == "2 of 20 images, 3 of 300 steps"
