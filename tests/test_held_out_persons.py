"""Persons who are trained on and held out: how many, what certificates say of it, and whole persons in their place."""

import warnings
from dataclasses import replace

import numpy as np
import optax
import pytest
import tiers
from small import refused, squared, start

import fedpriv as fp
from fedpriv.data.partition import hold_out
from fedpriv.proof.seen import NO_OTHERS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

N, HOSPITALS, PATIENTS = 240, 6, 70
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype(np.float32)
TABLE = {"x": X, "y": X.sum(1)}
HOSPITAL = np.arange(N) % HOSPITALS
PATIENT = RNG.integers(0, PATIENTS, N)
PAIRS = np.stack([PATIENT, np.where(np.arange(N) % 3, -1, RNG.integers(0, PATIENTS, N))], axis=1)
OWNERS = {
    "records": PATIENT,
    "names": np.array([f"p{i}" for i in range(PATIENTS)])[PATIENT],
    "several": PAIRS,
    "clients": HOSPITAL // 2,
}
CLIENTS = fp.partition.natural(HOSPITAL)
PARAMS = start()


def split(owners, count=0.3, seed=0, **how):
    """(held out, rest), whole persons unless `how` says otherwise."""
    return hold_out(np.random.default_rng(seed), CLIENTS, count, **(how or {"person": owners}))


def persons_of(owners, rows):
    return set(np.asarray(owners)[np.concatenate(rows)].ravel().tolist()) - {-1}


def folder(tmp_path, rest, held, owners):
    """A streamed federation of files, whose clients' rows are in the order of (rest, held out)."""
    rows = [np.concatenate(pair) for pair in zip(rest, held, strict=True)]
    flags = [np.arange(len(own)) >= len(left) for own, left in zip(rows, rest, strict=True)]
    parts = (
        {"out": out, "person": owners[own]} | {name: leaf[own] for name, leaf in TABLE.items()}
        for own, out in zip(rows, flags, strict=True)
    )
    fp.write_clients(tmp_path / "clients", parts)
    return fp.StreamedFederation.from_folder(tmp_path / "clients", held_out="out", person="person")


def in_memory(tmp_path, rest, held, owners):
    return fp.Federation.from_arrays(TABLE, rest, held_out=held, person=owners)


def by_columns(tmp_path, rest, held, owners):
    out = np.isin(np.arange(N), np.concatenate(held))
    rows = np.concatenate([*rest, *held])
    table = {name: leaf[rows] for name, leaf in TABLE.items()}
    table |= {"client": HOSPITAL[rows], "person": owners[rows], "out": out[rows]}
    return fp.Federation.from_arrays(table, "client", held_out="out", person="person")


def streamed(tmp_path, rest, held, owners):
    return fp.StreamedFederation.from_arrays(TABLE, rest, held_out=held, person=owners)


def records_of(federation):
    steps = fp.LocalSteps(
        fp.per_example(squared),
        records=fp.poisson(federation.capacity, rate=1.0),
        steps=1,
        optimizer=lambda t: optax.sgd(0.1),
        mechanism=fp.gaussian(1.0, 2.0),
    )
    return fp.dp_sgd(steps, sampler=fp.everyone(federation.num_clients))


def clients_of(federation):
    return fp.dp_fed_avg(
        squared,
        sampler=fp.poisson(federation.num_clients, 0.5),
        batches=fp.full_batch(),
        optimizer=lambda t: optax.sgd(0.1),
        clip_norm=1.0,
        noise_multiplier=2.0,
    )


def assumed(make, federation):
    """What its certificate says of test examples."""
    certificate = fp.certify(make(federation), PARAMS, federation, rounds=1, delta=1e-4)
    assert np.isfinite(certificate.epsilon)
    return [text for text in certificate.assumptions if "test example" in text]


WAYS = {"memory": in_memory, "streamed": streamed, "columns": by_columns, "folder": folder}
PAIRS = [(kind, [*WAYS][(i + k) % 4]) for k in range(2) for i, kind in enumerate(OWNERS)]


@tiers.every("pair", PAIRS, kind=lambda pair: pair[0])
def test_persons_on_both_sides_are_counted_where_a_federation_is_made(tmp_path, pair):
    """Against sets, whoever says whose each record is; whole persons pass in silence."""
    kind, make = pair[0], WAYS[pair[1]]
    owners = OWNERS[kind]
    held, rest = split(owners, stratify=np.zeros(N))
    trained = persons_of(owners, rest)
    both = len(trained & persons_of(owners, held))
    assert both
    count = f"{both} of {len(trained)} persons"
    with pytest.warns(UserWarning, match=f"^held_out: {count} who are trained on") as told:
        federation = make(tmp_path, rest, held, owners)
    assert len(told) == 1
    of = clients_of if kind == "clients" else records_of
    (said,) = assumed(of, federation)
    assert said.startswith(f"{count} that are trained on have held-out records, too")
    assert assumed(of, replace(federation, held_out_rows=None)) == [NO_OTHERS]


@pytest.mark.parametrize("kind", ["records", "names", "several"])
@pytest.mark.parametrize("count", [0.1, 0.3, 0.6, 1])
def test_whole_persons_are_held_out_across_all_clients(kind, count):
    """Each client has some of both, all rows are in one part at most, and the share is about that of its persons."""
    owners = OWNERS[kind]
    for seed in range(5):
        held, rest = split(owners, count, seed)
        assert not persons_of(owners, held) & persons_of(owners, rest)
        for own, out, left in zip(CLIENTS, held, rest, strict=True):
            assert len(left)
            assert not np.intersect1d(out, left).size
            both = np.sort([*out, *left])
            np.testing.assert_array_equal(both, np.sort(own)) if kind != "several" else None
            np.testing.assert_array_equal(out, [row for row in own if row in set(out)])
        share = len(persons_of(owners, held)) / PATIENTS
        if kind != "several" and isinstance(count, float):
            assert abs(share - count) < 0.05  # rounded at six clients of about 12 each
    one, other = split(owners, count, 1), split(owners, count, 2)
    assert any(not np.array_equal(a, b) for a, b in zip(one[0], other[0], strict=True))


def test_a_federation_of_whole_persons_assumes_what_is_true():
    held, rest = split(PATIENT)
    federation = in_memory(None, rest, held, PATIENT)
    assert assumed(records_of, federation) == [NO_OTHERS]
    assert assumed(clients_of, federation) == [NO_OTHERS]


def test_a_small_client_keeps_a_person_that_a_larger_one_shares():
    """The only person of a client counts there, so others' draws never take its last row."""
    person = np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    clients = [[0], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
    for seed in range(20):
        held, rest = hold_out(np.random.default_rng(seed), clients, 0.4, person=person)
        assert (len(held[0]), len(rest[0])) == (0, 1)
        assert 1 not in held[1]


def test_whole_clients_are_held_out_before_rows_are_dealt():
    """As the remedy says where each client is one person's."""
    with refused(r"^count: 0.2; it holds out nobody.* hold_out\(rng, total, count, person"):
        split(OWNERS["clients"], 0.2)
    test, rest = hold_out(np.random.default_rng(0), N, 0.4, person=OWNERS["clients"])
    assert len(set(OWNERS["clients"][test])) == 1
    assert len(fp.partition.natural(HOSPITAL, rows=rest)) == 4


def test_clients_that_hold_out_records_are_counted_where_clients_are_the_unit():
    held, rest = split(PATIENT, stratify=np.zeros(N))
    held[0], rest[0] = held[0][:0], CLIENTS[0]
    federation = fp.Federation.from_arrays(TABLE, rest, held_out=held)
    (said,) = assumed(clients_of, federation)
    assert said.startswith("5 of 6 clients that are trained on have held-out records, too")
    assert assumed(records_of, federation) == [NO_OTHERS]  # other records than those trained on
    planned = fp.Federation.blank(
        {"x": np.zeros(3, np.float32), "y": np.float32(0)}, 6, 20, held_out=5
    )
    assert assumed(clients_of, planned) == [said.replace("5 of 6", "6 of 6")]
    several = fp.certify_together(
        [(clients_of(federation), 2), (clients_of(federation), 3)], PARAMS, federation, delta=1e-4
    )
    assert said in several.assumptions
    assert NO_OTHERS not in several.assumptions


@pytest.mark.parametrize(
    "patient", [PATIENT, np.stack([PATIENT, -np.ones(N, int)], 1)], ids=["one", "several"]
)
def test_test_examples_of_persons_are_counted(patient):
    """By the column that said whose each record is, of one person or several, before anything else is looked at."""
    table = TABLE | {"hospital": HOSPITAL, "patient": patient}
    last = np.arange(N) >= 200
    test = {name: leaf[last] for name, leaf in table.items()}
    train = {name: leaf[~last] for name, leaf in table.items()}
    federation = fp.Federation.from_arrays(train, "hospital", person="patient")
    run = {"score": lambda w, e: {"loss": squared(w, e)}, "rounds": 1}
    algorithm = fp.fed_sgd(squared, sampler=fp.everyone(7), learning_rate=0.1)

    def begin(test):
        with refused("sampler: made for 7 clients"):
            fp.simulate(algorithm, PARAMS, federation, test, **run)

    both = len(set(PATIENT[last]) & set(PATIENT[~last]))
    with pytest.warns(UserWarning, match=f"^test: {both} of {len(set(PATIENT[~last]))} persons"):
        begin(test)
    with warnings.catch_warnings(action="error"):
        begin(test | {"patient": np.where(patient[last] < 0, -1, patient[last] + PATIENTS)})
        del test["patient"]
        begin(test)


TIME = RNG.integers(0, 30, N)
DAYS = np.datetime64("2026-01-01") + TIME.astype("timedelta64[D]")


@pytest.mark.parametrize("time", [TIME, TIME / 7, DAYS, TIME.tolist()], ids=["i", "f", "M", "list"])
@pytest.mark.parametrize("count", [0.2, 0.5, 7])
def test_the_last_part_of_each_client_is_held_out(time, count):
    """As many as fit without a moment on both sides; everything is in one part, in the given order."""
    held, rest = split(None, count, time=time)
    for own, out, left in zip(CLIENTS, held, rest, strict=True):
        wanted = count if isinstance(count, int) else int(count * len(own) + 0.5)
        assert TIME[left].max() < TIME[out].min()
        assert len(out) <= wanted < len(out) + np.sum(TIME[own] == TIME[left].max())
        np.testing.assert_array_equal(out, [row for row in own if row in set(out)])
        np.testing.assert_array_equal(left, [row for row in own if row not in set(out)])


def test_windows_over_the_cut_are_in_neither_part():
    """No moment of a held-out window is one of a window that is trained on, and none is left out without need."""
    step, length = 3, 10
    begin = np.arange(N // HOSPITALS).repeat(HOSPITALS) * step
    windows = np.stack([begin, begin + length - 1], axis=1)
    held, rest = split(None, 0.25, time=windows)
    alone, _ = split(None, 0.25, time=begin)
    for own, out, left, like in zip(CLIENTS, held, rest, alone, strict=True):
        np.testing.assert_array_equal(out, like)
        seen = {moment for row in left for moment in range(*(windows[row] + [0, 1]))}
        tested = {moment for row in out for moment in range(*(windows[row] + [0, 1]))}
        assert not seen & tested
        assert len(own) - len(out) - len(left) == (length - 1) // step
    later, _ = hold_out(np.random.default_rng(0), N, 0.25, time=windows)
    assert begin[later].min() == begin[np.sort(later)[0]]


def test_equal_moments_are_all_trained_on():
    """Those of one client, beside others that hold out half."""
    held, rest = split(None, 0.5, time=np.where(HOSPITAL == 0, 0, np.arange(N)))
    assert [*map(len, held)] == [0] + [N // HOSPITALS // 2] * (HOSPITALS - 1)
    assert len(rest[0]) == N // HOSPITALS


@pytest.mark.parametrize("make", [fp.Federation.from_arrays, fp.StreamedFederation.from_arrays])
def test_how_many_are_trained_on_is_said(make):
    rng = np.random.default_rng(0)
    person = rng.integers(0, 60, 300)
    clients = list(np.arange(300).reshape(5, 60))
    examples = {"x": np.zeros((300, 1), np.float32)}
    out, rest = fp.partition.hold_out(rng, clients, 0.4, person=person)
    all_of_them, trained = len(set(person)), len(set(person[np.concatenate(rest)]))
    assert trained < all_of_them
    said = repr(make(examples, rest, held_out=out, person=person))
    assert f"{all_of_them} persons, trained on {trained} of them" in said
    assert "trained on" not in repr(make(examples, clients, person=person))
