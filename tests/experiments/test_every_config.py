"""Laws of every config that ships: it is built, and costs what it said; the first of a kind trains and is reported."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from every_config import CONFIGS, FIRST, SMALL
from prepared import random_split, write_images, write_random
from recorded_names import unexplained
from resumed import OFTEN, KilledError, Stop, assert_same
from test_shakespeare import LONG, write_plays

from fedpriv import experiments, models
from fedpriv.core.json_values import plain
from fedpriv.experiments.base.formats import short_name_of
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config.made import experiment_of, ledger_of
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.runs.other_metric import recorded
from fedpriv.experiments.tables.report import charts

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


NOT_HERE = {
    "adapters": "its base takes long: test_adapters_config.py",
    "few_authors": "an assumption names the line that traces it: test_few_authors_config.py",
}
OTHER_COST = dict.fromkeys(
    ("wavelet_cifar10", "wavelet_fashion_mnist", "wavelet_mnist"),
    "its ledger draws among as many records as the published sets have",
)
"""What does not cost here what it said, and why."""
GOES_ON = "personal"
"""A config whose run keeps much beside the model; laws of runs that go on are of every algorithm and sampler."""


def test_the_laws_are_of_every_config():
    assert sorted(SMALL) == sorted(CONFIGS)
    assert {GOES_ON, *NOT_HERE, *OTHER_COST} <= CONFIGS.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_releases_are_of_is_known_without_data(name, tmp_path):
    """The first of its algorithms."""
    settings = CONFIGS[name].settings
    settings = replace(settings, data_dir=tmp_path, algorithms=settings.algorithms[:1])
    ledger = ledger_of(CONFIGS[name], settings)
    assert [*ledger.entries] == [*settings.algorithms]
    assert 0 < ledger.delta < 1


def words_of(name, algorithm, data_dir):
    """Options of three rounds of one algorithm."""
    words = [*SMALL[name].split(), "--algorithms", algorithm, "--rounds", "3", "--every", "1"]
    return [*words, "--seeds", "1", "--layout.devices", "1", "--data-dir", str(data_dir)]


@pytest.fixture
def tiny_lstm(monkeypatch):
    lstm = models.next_character(models.CharacterLSTM(90, 2, 4))
    monkeypatch.setattr(models, "shakespeare_lstm", lambda: lstm)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST.values())
def test_the_first_of_a_kind_trains_costs_what_it_said_and_is_reported(
    name, data_dir, tmp_path, tiny_lstm, monkeypatch
):
    """The last of its algorithms; its page is without pictures."""
    nothing = charts.Picture("k", "", "", [])
    monkeypatch.setattr(charts, "pictures", lambda drawn, ends: [])
    monkeypatch.setattr(charts, "trade_off", lambda *_: nothing)
    module = CONFIGS[name]
    algorithm = module.settings.algorithms[-1]
    words = words_of(name, algorithm, data_dir)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([name, *words, "--output", str(whole)]) == 0
    assert unexplained(recorded([experiments.runs.read(whole)])) == []
    if name == GOES_ON:
        with pytest.raises(KilledError):
            main([name, *words, *OFTEN, "--output", str(killed)], sinks=[Stop(algorithm, 2)])
        assert main(["--resume", str(killed)]) == 0
        assert_same(killed, whole)
    if name not in OTHER_COST:
        settings = plain(parse(module, name, words))
        del settings["view"]  # of all
        (account,) = experiments.privacy(name, **settings)
        found = {certificate.view: certificate for certificate in account.certificates}
        assert found == experiments.runs.read(whole).certificates[algorithm]
    page = experiments.report(whole, tmp_path / "page.html")
    assert short_name_of(algorithm) in page.read_text()


OTHERS = [name for name in CONFIGS if name not in {*FIRST.values(), *NOT_HERE}]


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_others_are_built_and_cost_what_they_said(name, data_dir, tiny_lstm):
    """A round of the last algorithm is traced, and not compiled."""
    module = CONFIGS[name]
    algorithm = module.settings.algorithms[-1]
    settings = parse(module, name, words_of(name, algorithm, data_dir))
    made = experiment_of(module, settings)
    made.ledger.trace(algorithm)
    example = {column: leaf[0] for column, leaf in made.test.items()}
    params = jax.eval_shape(made.model.init, jax.random.key(0))
    assert jax.eval_shape(made.model.score, params, example)
    if name not in OTHER_COST:
        ledgers = made.ledger, ledger_of(module, settings)
        one, other = (ledger.certify(algorithm, 3) for ledger in ledgers)
        assert one == other
