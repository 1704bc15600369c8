"""The wavelet paper's items: gains and epsilons as printed, Table II and the noise computed, one from end to end."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
from made_runs import run_folder, settled
from prepared import random_split, write_images

from configs import wavelet_mnist
from experiments.reproduce import __main__ as reproduce
from experiments.reproduce import wavelet
from experiments.reproduce.accounting import certificate_of, claim_of, meaning
from experiments.reproduce.filled import fill
from experiments.reproduce.item import Scale, Training
from experiments.reproduce.shelf import Shelf
from experiments.reproduce.wavelet import clipped
from experiments.reproduce.wavelet_trainings import training
from fedpriv import models

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ITEMS = {item.name: item for item in wavelet.ITEMS}
TRAININGS = {w for item in ITEMS.values() for w in item.needs if isinstance(w, Training)}


def published(name):
    return {(c.row, c.column): c.published for c in ITEMS[name].cells if c.published}


@pytest.mark.parametrize(
    ("name", "over", "texts"),
    [
        ("fig7", "DP-SGD", ["4.9", "7.03", "9.16"]),
        ("fig7", "Dyn-DP-SGD", ["2.87", "4.2", "4.82"]),
        ("fig8", "DP-SGD", ["9.93", "12.7", "14.6"]),
        ("fig9", "DP-SGD", ["6.38", "7.2", "9.1"]),
        ("fig10", "DP-FedAvg", ["3.64", "6.14", "12.97"]),
        ("fig11", "DP-FedAvg", ["13.2", "14.82", "27.3"]),
        ("fig12", "DP-FedAvg", ["5.96", "6.67", "16.33"]),
        ("fig12", "Dyn-DP-FedAvg", ["1.987", "4.02", "5.94"]),
    ],
)
def test_published_gains(name, over, texts):
    column = f"{'DP-SGD' if 'SGD' in over else 'DP-FedAvg'}-WAV less {over} (points)"
    assert [text for (_, c), text in published(name).items() if c == column] == texts


def test_table_3():
    found = published("table3")
    assert len(found) == 18
    row = "DP-AdaGrad, Fashion-MNIST, sigma = 3 (printed epsilon 1.64)"
    assert found[row, "gain (points)"] == "10.88"
    assert found["DP-Adam, MNIST, sigma = 1 (printed epsilon 6.38)", "gain (points)"] == "3.56"


def test_the_worked_example_and_its_weights_come_out():
    cells = ITEMS["table2"].cells
    assert len(cells) == 8 + 2 * 4 + 2 * 2 + 2 + 8
    for cell in cells:
        assert cell.read().mean == cell.printed.mean, cell.row
    assert [c.published for c in cells if "detailed" in c.row] == [
        "-2",
        "-4",
        "2",
        "1",
        "0.5",
        "1",
        "0.25",
    ]
    assert [c.published for c in cells if "weight" in c.row] == list("82222448")


def test_the_noise_of_figure_4():
    """Within 6 standard deviations of the variance's estimate, whatever the seed."""
    item = ITEMS["fig4"]
    (noise,) = item.needs
    found = noise.compute(Scale(), None)
    assert found["isotropic"] == pytest.approx(1, abs=6 * np.sqrt(2 / 28_874))
    # Level 1 has half of the coefficients; each coarser one half as many, twice as often, of a quarter of the variance.
    levels = [2 * 2.0**level / 2**15 * 16.0**-level for level in range(1, 16)]
    assert found["haar"] == pytest.approx(1 / 3, abs=6 * np.sqrt(sum(levels)))
    width = np.diff(found["edges"])
    assert np.sum(width * found["haar_density"]) == pytest.approx(1)
    cells = {cell.row: cell for cell in item.cells}
    assert cells["DP-SGD-WAV"].published == "8.5"  # (2 + 15) / 2, m = 2^15
    assert cells["DP-SGD-WAV, exactly"].read().mean == pytest.approx(1 / 3)


def test_epsilons_stand_below_what_they_mean():
    """And those of the paper do not come out."""
    cells = ITEMS["epsilons"].cells
    claims = [c for c in cells if c.column == "claimed epsilon (third party, add-or-remove)"]
    assert [c.published for c in claims] == 2 * (
        2 * ["6.38", "3.61", "1.64"] + ["24.5", "7.94", "4.75"]
    )
    for level, names, unit, relation in (
        ("record", ("dp_sgd", "dp_sgd_wav"), "record", "add-or-remove"),
        ("user", ("dp_fed_avg", "dp_fed_avg_wav"), "client", "zero-out"),
    ):
        vanilla, wav = (clipped(training(level, "mnist", name, 3.0)) for name in names)
        claim = claim_of(wav)
        assert meaning(claim) == f"{unit}, third party, add-or-remove, delta 1e-05"
        assert claim.epsilon > 10 * 1.64
        numbers = [certificate_of(work) for work in (vanilla, wav)]
        assert {meaning(n) for n in numbers} == {f"{unit}, third party, {relation}, delta 1e-05"}
        assert numbers[0].epsilon < claim.epsilon < numbers[1].epsilon


def test_every_training_is_accepted():
    assert len(TRAININGS) == 2 * 3 * (1 + 3 * 3) + 2 * 2 * 9
    for work in TRAININGS:
        config = settled(work)
        assert (config.rounds, config.local_epochs, config.clients) == (300, 50, 100)
        assert work.at(Scale(0.02))["local_epochs"] == 1


def test_gains_are_read(tmp_path):
    levels = {"dp_sgd": 0.5, "dyn_dp_sgd": 0.55, "dp_sgd_wav": 0.6, "fed_avg": 0.9}
    item = ITEMS["fig8"]
    results = {w: run_folder(w, [[0.1], [levels[w.algorithm]]]) for w in item.needs}
    filled = {(f.cell.row, f.cell.column): f for f in fill(item, Scale(), results)}
    gain = filled["sigma = 1.5", "DP-SGD-WAV less DP-SGD (points)"]
    assert (gain.value.mean, gain.difference) == pytest.approx((10, -2.7))
    dynamic = filled["sigma = 1.5", "DP-SGD-WAV less Dyn-DP-SGD (points)"]
    assert dynamic.value.mean == pytest.approx(5)


@pytest.mark.slow
def test_from_end_to_end(tmp_path, monkeypatch):
    """Two of Figure 7's trainings, 1 of 300 rounds, on 4 clients with a tiny network."""
    assert jax.device_count() == 2
    rng = np.random.default_rng(0)
    splits = {n: random_split(rng, c, (28, 28, 1), 10) for n, c in (("train", 48), ("test", 20))}
    write_images(tmp_path / "data", "mnist", splits, 10)
    own = {"clients": 4, "cohort": 2, "lot": 5, "proxy": 8}
    monkeypatch.setattr(wavelet_mnist, "config", dataclasses.replace(wavelet_mnist.config, **own))
    network = models.classifier(models.MLP((3,), 10), (28, 28, 1))
    monkeypatch.setattr(models, "small_mnist_cnn", lambda: network)
    only = [f"{name} noise_multiplier=3.0" for name in ("dp_sgd", "dp_sgd_wav")]
    where = ["--data-dir", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    assert reproduce.main(["wavelet", "fig7", "--scale", "0.004", "--only", *only, *where]) == 0
    item, shelf = ITEMS["fig7"], Shelf.of(tmp_path / "out", Scale(0.004))
    final = {}
    for name in ("dp_sgd", "dp_sgd_wav"):
        folder = shelf.run(item, training("record", "mnist", name, 3.0))
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["settings"]["local_epochs"] == 1
        final[name] = summary["accuracy"]["final"][name]["mean"]
    with (shelf.item(item) / "table.csv").open() as file:
        rows = {(r["row"], r["column"]): r for r in csv.DictReader(file)}
    cell = rows["sigma = 3", "DP-SGD-WAV less DP-SGD (points)"]
    gain = 100 * (final["dp_sgd_wav"] - final["dp_sgd"])
    assert float(cell["measured"]) == pytest.approx(gain)
    assert float(cell["difference"]) == pytest.approx(gain - 9.16)
    assert cell["scaled"] == "scaled: 1 of 300 rounds, 1 of 50 local epochs"
    assert rows["sigma = 1", cell["column"]]["measured"] == ""
    text = (shelf.item(item) / "table.md").read_text()
    assert "record, third party, add-or-remove" in text  # of the claim
    assert (shelf.item(item) / "picture.png").stat().st_size > 10_000
