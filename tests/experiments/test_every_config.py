"""One law for every config that ships: it costs, trains, goes on where it was killed, and is reported."""

import numpy as np
import pytest
from prepared import random_split, write_images, write_random
from resumed import OFTEN, KilledError, Stop, assert_same
from test_shakespeare import LONG, write_plays

import experiments
from experiments.base.formats import short_name_of
from experiments.base.json_values import plain
from experiments.config import modules
from experiments.config.options import parse
from experiments.run import main
from fedpriv import models

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile", "tiny_networks")]

FED_SMP = "--clients 6 --cohort 2 --public-examples 6 --public-epochs 1 --train-loss-examples 6"
FED_SMP += " --local.batch-size 5"
SCAFFOLD = "--clients 6 --records 50 --client-rate 0.5 --local-steps 1 --warm-start 1"
WAVELET = "--clients 4 --cohort 2 --lot 5 --proxy 12 --delta 1e-3"
MSPDQ = "--clients 4 --cohort 2 --local-epochs 1 --exchanges 2"
SMALL = {
    "adapters": FED_SMP + " --client-plays 1 --length 8 --noise-multiplier 0.01",
    "audited": "--clients 6 --cohort 2 --public-examples 6",
    "correlated": "--clients 6 --cohort 2 --bands 2",
    "correlated_text": "--clients 6 --cohort 2 --bands 2",
    "dp_scaffold_femnist": SCAFFOLD,
    "dp_scaffold_mnist": SCAFFOLD,
    "dp_scaffold_synthetic": SCAFFOLD,
    "fed_smp_fashion_mnist": FED_SMP + " --local.epochs 1",
    "fed_smp_shakespeare": FED_SMP.replace("--clients 6", "--clients 12"),
    "fed_smp_svhn": FED_SMP + " --local.epochs 1",
    "fine_tuning": FED_SMP + " --local.epochs 1 --noise-multiplier 0.01",
    "fine_tuning_text": FED_SMP + " --base-plays 1 --base-epochs 1 --noise-multiplier 0.01",
    "late": "--clients 10 --at-work 2 --buffer 2",
    "mspdq_cifar10": MSPDQ,
    "mspdq_mnist": MSPDQ,
    "own_budgets": FED_SMP + " --images 60 --image-steps 1 --groups.rates 0.2 0.4",
    "personal": "--clients 8 --cohort 2 --batch-size 5",
    "pfl_cifar10": "--clients 8 --cohort 2 --batch-size 5 --noise-multiplier 0.1",
    "quickstart": FED_SMP + " --local.epochs 1",
    "race": FED_SMP + " --local.epochs 1",
    "wavelet_cifar10": WAVELET,
    "wavelet_fashion_mnist": WAVELET,
    "wavelet_mnist": WAVELET,
    "who_is_hurt": "--clients 9 --cohort 3 --epochs 1",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Random images, and two plays of twenty roles each."""
    folder = tmp_path_factory.mktemp("data")
    write_random(
        folder, "mnist", "fashion_mnist", "cifar10", "emnist/balanced", train=300, test=120
    )
    rng = np.random.default_rng(0)
    splits = {split: random_split(rng, 60, (32, 32, 3), 10) for split in ("train", "test", "extra")}
    write_images(folder, "svhn_cropped", splits, 10)
    speeches = [(play, f"ROLE {i}", LONG) for play in "AB" for i in range(20) for _ in range(4)]
    write_plays(folder / "shakespeare" / "plays.jsonl", speeches)
    return folder


def test_the_law_is_of_every_config():
    assert list(SMALL) == modules.names()


@pytest.mark.parametrize("name", SMALL)
def test_it_costs_trains_goes_on_and_is_reported(name, data_dir, tmp_path, monkeypatch):
    """The last of its algorithms, three rounds."""
    lstm = models.next_character(models.CharacterLSTM(90, 2, 4))
    monkeypatch.setattr(models, "shakespeare_lstm", lambda: lstm)
    module = modules.load(name)
    algorithm = module.settings.algorithms[-1]
    words = [*SMALL[name].split(), "--algorithms", algorithm, "--rounds", "3", "--every", "1"]
    words += ["--seeds", "1", "--layout.devices", "1", "--data-dir", str(data_dir)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([name, *words, "--output", str(whole)]) == 0
    with pytest.raises(KilledError):
        main([name, *words, *OFTEN, "--output", str(killed)], sinks=[Stop(algorithm, 2)])
    assert main(["--resume", str(killed)]) == 0
    assert_same(killed, whole)
    settings = plain(parse(module, name, words))
    del settings["view"]  # of all
    (account,) = experiments.privacy(name, **settings)
    found = {certificate.view: certificate for certificate in account.certificates}
    trained = experiments.resume(whole).certificates[algorithm]
    assert found.keys() == trained.keys()
    if not name.startswith(
        "wavelet"
    ):  # which draws among as many records as the published sets have
        assert found == trained
    assert short_name_of(algorithm) in experiments.report(whole).read_text()
