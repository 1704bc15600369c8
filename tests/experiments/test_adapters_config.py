"""The config of ways to fine-tune: each trains from one base, which is kept, and costs what the others cost."""

from typing import get_args

import pytest
from test_shakespeare import LONG, write_plays

from configs import adapters
from fedpriv import experiments, models
from fedpriv.data.datasets.shakespeare import VOCABULARY
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.settings import changed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

WAYS = get_args(adapters.Way)
SMALL = {
    "client_plays": 1,
    "length": 8,
    "cohort": 3,
    "rounds": 2,
    "every": 1,
    "seeds": 1,
    "rank": 1,
    "public_examples": 1,
    "noise_multiplier": 1.0,
}


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Two plays, and a tiny transformer."""
    speeches = [(play, f"ROLE {i}", LONG) for play in "AB" for i in range(6) for _ in range(3)]
    write_plays(tmp_path / "shakespeare" / "plays.jsonl", speeches)
    tiny = models.next_character(models.Transformer(VOCABULARY, width=4, heads=1, layers=1))
    monkeypatch.setattr(adapters.ToLastPlays, "NETWORK", tiny)
    return {**SMALL, "data_dir": tmp_path, "base_dir": tmp_path / "bases"}


@pytest.mark.slow
def test_ways_train_from_one_base(given, monkeypatch):
    """The second run reads the base that the first one kept; no round is compiled."""
    for way in (WAYS[0], WAYS[-1]):
        made = experiment_of(adapters, changed(adapters.settings, {**given, "trained": way}))
        for name in made.entries:
            made.ledger.trace(name)
        monkeypatch.setattr(adapters, "trained_openly", None)  # would raise
    assert len([*given["base_dir"].rglob("*.safetensors")]) == 1


@pytest.mark.slow
def test_every_way_costs_what_the_others_cost_without_a_base(given):
    epsilons = set()
    for way in WAYS:
        (account,) = experiments.privacy("adapters", trained=way, **given)
        assert {c.basis for c in account.certificates} == {"constructed"}
        epsilons.add(tuple(c.epsilon for c in account.certificates))
    assert len(epsilons) == 1
    assert not given["base_dir"].exists()
