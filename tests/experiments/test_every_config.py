"""Laws of every config that ships: it trains and costs what it said; the first of a kind is reported."""

from dataclasses import replace

import numpy as np
import pytest
from every_config import CONFIGS, FIRST, SMALL
from prepared import random_split, write_images, write_random
from resumed import OFTEN, KilledError, Stop, assert_same
from test_shakespeare import LONG, write_plays

import experiments
from experiments.base.formats import short_name_of
from experiments.base.json_values import plain
from experiments.config.made import ledger_of
from experiments.config.options import parse
from experiments.run import main
from fedpriv import models

pytestmark = pytest.mark.usefixtures("quick_to_compile", "tiny_networks", "tiny_transformers")


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


KEEPING = {"personal": "clients' own models", "late": "buffers", "correlated": "noise of before"}
"""What runs of these keep beside the model, and go on with."""


def test_the_laws_are_of_every_config():
    assert sorted(SMALL) == sorted(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_releases_are_of_is_known_without_data(name, tmp_path):
    """The first of its algorithms."""
    settings = CONFIGS[name].settings
    settings = replace(settings, data_dir=tmp_path, algorithms=settings.algorithms[:1])
    ledger = ledger_of(CONFIGS[name], settings)
    assert [*ledger.entries] == [*settings.algorithms]
    assert 0 < ledger.delta < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_it_trains_costs_what_it_said_and_is_reported(name, data_dir, tmp_path, monkeypatch):
    """The last of its algorithms, three rounds."""
    lstm = models.next_character(models.CharacterLSTM(90, 2, 4))
    monkeypatch.setattr(models, "shakespeare_lstm", lambda: lstm)
    module = CONFIGS[name]
    algorithm = module.settings.algorithms[-1]
    words = [*SMALL[name].split(), "--algorithms", algorithm, "--rounds", "3", "--every", "1"]
    words += ["--seeds", "1", "--layout.devices", "1", "--data-dir", str(data_dir)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([name, *words, "--output", str(whole)]) == 0
    if name in KEEPING:
        with pytest.raises(KilledError):
            main([name, *words, *OFTEN, "--output", str(killed)], sinks=[Stop(algorithm, 2)])
        assert main(["--resume", str(killed)]) == 0
        assert_same(killed, whole)
    if "wavelet" not in name:  # which draws among as many records as the published sets have
        settings = plain(parse(module, name, words))
        del settings["view"]  # of all
        (account,) = experiments.privacy(name, **settings)
        found = {certificate.view: certificate for certificate in account.certificates}
        assert found == experiments.runs.read(whole).certificates[algorithm]
    if name in FIRST.values():
        page = experiments.report(whole, tmp_path / "page.html")
        assert short_name_of(algorithm) in page.read_text()
