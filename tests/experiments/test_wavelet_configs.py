"""The wavelet experiments, end to end on tiny prepared data sets."""

import json

import pytest
from commands import run
from prepared import write_random

from experiments.config import image
from experiments.papers import wavelet
from experiments.papers.wavelet_settings import Wavelet
from fedpriv import models

SMALL = ["--clients", "4", "--cohort", "2", "--lot", "5", "--proxy", "12", "--rounds", "2"]
SMALL += ["--every", "1", "--delta", "1e-3"]
pytestmark = pytest.mark.usefixtures("quick_to_compile")

NETWORK = models.classifier(models.MLP((4,), 10), (8, 8, 1))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", "cifar10", train=52, test=20)
    return folder


def summary_of(config, prepared, folder, *options):
    given = [*SMALL, *options, "--data-dir", str(prepared), "--output", str(folder)]
    assert run.main([config, *given]) == 0
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_its_algorithms_run(prepared, tmp_path, monkeypatch):
    small = models.classifier(models.MLP((8,), 10), (28, 28, 1))
    monkeypatch.setattr(models, "small_mnist_cnn", lambda *weights: small)
    names = ("fed_avg", "dp_sgd", "dp_sgd_wav", "dp_fed_avg")
    found = summary_of("wavelet_mnist", prepared, tmp_path / "r", "--algorithms", *names)
    assert list(found["rounds"]) == list(names)
    settings = found["algorithm_settings"]
    assert settings["fed_avg"] == {}
    # The proxy set's medians: of gradients, of their coefficients, of an update.
    norms = [settings[n]["clip_norm"] for n in names[1:]]
    assert len(set(norms)) == 3
    assert norms[1] < norms[0]  # averaging makes vectors shorter
    privacy = found["privacy"]
    for name in names:
        certified = float(privacy[name]["certified"]["third_party"]["epsilon"])
        # The paper's noise is a thousandth of what it hides, or less: inf, or a number that says nothing.
        sound = name != "fed_avg" and not name.endswith("wav")
        assert 1 < certified < 5 if sound else certified > 1e3, name


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_other_options(prepared, tmp_path):
    names = ("dp_sgd_wav", "dp_fed_avg_wav")
    options = ["--noise-on-each", "--bounded", "gradients", "--clip", "levels"]
    found = summary_of(
        "wavelet_cifar10",
        prepared,
        tmp_path / "r",
        "--algorithms",
        *names,
        *options,
    )
    assert found["rounds"] == dict.fromkeys(names, 2)


def epsilons(*names, **changes):
    """Of six rounds, on 594 records of each client."""
    config = Wavelet(algorithms=names, rounds=6, **changes)
    ledger = wavelet.ledger(config, NETWORK, image(8, 8, 1), 60_000)
    return [ledger.certify(name, 6).epsilon for name in names]


@pytest.mark.slow
def test_schedules_meet_the_budget_of_the_constant_noise():
    plain, falling = epsilons("dp_fed_avg", "dyn_dp_fed_avg")
    assert falling <= plain
    assert falling == pytest.approx(plain, rel=1e-2)


@pytest.mark.slow
def test_sound_variants_have_the_certificate_of_the_plain_ones():
    for names in (("dp_sgd", "dp_sgd_wav_sound"), ("dp_fed_avg", "dp_fed_avg_wav_sound")):
        plain, sound = epsilons(*names)
        assert sound == pytest.approx(plain)


@pytest.mark.slow
def test_every_layer_by_itself_has_the_same_certificate():
    assert epsilons("dp_sgd", per_layer=False) == epsilons("dp_sgd", per_layer=True)
