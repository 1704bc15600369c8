"""The config of few authors: whose texts are trained on, and who a client is."""

import numpy as np
import pytest
from test_shakespeare import write_plays

from configs import few_authors
from fedpriv.data.datasets.shakespeare import BEGIN
from fedpriv.experiments.config.made import experiment_of, ledger_of
from fedpriv.experiments.config.settings import changed

SAID = {"ANN": 2, "BOB": 10, "CAT": 6, "DAN": 8}
"""Speeches of each role of a play."""


@pytest.fixture
def loaded(tmp_path):
    """Of six plays; a speech has two texts: 100 characters, and what begins it and ends it."""
    speeches = [
        (play, who, 100 * play) for play in "ABCDEF" for who in SAID for _ in range(SAID[who])
    ]
    write_plays(tmp_path / "plays.jsonl", speeches)

    def load(**given):
        return few_authors.load(
            changed(few_authors.settings, {"data_dir": tmp_path, "authors": 3, **given})
        )

    return load


def letters(data):
    """The first character of each text that begins a speech, as ids."""
    text = data.train["text"]
    return text[text[:, 0] == BEGIN][:, 1]


def test_authors_are_of_no_public_play(loaded):
    """The base is of play A; plays B, C and D are for rehearsals."""
    private, rehearsed = (loaded(rehearse=rehearse) for rehearse in (False, True))
    assert not set(letters(private)) & set(letters(rehearsed))
    # The three roles with most text in E and F, as in B: BOB twice or thrice, then DAN.
    assert np.bincount(private.keys).tolist() == [16, 12, 16]  # texts of 8, 6 and 8 speeches
    assert np.bincount(rehearsed.keys).tolist() == [16, 16, 16]


def test_texts_of_an_author_are_counted(loaded):
    few = loaded(author_texts=5)
    assert np.bincount(few.keys).tolist() == [5, 5, 5]
    whole = loaded()
    for author in range(3):
        ours, theirs = (d.train["text"][d.keys == author] for d in (few, whole))
        np.testing.assert_array_equal(ours, theirs[:5])


def test_a_speech_is_a_client(loaded):
    """The same texts; each client has the two of a speech."""
    authors, speeches = (loaded(unit=unit) for unit in ("author", "speech"))
    np.testing.assert_array_equal(authors.train["text"], speeches.train["text"])
    assert np.bincount(speeches.keys).tolist() == [2] * 22
    assert len({*zip(authors.keys.tolist(), speeches.keys.tolist(), strict=True)}) == 22
    (note,) = set(changed(few_authors.settings, {"unit": "speech"}).notes) - set(
        few_authors.settings.notes
    )
    assert "author" in note


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile", "tiny_transformers")
@pytest.mark.filterwarnings("ignore:examples. .* repeat another")
@pytest.mark.parametrize("unit", ["author", "speech"])
def test_a_run_costs_what_it_said_before_its_base_was_there(loaded, tmp_path, unit):
    loaded()  # writes the plays
    small = {"data_dir": tmp_path, "authors": 3, "base_epochs": 1, "cohort": 3, "rounds": 2}
    small |= {"unit": unit, "public_examples": 1}
    settings = changed(few_authors.settings, small)
    made = experiment_of(few_authors, settings)
    ledgers = made.ledger, ledger_of(few_authors, settings)
    one, other = (ledger.certify("dp_fed_avg", 2) for ledger in ledgers)
    assert (one.epsilon, one.basis) == (other.epsilon, other.basis)
    assert 0 < one.epsilon < np.inf
    assert one.basis == "constructed"
