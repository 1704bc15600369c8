"""The README's Python is run as it stands there."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

import fedpriv as fp

README = (Path(__file__).parents[1] / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_runs_and_is_short(capsys, tmp_path, monkeypatch):
    example = SNIPPETS[0]
    assert len([x for x in example.splitlines() if x and "import" not in x]) <= 15
    names: dict = {}
    exec(example, names)
    assert names["history"].accuracy[-1].mean() > 0.5
    assert "certified: client-level" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    exec(SNIPPETS[1], names)  # the same federation from files
    assert names["streamed"].num_clients == names["federation"].num_clients
    exec(SNIPPETS[2], names)  # mechanisms, on the same model
    told = capsys.readouterr().out
    assert told.startswith("2.0 0.000")
    assert "certified: record-level" in told


def test_the_custom_round_gets_every_service():
    names: dict = {}
    exec(SNIPPETS[3], names)
    data = fp.datasets.load("digits")
    clients = fp.partition.iid(np.random.default_rng(0), 1437, 40)
    federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
    model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
    algorithm = names["sign_of_gradient"](model.loss, fp.fixed_size(40, 10), 0.02)
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
    assert history.uplink_mb[-1] == pytest.approx(d * 30 * 10 / 40 / 8e6)
    certificate = fp.certify(algorithm, 30, 1e-3, view="server")
    assert certificate.epsilon == np.inf
    assert "no noise is added" in certificate.assumptions[0]
