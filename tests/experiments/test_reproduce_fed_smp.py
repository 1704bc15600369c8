"""Fed-SMP's items from end to end, on tiny images and a tiny network in the place of the paper's."""

import csv
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from prepared import random_split, write_images
from small import regression

from configs import fed_smp_fashion_mnist
from experiments.compare import RunFolder
from experiments.papers.fed_smp import Local, train_loss
from experiments.reproduce import __main__ as reproduce
from experiments.reproduce.fed_smp_data import FASHION_MNIST
from experiments.reproduce.item import Value
from experiments.reproduce.reading import saved_uplink
from experiments.reproduce.shelf import Shelf
from fedpriv import ModelState, models

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, COHORT, HIDDEN, P = 20, 4, 5, 0.1


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Table 1 and Figure 3 with two of their rows trained, for 2 of 180 rounds."""
    assert jax.device_count() == 2
    folder, rng = tmp_path_factory.mktemp("fed_smp"), np.random.default_rng(0)
    splits = {n: random_split(rng, c, (28, 28, 1), 10) for n, c in (("train", 70), ("test", 30))}
    write_images(folder / "data", "fashion_mnist", splits, 10)
    small = dataclasses.replace(
        fed_smp_fashion_mnist.config,
        clients=CLIENTS,
        cohort=COHORT,
        public_examples=10,
        local=Local(epochs=1),
    )
    network = models.classifier(models.MLP((HIDDEN,), 10), (28, 28, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fed_smp_fashion_mnist, "config", small)
        patch.setattr(models, "fashion_mnist_cnn", lambda weights: network)
        for item in ("table1", "fig3"):
            config = FASHION_MNIST.config
            words = [f"{config} top_k p={P}", f"{config} fed_avg_rand_k p=0.2"]
            only = words[:1] if item == "table1" else words
            given = ["fed_smp", item, "--scale", "0.01", "--only", *only]
            where = ["--data-dir", str(folder / "data"), "--output", str(folder / "out")]
            assert reproduce.main([*given, *where]) == 0
    return folder / "out"


def rows(output, item):
    with (output / "fed_smp" / f"{item}-scale-0.01" / "table.csv").open() as file:
        return {(row["row"], row["column"]): row for row in csv.DictReader(file)}


def run(output, training):
    folder = output / "fed_smp" / "runs-scale-0.01" / training.key
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return json.loads((folder / "summary.json").read_text()), lines


@pytest.mark.slow
def test_table_1_measures_accuracy_and_uplink(output):
    summary, _ = run(output, FASHION_MNIST.training("top_k", P))
    row = f"p = {P}, Fed-SMP top_k"
    found = rows(output, "table1")
    accuracy = found[row, "accuracy (%)"]
    best = summary["accuracy"]["best"]["top_k"]["per_seed"][0]
    assert float(accuracy["measured"]) == pytest.approx(100 * best)
    assert (accuracy["published"], accuracy["comparable"]) == ("80.49", "no")
    d = 784 * HIDDEN + HIDDEN + HIDDEN * 10 + 10
    megabytes = 32 * round(P * d) * 2 * COHORT / CLIENTS / 8e6
    assert float(found[row, "uplink per client (MB)"]["measured"]) == pytest.approx(megabytes)
    assert found["p = 0.2, Fed-SMP top_k", "accuracy (%)"]["measured"] == ""


@pytest.mark.slow
def test_figure_3_has_the_train_loss(output):
    found = rows(output, "fig3")
    for name, label, p in (("top_k", "Fed-SMP top_k", P), ("fed_avg_rand_k", "FedAvg-rand_k", 0.2)):
        _, lines = run(output, FASHION_MNIST.training(name, p))
        loss = lines[-1]["diagnostics_not_private"]["train_loss"]["mean"]
        row = found[f"Fashion-MNIST, {label}, p = {p:g}", "train loss"]
        assert float(row["measured"]) == loss > 0
        assert row["published"] == ""


@pytest.mark.slow
def test_figure_3_trained_one_row_more(output):
    """The other one was there from Table 1."""
    runs = [folder.name for folder in (output / "fed_smp" / "runs-scale-0.01").iterdir()]
    expected = [FASHION_MNIST.training("top_k", P), FASHION_MNIST.training("fed_avg_rand_k", 0.2)]
    assert sorted(runs) == sorted(work.key for work in expected)
    items = {item.name: item for item in reproduce.PAPERS["fed_smp"]}
    assert Shelf(output, "-scale-0.01").done(items["fig3"]) == 2


def test_the_train_loss_is_the_mean_over_evenly_spaced_examples():
    federation = regression([3, 4])

    def score(params, example):
        return {"loss": 2 * params["a"] * example["y"], "weight": jnp.float32(2), "correct": 0.0}

    model = models.Model(lambda key: {}, lambda params, example: 0.0, score)
    state = ModelState({"a": jnp.float32(3)}, jnp.int32(0))
    y = np.asarray(federation.examples["y"])
    for count, used in ((3, [0, 2, 4]), (7, range(7)), (100, range(7))):
        found = train_loss(model, count)(state, federation)
        np.testing.assert_allclose(found["train_loss"], 3 * y[list(used)].mean(), rtol=1e-5)


def test_uplink_saved_is_counted_to_the_first_round_above_the_target():
    def made(*points):
        lines = [{"uplink_mb_per_client": mb, "accuracy": {"mean": a}} for mb, a in points]
        return RunFolder({}, lines)

    dense = made((10, 0.3), (20, 0.72), (30, 0.8))
    assert saved_uplink(0.72)(made((1, 0.5), (2, 0.71), (3, 0.73)), dense) == Value(85.0)
    assert saved_uplink(0.72)(made((1, 0.5)), dense) == "not reached"
    assert saved_uplink(0.72)(dense, made((1, 0.5))) == "not reached"
