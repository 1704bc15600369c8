"""The Python of the front page is run as it stands there."""

import re
from operator import attrgetter
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import fedpriv as fp

ROOT = Path(__file__).parents[1]
ALGORITHMS = (ROOT / "docs" / "reference" / "algorithms.md").read_text()


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_front_page_prints_what_it_says(capsys, quick_to_compile):
    names: dict = {}
    for text in snippets("README.md"):
        exec(text, names)
    accuracy, certificate = capsys.readouterr().out.splitlines()
    (said,) = re.findall(r"```text\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert said.splitlines()[1] == certificate
    expected = float(said.splitlines()[0].removeprefix("accuracy "))
    # Sums round differently on another processor; 0.03 is 11 of 360 test digits.
    assert float(accuracy.removeprefix("accuracy ")) == pytest.approx(expected, abs=0.03)


@pytest.mark.slow
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
        re.findall(
            r"`fp\.((?:papers\.)?\w+)`",
            "\n".join(x for x in ALGORITHMS.splitlines() if x[:1] == "|"),
        )
    )
    offered = {name: getattr(fp, name) for name in fp.__all__}
    offered |= {f"papers.{name}": getattr(fp.papers, name) for name in fp.papers.__all__}
    made = {
        name
        for name, value in offered.items()
        if getattr(value, "__module__", "").startswith("fedpriv.algorithms.")
        and value.__annotations__.get("return") in ("Algorithm", fp.Algorithm)
    }
    assert len(made) >= 14
    assert made <= named
    assert all(attrgetter(name)(fp) for name in named)
