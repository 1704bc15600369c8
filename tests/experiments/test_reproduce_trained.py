"""An item of each paper from end to end, on tiny data and a tiny network in the place of the paper's."""

import dataclasses

import jax
import numpy as np
import pytest
from prepared import write_random
from reproduced import rows
from small import regression

from configs import dp_scaffold_synthetic, fed_smp_fashion_mnist, mspdq_mnist, wavelet_mnist
from fedpriv import ModelState, models
from fedpriv.experiments.commands import reproduce
from fedpriv.experiments.papers.fed_smp import Local, train_loss
from fedpriv.experiments.papers.reproduce import (
    dp_scaffold,
    mspdq,
    mspdq_defence,
    wavelet,
)
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.fed_smp import SETS
from fedpriv.experiments.papers.reproduce.item import Scale
from fedpriv.experiments.papers.reproduce.work import Shelf, status

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """(paper, item, scale, *words of --only) -> the folder of the item, and the results of what was trained for it."""
    assert jax.device_count() == 2
    folder = tmp_path_factory.mktemp("reproduce")
    write_random(folder / "data", "mnist", "fashion_mnist", train=70, test=20)
    network = models.classifier(models.MLP((5,), 10), (28, 28, 1))
    small = {
        fed_smp_fashion_mnist: {"clients": 20, "cohort": 4, "public_examples": 10},
        dp_scaffold_synthetic: {"clients": 10, "records": 50},
        wavelet_mnist: {"clients": 4, "cohort": 2, "lot": 5, "proxy": 8},
        mspdq_mnist: {"clients": 4, "cohort": 2},
    }
    small[fed_smp_fashion_mnist]["local"] = Local(epochs=1)

    def launched(paper, item, scale, *only):
        given = ["--scale", str(scale), "--only", *only, "--data-dir", str(folder / "data")]
        assert reproduce.main([paper, item, *given, "--output", str(folder / "out")]) == 0
        made = next(i for i in PAPERS[paper] if i.name == item)
        shelf = Shelf.of(folder / "out", Scale(scale))
        return shelf.item(made), shelf.results(made)

    with pytest.MonkeyPatch.context() as patch:
        for module, fields in small.items():
            patch.setattr(module, "settings", dataclasses.replace(module.settings, **fields))
        for name in ("fashion_mnist_cnn", "small_mnist_cnn"):
            patch.setattr(models, name, lambda *_: network)
        yield launched


def accuracies(run):
    (lines,) = run.lines.values()
    return [100 * line.metrics["accuracy"].mean for line in lines]


@pytest.mark.slow
def test_fed_smp(launch):
    """Table 1 measures accuracy and uplink; Figure 3 has the train loss of the same training."""
    data = SETS["Fashion-MNIST"]
    top_k, word = data.training("top_k", 0.1), f"{data.config} top_k p=0.1"
    folder, results = launch("fed_smp", "table1", 0.01, word)
    assert list(results) == [top_k]
    found, row = rows(folder), "p = 0.1, Fed-SMP top_k"
    accuracy = found[row, "accuracy (%)"]
    assert float(accuracy["measured"]) == pytest.approx(max(accuracies(results[top_k])))
    assert (accuracy["published"], accuracy["comparable"]) == ("80.49", "no")
    d = 784 * 5 + 5 + 5 * 10 + 10
    megabytes = 32 * round(0.1 * d) * 2 * 4 / 20 / 8e6
    assert float(found[row, "uplink per client (MB)"]["measured"]) == pytest.approx(megabytes)
    assert found["p = 0.2, Fed-SMP top_k", "accuracy (%)"]["measured"] == ""
    folder, results = launch("fed_smp", "fig3", 0.01, word)
    loss = results[top_k].lines["top_k"][-1].metric("train_loss").mean
    row = rows(folder)["Fashion-MNIST, Fed-SMP top_k, p = 0.1", "train loss"]
    assert (float(row["measured"]), row["published"]) == (loss, "")
    assert loss > 0
    item = next(i for i in PAPERS["fed_smp"] if i.name == "fig3")
    assert status(item, folder.parents[1]) == "partly (1 of 90) at scale 0.01"


@pytest.mark.slow
def test_dp_scaffold(launch):
    """Two of Figure 1's trainings, 4 of 400 rounds."""
    words = "dp_scaffold_synthetic {} alpha=5 beta=5 local_steps=50".format
    folder, results = launch("dp_scaffold", "fig1", 0.01, words("dp_scaffold"), words("dp_fed_avg"))
    panel = dp_scaffold.grid("fig1")[0][2]
    last = {}
    for name in ("dp_scaffold", "dp_fed_avg"):
        run = results[panel.training(name)]
        last[name] = run.lines[name][-1].metric("log_gap").mean
        assert (run.settings["clip_norm"], run.settings["local_steps"]) == ("median", 50)
    cell = rows(folder)["synthetic (5, 5), K = 50", "DP-SCAFFOLD less DP-FedAvg"]
    expected = last["dp_scaffold"] - last["dp_fed_avg"]
    assert float(cell["measured"]) == pytest.approx(expected)
    assert cell["verdict"] == ("agrees" if expected < 0 else "does not agree")
    assert (cell["claim"], cell["comparable"]) == ("below 0", "no")
    assert cell["scaled"] == "scaled: 4 of 400 rounds, 1 of 3 seeds, 1 of 20 warm start"
    assert (folder / "picture.png").stat().st_size > 10_000


@pytest.mark.slow
def test_wavelet(launch):
    """One of Figure 7's trainings, 1 of 300 rounds; test_reproduce_claims.py has gains."""
    folder, results = launch("wavelet", "fig7", 0.004, "dp_sgd_wav noise_multiplier=3.0")
    (work,) = results
    assert work == wavelet.training("record", "mnist", "dp_sgd_wav", 3.0)
    assert results[work].settings["local_epochs"] == 1
    found = rows(folder)
    cell = found["sigma = 3", "DP-SGD-WAV (%)"]
    assert float(cell["measured"]) == pytest.approx(accuracies(results[work])[-1])
    assert cell["scaled"] == "scaled: 1 of 300 rounds, 1 of 50 local epochs"
    assert found["sigma = 3", "DP-SGD-WAV less DP-SGD (points)"]["measured"] == ""
    assert "(record, third party, add-or-remove)" in (folder / "table.md").read_text()


@pytest.mark.slow
def test_mspdq(launch):
    """One of Figure 3's trainings, 3 of 60 rounds."""
    only = "mspdq_mnist bits=6 exchanges=20 interval=columns"
    folder, results = launch("mspdq", "fig3", 0.05, only)
    work = mspdq.quantized(mspdq.MNIST, 6, 20, interval="columns", gamma=0.3)
    run = results[work]
    assert (run.settings["local_epochs"], run.settings["every"]) == (1, 1)
    name = "MNIST, K_t = 20, by columns, gamma = 0.3, 6 bits"
    found = {row: cell for (row, _), cell in rows(folder).items()}
    assert float(found[name]["measured"]) == pytest.approx(accuracies(run)[-1])
    lost = found[f"claim: {name} do not lose late"]
    late = max(accuracies(run)) - accuracies(run)[-1]
    assert float(lost["measured"]) == pytest.approx(late)
    assert lost["verdict"] in ("agrees", "does not agree")
    assert lost["scaled"] == "scaled: 3 of 60 rounds, 1 of 3 seeds, 1 of 10 and 1 of 5 local epochs"


@pytest.mark.slow
def test_attacks_on_a_curve(tmp_path, monkeypatch):
    """On 4 of 20 clients, two of three seeds; the attack itself is tested with experiments.inversion."""
    write_random(tmp_path, "mnist", train=64, test=20)

    def attacked(point, victims, attack, seed):
        assert (len(victims.images), victims.federation.num_clients) == (4, 20)
        own = {"x": point.x, "seed": seed, "value": 0.5}
        return [{**own, "reading": reading} for reading in point.readings]

    monkeypatch.setattr(mspdq_defence, "attacked", attacked)
    found = mspdq_defence.attack(("noise", "JoPEQ")).compute(Scale(0.01, 2), tmp_path)
    assert [row["x"] for row in found["rows"]] == 2 * list(mspdq_defence.EPSILONS)
    assert {row["seed"] for row in found["rows"]} == {0, 1}
    assert {row["reading"] for row in found["rows"]} == {"update"}
    assert len(found["mean_image"]) == 2
    assert all(0 < blind < 1 for blind in found["mean_image"])
    assert found["scaled"] == "2 of 3 seeds of the attack"


def test_the_train_loss_is_the_mean_over_evenly_spaced_examples():
    federation = regression([3, 4])

    def score(params, example):
        loss = 2 * params["a"] * example["y"]
        return {"loss": loss, "weight": jax.numpy.float32(2), "accuracy": 0.0}

    model = models.Model(lambda key: {}, lambda params, example: 0.0, score)
    state = ModelState({"a": jax.numpy.float32(3)}, jax.numpy.int32(0))
    y = np.asarray(federation.examples["y"])
    for count, used in ((3, [0, 2, 4]), (100, range(7))):
        found = jax.jit(train_loss(model, count))(state, federation)
        np.testing.assert_allclose(found["train_loss"], 3 * y[list(used)].mean(), rtol=1e-5)
