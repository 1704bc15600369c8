"""Whose each client or record is, as `from_arrays` is told, and what it keeps of a person."""

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from scipy import stats
from small import refused

import fedpriv as fp
from fedpriv.data.federation import stack

N, DEVICES, PEOPLE = 48, 12, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)).astype(np.float32)
DEVICE = np.repeat(np.arange(DEVICES), N // DEVICES)
OWNER = np.array([0, 0, 1, 1, 1, 2, 0, 3, 1, 0, 0, 0])  # of a device
TABLE = {"x": X, "device": DEVICE, "person": OWNER[DEVICE]}


def of(table=TABLE, clients="device", person="person", make=fp.Federation, **how):
    return make.from_arrays(table, clients, person=person, **how)


def kept(federation):
    """The rows that are trained on."""
    (rows,) = federation.rows_on_host
    return set(rows.rows.tolist())


def holdings(federation):
    (rows,) = federation.rows_on_host
    return federation.persons.holdings(rows).tolist()


def test_a_persons_clients_are_bounded():
    federation = of(per_person=2)
    assert set(federation.examples) == {"x"}
    counts = np.bincount([person for person, _, _ in holdings(federation)])
    np.testing.assert_array_equal(counts, [2, 2, 1, 1])
    of_kept = OWNER[federation.persons.kept]
    np.testing.assert_array_equal(np.bincount(of_kept), [2, 2, 1, 1])
    assert kept(federation) == set(np.flatnonzero(np.isin(DEVICE, federation.persons.kept)))
    assert "4 persons, at most 2 clients each" in repr(federation)


@pytest.mark.parametrize("make", [fp.Federation, fp.StreamedFederation])
def test_it_is_said_in_several_ways(make):
    """By a column of any kind, an array by client, one by record, or ids in a list each."""
    plain = {"x": X, "device": DEVICE}
    names = np.array(["ann", "bob", "cem", "dua"])[OWNER]
    by_client = make.from_arrays(plain, "device", person=OWNER, per_person=2)
    by_record = make.from_arrays(plain, "device", person=OWNER[DEVICE], per_person=2)
    lists = [[int(owner)] for owner in OWNER[DEVICE]]
    by_list = make.from_arrays(plain, "device", person=lists, per_person=2)
    by_names = make.from_arrays(plain, "device", person=names, per_person=2)
    assert by_client.persons == by_record.persons == by_list.persons
    assert make.from_arrays(plain, "device", person=names).persons.number == PEOPLE
    assert len(holdings(by_names)) == len(holdings(by_client)) == 6
    assert by_client.persons != make.from_arrays(plain, "device", person=OWNER).persons
    assert "4 persons" in repr(by_client)


def test_tables_and_files_say_it_too(tmp_path):
    frame = pd.DataFrame({"x": X[:, 0], "device": DEVICE, "person": OWNER[DEVICE]})
    assert of(frame, per_person=2).persons == of(per_person=2).persons
    own = ({"x": X[d == DEVICE], "person": OWNER[DEVICE][d == DEVICE]} for d in range(DEVICES))
    fp.write_clients(tmp_path, own)
    streamed = fp.StreamedFederation.from_folder(tmp_path, person="person", per_person=2)
    assert streamed.persons == of(per_person=2).persons
    assert streamed.num_clients == 6
    assert set(streamed.examples) == {"x"}


def test_records_are_bounded_where_clients_are_several_persons():
    """And clients that are left without records are left out."""
    hospital = np.arange(N) % 5
    patient = np.where(np.arange(N) < 20, 0, np.arange(N))
    federation = of({"x": X, "h": hospital, "p": patient}, "h", "p", per_person=3)
    records = np.zeros(federation.persons.number, int)
    for person, _, count in holdings(federation):
        records[person] += count
    assert records.max() == 3
    assert len(kept(federation)) == N - 17
    assert federation.num_clients == 5
    alone = of({"x": X, "h": hospital, "p": np.zeros(N, int)}, "h", "p", per_person=3)
    assert alone.num_clients <= 3  # where all clients are one person's, clients are counted
    assert alone.persons.of_clients


def check_that_it_is_blind(make):
    """`make` (examples, seed -> federation) keeps the same rows, whatever the records are, and others by another seed.

    Raises AssertionError where it looks at them.
    """
    table = TABLE | {"person": np.where(np.arange(N) % 3, 7, np.arange(N) % 9)}
    one = make(table, 0)
    for other in (-X, X[::-1].copy(), np.zeros_like(X)):
        assert kept(make(table | {"x": other}, 0)) == kept(one)
    assert kept(make(table, 1)) != kept(one)


def test_bounding_looks_at_no_content():
    check_that_it_is_blind(lambda table, seed: of(table, per_person=3, seed=seed))
    lists = [[i % 4, 4 + i % 3] for i in range(N)]
    check_that_it_is_blind(lambda table, seed: of(table, person=lists, per_person=5, seed=seed))


def test_a_bounding_that_looks_at_content_is_found():
    """A planted fault: the records of the largest norm of each person are kept."""

    def largest(table, seed):
        loud = np.argsort(-np.linalg.norm(table["x"], axis=1), kind="stable")
        first = pd.Series(table["person"][loud]).groupby(table["person"][loud]).cumcount() < 3
        chosen = {name: leaf[np.sort(loud[first])] for name, leaf in table.items()}
        federation = of(chosen, seed=seed)
        (rows,) = federation.rows_on_host
        return type(
            "Kept", (), {"rows_on_host": [rows._replace(rows=np.sort(loud[first])[rows.rows])]}
        )

    with pytest.raises(AssertionError):
        check_that_it_is_blind(largest)


def test_a_persons_choice_does_not_depend_on_others():
    """So that without one of them all others keep what they had."""
    everyone = of(per_person=1)
    for gone in range(PEOPLE):
        there = OWNER[DEVICE] != gone
        without = of({name: leaf[there] for name, leaf in TABLE.items()}, per_person=1)
        own = np.flatnonzero(there)[sorted(kept(without))]
        assert set(own) == {row for row in kept(everyone) if there[row]}


def test_each_choice_is_as_likely():
    """Chi-squared over 300 seeds, false-alarm rate 1e-6."""
    chosen, seeds = np.zeros(DEVICES), 300
    for seed in range(seeds):
        chosen[of(per_person=2, seed=seed).persons.kept] += 1
    for person, clients in ((0, 6), (1, 4)):
        counts = chosen[person == OWNER]
        assert counts.sum() == 2 * seeds
        # Without replacement: the counts vary less, by (m - 2) / (m - 1).
        spread = ((counts - 2 * seeds / clients) ** 2).sum() / (2 * seeds / clients)
        assert stats.chi2(clients - 1).sf(spread * (clients - 1) / (clients - 2)) > 1e-6


def test_several_owners_are_bounded_greedily():
    """By hand, in the order that the seed gives."""
    owners = RNG.integers(0, 6, (N, 2))
    owners[::7, 1] = -1
    federation = of(TABLE, person=owners, per_person=4, seed=3)
    count, expected = np.zeros(6, int), set()
    for row in np.random.default_rng(3).permutation(N):
        own = np.unique(owners[row][owners[row] >= 0])
        if (count[own] < 4).all():
            expected.add(row)
            count[own] += 1
    assert kept(federation) == expected
    assert federation.persons.have_several


def test_held_out_records_stay_with_their_clients():
    flags = np.arange(N) % 4 == 0
    with pytest.warns(UserWarning, match="^held_out: 4 of 4 persons who are trained on"):
        federation = of(TABLE | {"out": flags}, per_person=2, held_out="out")
    (rows,) = federation.held_out.rows_on_host
    np.testing.assert_array_equal(rows.size, np.ones(6))
    np.testing.assert_array_equal(DEVICE[rows.rows], federation.persons.kept)
    assert federation.held_out.persons == federation.for_training.persons == federation.persons


def test_federations_of_equal_persons_share_compiled_programs():
    traces = []

    @jax.jit
    def size(federation):
        traces.append(1)
        return federation.size.sum()

    one, same = of(per_person=2), of(per_person=2)
    size(one), size(same)
    assert len(traces) == 1
    assert len(jax.tree.leaves(one)) == len(jax.tree.leaves(of(person=None, table=WITHOUT)))
    assert hash(one.persons) == hash(same.persons)


WITHOUT = {"x": X, "device": DEVICE}


def test_equal_persons_are_stacked():
    assert stack([of(), of()]).persons == of().persons


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_persons(tmp_path):
    """Whose clients were not drawn together in the rounds before."""

    def score(w, example):
        return {"loss": jax.numpy.sum(example["x"] @ w)}

    def run(rounds, owner):
        federation = of(WITHOUT, person=owner)
        algorithm = fp.fed_sgd(
            lambda w, example: score(w, example)["loss"],
            sampler=fp.by_person(fp.fixed_size(PEOPLE, 2), federation),
            learning_rate=0.1,
        )
        given = {"rounds": rounds, "every": 1, "checkpoints": fp.Checkpoints(tmp_path, rounds=1)}
        test = {"x": X[:4]}
        return fp.simulate(algorithm, X[0], federation, test, score=score, seeds=(0,), **given)

    run(1, OWNER)
    with refused("is of another run: persons"):
        run(1, OWNER[::-1])


def test_each_seed_has_the_persons_that_are_drawn():
    """Equal records are equal persons', and clients of another partition may be others'."""
    fours = np.arange(N).reshape(DEVICES, 4)
    one, other = (
        of({"x": X}, list(rows), person=np.arange(N) // 8)
        for rows in (fours, np.r_[fours[::2], fours[1::2]])
    )
    assert other.persons == one.persons
    algorithm = fp.fed_avg(
        lambda w, example: example["x"] @ w,
        sampler=fp.by_person(fp.fixed_size(6, 2), one),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    given = {"score": lambda w, example: {"loss": example["x"] @ w}, "rounds": 1, "seeds": (0, 1)}
    with refused("it draws persons of another federation"):
        fp.simulate(algorithm, X[0], [one, other], {"x": X[:4]}, **given)


def test_a_person_may_be_the_servers_alone():
    assert of(public=np.flatnonzero(OWNER[DEVICE] == 3)).persons.number == 3


def test_a_column_that_says_who_shares_a_person_is_warned_of():
    with pytest.warns(UserWarning, match="10 of 12 clients share a person .* 2 of 4 persons"):
        fp.Federation.from_arrays(TABLE, "device")
    ids = {"x": X, "device": DEVICE, "PatientID": np.arange(N) // 2}
    with pytest.warns(UserWarning, match="48 of 48 records share a person"):
        fp.StreamedFederation.from_arrays(ids, "device")
    once = {"x": X, "device": DEVICE, "patient": np.arange(N) // 4 * 4 + np.arange(N) % 2}
    once |= {"out": np.arange(N) % 4 > 1}  # each has one record to train on, and one held out
    with pytest.warns(UserWarning, match="48 of 48 records share a person"):
        fp.Federation.from_arrays(once, "device", held_out="out")


@pytest.mark.filterwarnings("error")
def test_a_column_that_says_nothing_of_it_is_not_warned_of():
    for name, ids in (("user", DEVICE), ("person", np.arange(N)), ("age", OWNER[DEVICE])):
        fp.Federation.from_arrays(WITHOUT | {name: ids}, "device")
