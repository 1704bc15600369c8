"""The wavelet experiments, end to end on tiny prepared data sets."""

import pytest
from prepared import write_random

from fedpriv import models
from fedpriv.experiments.config import image, modules
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.papers import wavelet
from fedpriv.experiments.papers.wavelet_settings import Wavelet

SMALL = ["--clients", "4", "--cohort", "2", "--lot", "5", "--proxy", "12", "--rounds", "2"]
SMALL += ["--every", "1", "--delta", "1e-3"]
pytestmark = pytest.mark.usefixtures("quick_to_compile")

NETWORK = models.classifier(models.MLP((4,), 10), (8, 8, 1))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", "cifar10", train=52, test=20)
    return folder


def experiment(name, prepared, *options):
    given = [*SMALL, *options, "--data-dir", str(prepared)]
    return experiment_of(modules.load(name), parse(modules.load(name), name, given))


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_clip_norms_and_certificates(prepared):
    names = ("fed_avg", "dp_sgd", "dp_sgd_wav", "dp_fed_avg")
    made = experiment("wavelet_mnist", prepared, "--algorithms", *names)
    settings = {name: entry.settings for name, entry in made.entries.items()}
    assert settings["fed_avg"] == {}
    # The proxy set's medians: of gradients, of their coefficients, of an update.
    norms = [settings[n]["clip_norm"] for n in names[1:]]
    assert len(set(norms)) == 3
    assert norms[1] < norms[0]  # averaging makes vectors shorter
    for name in names:
        certified = made.ledger.certify(name, 2).epsilon
        # The paper's noise is a thousandth of what it hides, or less: inf, or a number that says nothing.
        sound = name != "fed_avg" and not name.endswith("wav")
        assert 1 < certified < 5 if sound else certified > 1e3, name


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_a_round_with_other_options_can_be_traced(prepared):
    names = ("dp_sgd_wav", "dp_fed_avg_wav")
    options = ["--noise-on-each", "--bounded", "gradients", "--clip", "levels"]
    made = experiment("wavelet_cifar10", prepared, "--algorithms", *names, *options)
    for name in names:
        made.ledger.trace(name)


def epsilons(*names, **changes):
    """Of three rounds, on 594 records of each client."""
    config = Wavelet(algorithms=names, rounds=3, **changes)
    ledger = wavelet.ledger(config, NETWORK, image(8, 8, 1), 60_000)
    return [ledger.certify(name, 3).epsilon for name in names]


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
