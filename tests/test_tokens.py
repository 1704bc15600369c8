"""Texts as rows of tokens: each is predicted once, from its own text; where rows are no texts, none is a record."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import refused

import fedpriv as fp
from fedpriv.certification.data_checks import _check_texts
from fedpriv.data.datasets import from_tokens
from fedpriv.data.datasets.tokens import Piece, best_fit

RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(0, 50, n).tolist() for n in (5, 0, 1, 2, 9, 10, 17, 26, 3, 1, 4, 4)]
CLIENTS = ["a", "b", "b", "a", "b", "c", "c", "a", "d", "a", "a", "d"]
WAYS = pytest.mark.parametrize("packed", [False, True])


def pairs(texts):
    """What is to be predicted, in order: (token, the next one)."""
    return sorted((a, b) for text in texts for a, b in pairwise(text))


@WAYS
def test_every_token_but_the_first_is_predicted_once_by_its_client(packed):
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50, packed=packed)
    assert list(dict.fromkeys(data["client"])) == list("abcd")
    for client in "abcd":
        own = data["client"] == client
        mask = data["mask"][own]
        found = zip(data["text"][own][mask], data["label"][own][mask], strict=True)
        assert sorted(found) == pairs(t for t, c in zip(TEXTS, CLIENTS, strict=True) if c == client)
    assert not data["text"][~data["mask"]].any()
    assert not data["label"][~data["mask"]].any()


def test_rows_of_one_text_each_are_its_windows_in_order():
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50)
    np.testing.assert_array_equal(data["document"], [0, 3, 4, 5, 5, 6, 6, 7, 7, 7, 7, 8, 10, 11])
    np.testing.assert_array_equal(data["text"][7:10].ravel(), TEXTS[7][:24])
    np.testing.assert_array_equal(data["label"][7:11][data["mask"][7:11]], TEXTS[7][1:])
    np.testing.assert_array_equal(data["mask"].sum(1), [4, 1, 8, 8, 1, 8, 8, 8, 8, 8, 1, 2, 3, 3])


def test_a_packed_row_holds_pieces_of_texts_of_one_client():
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50, packed=True)
    np.testing.assert_array_equal(data["mask"], data["segment"] > 0)
    texts = {client: [] for client in CLIENTS}
    for text, client in zip(TEXTS, CLIENTS, strict=True):
        starts = range(0, len(text) - 1, 8)
        texts[client] += [text[start : start + 9] for start in starts]
    for r, client in enumerate(data["client"]):
        for s in range(1, data["segment"][r].max(initial=0) + 1):
            at = np.flatnonzero(data["segment"][r] == s)
            assert len(at) == at[-1] - at[0] + 1
            read = data["text"][r, at].tolist()
            texts[client].remove([*read, data["label"][r, at[-1]]])  # raises where there is none
            assert data["label"][r, at[:-1]].tolist() == read[1:]
    assert not any(texts.values())
    assert len(data["text"]) < len(from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50)["text"])


def test_packing_needs_no_more_rows_than_any_first_fit():
    sizes = RNG.integers(1, 33, 400)
    rows = best_fit([Piece(i, 0, int(n)) for i, n in enumerate(sizes)], 32)
    assert sorted(piece.text for row in rows for piece in row) == list(range(400))
    full = [sum(piece.size for piece in row) for row in rows]
    assert max(full) <= 32
    assert len(rows) <= 11 / 9 * -(-sizes.sum() // 32) + 1  # of best fit, longest first
    assert sum(full) / (32 * len(rows)) > 0.95


def test_ids_above_16_bits_survive():
    ids = [[0, 2**16 - 1, 2**16, 2**17 + 1, 2**31 - 2], [2**16 + 3, 3]]
    for kind in (np.int64, np.uint32):
        texts = [np.array(text, kind) for text in ids]
        data = from_tokens(texts, [0, 1], length=4, vocabulary=2**31 - 1)
        federation = fp.Federation.from_arrays(data, "client")
        np.testing.assert_array_equal(federation.examples["text"][0], ids[0][:-1])
        np.testing.assert_array_equal(federation.examples["label"][0], ids[0][1:])
        np.testing.assert_array_equal(federation.examples["label"][1], [3, 0, 0, 0])


MODEL = fp.models.from_apply(
    lambda key: jnp.zeros((50, 50)), lambda w, text, segment=None: w[text], "text"
)
MODEL = fp.models.next_token(MODEL)


def by_records(federation):
    steps = fp.LocalSteps(
        fp.per_example(MODEL.loss),
        records=fp.poisson(int(federation.size.max()), rate=0.5),
        steps=1,
        optimizer=lambda t: optax.sgd(0.5),
        mechanism=fp.gaussian(clip_norm=1.0, noise_multiplier=2.0),
    )
    return fp.dp_sgd(steps, sampler=fp.everyone(federation.num_clients))


def certified(federation):
    how = {"rounds": 2, "delta": 1e-5}
    return fp.certify(
        by_records(federation), jax.ShapeDtypeStruct((50, 50), np.float32), federation, **how
    )


@tiers.every("of", [fp.Federation, fp.StreamedFederation], kind=lambda of: "rows")
@pytest.mark.slow
def test_no_row_of_several_texts_is_a_record(of):
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50, packed=True)
    federation = of.from_arrays(data, "client")
    with refused("a packed row holds several texts; give .*packed=False"):
        certified(federation)
    whole = of.from_arrays(data, "client", person=range(4))
    assert certified(whole).unit == "person"
    of_rows = [f"person {i}" for i in range(len(data["client"]))]
    with refused("client 0 holds records of 5 persons"):  # who may share a row
        certified(of.from_arrays(data, "client", person=of_rows))


def test_packed_rows_are_known_under_another_name_of_the_text_and_within_other_leaves():
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50, packed=True)
    client, text = data.pop("client"), data.pop("text")
    for leaves in ({"tokens": text, **data}, {"inside": {"text": text, **data}}):
        federation = fp.Federation.from_arrays(leaves, fp.partition.natural(client))
        with refused("a packed row holds several texts"):
            _check_texts("record", federation)
        _check_texts("client", federation)


@pytest.mark.slow
def test_a_text_of_several_rows_is_protected_as_a_whole():
    data = from_tokens(TEXTS, CLIENTS, length=8, vocabulary=50)
    with refused("a document may have several rows; give .*person='document'"):
        certified(fp.Federation.from_arrays(data, "client"))
    whole = certified(fp.Federation.from_arrays(data, "client", person="document"))
    assert whole.unit == "person"
    rows = {name: leaf for name, leaf in data.items() if name != "document"}
    by_row = certified(fp.Federation.from_arrays(rows, "client"))
    assert by_row.unit == "record"
    assert whole.epsilon > 2 * by_row.epsilon  # of a text with four rows
