"""The Python of the READMEs is run as it stands there."""

import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from small import assert_identical

import fedpriv as fp

ROOT = Path(__file__).parents[1]
ALGORITHMS = (ROOT / "docs" / "reference" / "algorithms.md").read_text()


def snippets(guide: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), re.DOTALL)


def snippet(word: str) -> str:
    """The first of the guide's from Python that has the word."""
    return next(text for text in snippets("fedpriv/README.md") if word in text)


@pytest.mark.slow
def test_the_examples_run(capsys, tmp_path, monkeypatch):
    names: dict = {}
    exec(snippet("history ="), names)
    assert names["history"].accuracy[-1].mean() > 0.5
    assert "certified (constructed): client-level" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    exec(snippet("trained ="), names)  # the model that was trained
    right = np.mean(names["labels"] == names["data"].test["label"])
    assert right == pytest.approx(names["history"].accuracy[-1, 0])
    exec(snippet("streamed ="), names)  # the same federation from files
    assert names["streamed"].num_clients == names["federation"].num_clients
    exec(snippet("of_nnx ="), names)  # models of every library
    for made in ("of_linen", "of_nnx", "of_jax"):
        logits = names[made].predict(names[made].init(jax.random.key(0)), np.ones((5, 7)))
        assert logits.shape == (5, 3)
    exec(snippet("lora ="), names)  # adapters of a public base
    assert "is public: it does not depend on data" in capsys.readouterr().out
    lying, labels = names["turned"](names["data"].test)["image"], names["data"].test["label"]
    before = names["model"].predict(names["base"], lying).argmax(-1) == labels
    assert names["right"].mean() > before.mean() + 0.2
    exec(snippet("haar ="), names)  # mechanisms, on the same model
    told = capsys.readouterr().out
    assert told.startswith("2.0 0.000")
    assert "certified (constructed): record-level" in told
    exec(snippet("sizes ="), names)  # unequal clients
    epsilons = [certificate.epsilon for certificate in names["each"]]
    assert np.argmax(epsilons) == np.argmin(names["sizes"])
    exec(snippet("own ="), names)  # a round of one's own, for records
    assert "certified (constructed): record-level" in capsys.readouterr().out
    exec(snippet("error_feedback"), names)  # what clients keep
    assert "certified (constructed): client-level" in capsys.readouterr().out
    seen_by_server = fp.certify(
        names["sparse"], names["model"].init, names["federation"], 50, 1e-3, view="server"
    )
    assert seen_by_server.epsilon == float("inf")
    exec(snippet("on_held_out ="), names)
    exec(snippet("fed_per ="), names)
    assert names["history"].metric("personal_accuracy_mean").shape == (1, 1)
    heads = names["history"].state.own["params"]["Dense_1"]["bias"]  # [seeds, clients, classes]
    assert_identical(names["of_client_3"]["params"]["Dense_1"]["bias"], heads[0, 3])
    exec(snippet("phases ="), names)
    alone = fp.certify(names["algorithm"], names["model"].init, names["federation"], 50, 1e-3)
    assert alone.epsilon < names["phases"].epsilon < names["three"].epsilon
    exec(snippet("regression ="), names)
    assert names["regression"].metric("rmse")[-1] < 0.1
    params = names["model"].init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"fp\.PublicSizes"):
        fp.check_algorithm(names["own"], params, names["federation"])
    fp.check_algorithm(names["own"], params, jax.device_put(names["shapes"]))


@pytest.mark.slow
def test_the_front_page_prints_what_it_says(capsys):
    names: dict = {}
    for text in snippets("README.md"):
        exec(text, names)
    accuracy, certificate = capsys.readouterr().out.splitlines()
    (said,) = re.findall(r"```text\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert said.splitlines()[1] == certificate
    expected = float(said.splitlines()[0].removeprefix("accuracy "))
    assert float(accuracy.removeprefix("accuracy ")) == pytest.approx(expected, abs=0.03)


def test_data_of_ones_own(tmp_path, monkeypatch):
    names: dict = {"fp": fp, "np": np, "data": fp.datasets.load("digits")}
    monkeypatch.chdir(tmp_path)
    exec(snippet("fp.partition.picture"), names)
    assert names["natural"].num_clients == 3
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.png" for name in names["skewed"]}


def test_the_custom_round_gets_every_service(quick_to_compile):
    names: dict = {}
    exec(snippets("README.md")[0], names)
    data = fp.datasets.load("digits")
    clients = fp.partition.iid(np.random.default_rng(0), 1437, 120)
    federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
    model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
    algorithm = names["noisy_signs"](model.loss, fp.fixed_size(120, 60), 0.02, 0.5)
    fp.check_algorithm(algorithm, model.init(jax.random.key(0)), federation)
    history = fp.simulate(
        algorithm,
        model.init,
        federation,
        data.test,
        score=model.score,
        rounds=30,
        every=15,
        seeds=(0, 1),
    )
    assert history.accuracy.shape == (2, 2)
    assert history.accuracy[-1].min() > 0.7
    d = sum(leaf.size for leaf in jax.tree.leaves(model.init(jax.random.key(0))))
    assert history.uplink_mb[-1] == pytest.approx(32 * d * 30 * 60 / 120 / 8e6)
    certificate = fp.certify(algorithm, model.init, federation, 30, 1e-3, view="server_secagg")
    assert certificate.basis == "constructed"
    gaussian = fp.gaussian(d**0.5, 0.5)
    same = fp.fed_avg(
        model.loss,
        sampler=fp.fixed_size(120, 60),
        mechanism=gaussian,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    assert certificate == fp.certify(same, model.init, federation, 30, 1e-3, view="server_secagg")


def test_the_table_of_algorithms_is_complete():
    """Every function of fedpriv.algorithms that makes an Algorithm is there, and nothing that does not exist."""
    named = set(
        re.findall(r"`fp\.(\w+)`", "\n".join(x for x in ALGORITHMS.splitlines() if x[:1] == "|"))
    )
    made = {
        name
        for name in fp.__all__
        if getattr(getattr(fp, name), "__module__", "").startswith("fedpriv.algorithms.")
        and getattr(fp, name).__annotations__.get("return") in ("Algorithm", fp.Algorithm)
    }
    assert len(made) >= 14
    assert made <= named
    assert all(hasattr(fp, name) for name in named)
