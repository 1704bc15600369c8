"""A streamed federation: the results of one in memory, from the records of two cohorts at a time."""

import importlib
import threading
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import ALGORITHMS, CLIENTS, FEDERATION, POISSON
from small import assert_close, assert_identical, members, regression, sgd, squared, start

import fedpriv as fp
from fedpriv.attacks import canaries
from fedpriv.engine.compiled_rounds import numbered_round

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TEST = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
LOCAL = {"optimizer": sgd, "batches": fp.epochs(1, 2)}


def partition(federation):
    """The rows of each client."""
    rows, size = np.asarray(federation.rows), np.asarray(federation.size)
    return [own[:count] for own, count in zip(rows, size, strict=True)]


def streamed(federation, **options):
    """The same examples and clients, on the host."""
    examples, public = jax.tree.map(np.asarray, (federation.examples, federation.public))
    return fp.StreamedFederation.from_arrays(
        examples, partition(federation), public=public, **options
    )


def score(params, example):
    return {"accuracy": 0.0, "loss": squared(params, example), "weight": 1.0}


def run(algorithm, federation, *, seeds=(0, 3), strategy=None, **kwargs):
    options = {"score": score, "rounds": 3, "every": 2, "strategy": strategy or fp.Strategy()}
    return fp.simulate(algorithm, start(), federation, TEST, seeds=seeds, **options | kwargs)


def prefetching():
    """Threads that fetch."""
    return [t for t in threading.enumerate() if t.name.startswith("fedpriv-prefetch")]


class Tallied(NamedTuple):
    """Model, and how often each client took part."""

    params: dict
    round: jax.Array
    drawn: jax.Array  # i32[clients]


def two_sums():
    """A user's own round: two sums over the cohort, the second of what clients keep."""
    grad = fp.mean_grad(squared)
    open = {"mechanism": fp.unprotected()}

    def init(params, federation):
        return Tallied(params, jnp.int32(0), jnp.zeros(federation.num_clients, jnp.int32))

    def round(key, state, cohort):
        def slope(key, shard):
            return grad(state.params, shard.examples, shard.mask)

        def tally(key, shard, drawn):
            label = jnp.sum(shard.examples["y"] * shard.mask)
            return fp.Sent(jnp.float32(label), {"label": jnp.float32(label)}, drawn + 1)

        total, _, _ = cohort.sum(slope, key, **open)
        labels, metrics, drawn = cohort.sum(tally, key, own=state.drawn, **open)
        rate = 0.1 / (1 + labels / 100)
        params = jax.tree.map(lambda p, s: p - rate * s, state.params, total)
        return Tallied(params, state.round + 1, drawn), metrics

    return fp.Algorithm(init, round, POISSON)


MADE = {
    "two sums": two_sums(),
    "canaries": canaries.with_canaries(
        ALGORITHMS["dp_fed_avg"],
        2,
        fp.privacy.declared("third_party", "client", 1.0, POISSON.accounting, 1),
    ),
}


@tiers.every("name", MADE, kind=lambda algorithm: "any")
def test_the_results_are_those_in_memory(name):
    """The state to the bit, all that a later round can depend on; `test_every_algorithm.py` has a round of each.

    To the last digit but one where XLA adds in another order: canaries' products.
    """
    expected, found = (
        run(MADE[name], federation) for federation in (FEDERATION, streamed(FEDERATION))
    )
    same = partial(assert_close, rtol=1e-6) if name == "canaries" else assert_identical
    same(found.state, expected.state)
    np.testing.assert_array_equal(found.rounds, [2, 3])
    for ours, theirs in zip(found.evaluations, expected.evaluations, strict=True):
        np.testing.assert_array_equal(ours.accuracy, theirs.accuracy)
        np.testing.assert_array_equal(ours.uplink_mb, theirs.uplink_mb)
        np.testing.assert_array_equal(ours.downlink_mb, theirs.downlink_mb)
        assert ours.diagnostics.keys() == theirs.diagnostics.keys()
        assert_close((ours.loss, ours.diagnostics), (theirs.loss, theirs.diagnostics), 1e-6)
    assert not prefetching()


@pytest.mark.slow
def test_a_federation_for_each_seed():
    """Of clients of other sizes: all get the room of the largest, as `stack` gives them."""
    first = regression([2, 5, 3, 1], public=2)
    other = first.repartition([[0, 1, 2, 3, 4, 5, 6], [7], [8], [9, 10]], public=[11, 12])
    algorithm = fp.fed_avg(squared, sampler=fp.fixed_size(4, 2), **LOCAL)

    each = [first, other], [streamed(first), streamed(other)]
    expected, found = (run(algorithm, federations, seeds=(0, 0)) for federations in each)
    assert_identical(found.state, expected.state)
    assert found.loss[-1, 0] != found.loss[-1, 1]


@pytest.mark.slow
def test_a_run_is_compiled_once():
    counts, compiled = [0], []

    def listener(event, seconds, **_):
        counts[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        run(
            fp.fed_sgd(squared, sampler=POISSON, learning_rate=0.1),
            streamed(FEDERATION),
            rounds=5,
            on_evaluation=lambda _: compiled.append(counts[0]),
        )
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert len(compiled) == 3
    assert len(set(compiled)) == 1


def test_a_shard_is_padded_as_in_memory():
    federation = regression([2, 5, 3, 1], public=2)
    order = np.concatenate([*partition(federation), np.asarray(federation.public)])
    examples = {name: np.asarray(leaf)[order] for name, leaf in federation.examples.items()}
    by_client = fp.StreamedFederation.from_sorted(examples, federation.size)
    drawn = fp.everyone(4).draw(jax.random.key(0))
    of_client = jax.jit(lambda made, i: made.records(drawn.ids, drawn.mask)(i))
    for made in (streamed(federation), by_client):
        assert (made.num_clients, made.capacity) == (4, 5)
        holders, held = made.read(np.array([3, 4, 1, 3, 0], np.int32))
        np.testing.assert_array_equal(holders, [0, 1, 3, 4, 4])
        seen = replace(made.empty(), holders=jnp.asarray(holders), holder_records=held)
        for i in holders[:3]:
            assert_identical(*(of_client(f, jnp.int32(i)) for f in (seen, federation)))
        assert len(held["x"]) == 11  # the most that five clients can have, each once
        np.testing.assert_array_equal(made.size, federation.size)
        fixed = made.empty()
        np.testing.assert_array_equal(
            fixed.examples["x"][fixed.public], federation.examples["x"][federation.public]
        )


class Counted(np.memmap):
    """A mapped file that notes which rows are read."""

    def __getitem__(self, rows):
        if isinstance(rows, slice) and rows.stop:
            self.read.append((rows.start, rows.stop))
        return super().__getitem__(rows)


MANY, EACH, SIDE = 100_000, 4, 16


@pytest.fixture
def large(tmp_path):
    """100,000 clients, 102 MB of images on disk whose brightness tells their label."""
    rng = np.random.default_rng(0)
    shape = (MANY * EACH, SIDE, SIDE, 1)
    image = np.lib.format.open_memmap(tmp_path / "image.npy", "w+", np.uint8, shape)
    label = rng.integers(0, 2, MANY * EACH, np.int32)
    for rows in np.split(np.arange(MANY * EACH), 20):
        image[rows] = rng.integers(0, 100, (len(rows), *shape[1:]), np.uint8)
        image[rows] += 100 * label[rows, None, None, None].astype(np.uint8)
    image.flush()
    np.save(tmp_path / "label.npy", label)
    np.save(tmp_path / "sizes.npy", np.full(MANY, EACH))
    federation = fp.StreamedFederation.from_folder(tmp_path, num_classes=2)
    counted = federation.examples["image"].view(Counted)
    counted.read = []
    federation.examples["image"] = counted
    return federation


@pytest.mark.slow
def test_a_hundred_thousand_clients(large):
    model = fp.models.classifier(fp.models.LogisticRegression(2), (SIDE, SIDE, 1))
    sampler = fp.poisson(MANY, 5e-4, 100)
    algorithm = fp.dp_fed_avg(
        model.loss,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.05),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=0.1,
    )
    rows = slice(0, 400)
    test = {"image": large.examples["image"].view(np.memmap)[rows]}
    test["label"] = large.examples["label"][rows]

    def on_device():
        return sum(leaf.nbytes for leaf in jax.live_arrays())

    # Kept alive: were an array of another test freed meanwhile, the difference would shrink.
    others = jax.live_arrays()
    before, most = sum(leaf.nbytes for leaf in others), []
    history = fp.simulate(
        algorithm,
        model.init,
        large,
        test,
        score=model.score,
        rounds=6,
        every=2,
        strategy=fp.Strategy(),
        on_evaluation=lambda _: most.append(on_device() - before),
    )
    assert history.loss[-1, 0] < 0.8 * np.log(2)
    data = large.examples["image"].nbytes
    assert data > 100e6
    assert max(most) < data / 50
    assert max(most) > 4 * MANY  # the sizes are there: something is measured
    # Exactly the cohorts' records were read, each round's once.
    expected = []
    for t in range(6):
        ids = members(sampler, jax.random.key(0), t)
        expected += [(i * EACH, (i + 1) * EACH) for i in np.unique(ids).tolist()]
    assert large.examples["image"].read == expected


class Hooked(np.ndarray):
    """An array that tells when a client's records are read."""

    def __getitem__(self, rows):
        if isinstance(rows, slice) and rows.stop:
            self.hook()
        return super().__getitem__(rows)


def hooked(federation, hook):
    order = np.concatenate(partition(federation))
    examples = {name: np.asarray(leaf)[order] for name, leaf in federation.examples.items()}
    examples["y"] = examples["y"].view(Hooked)
    examples["y"].hook = hook
    return fp.StreamedFederation.from_sorted(examples, federation.size)


class Order(NamedTuple):
    """What happened, and events for what must have."""

    happened: list
    read: list


def test_records_are_fetched_one_round_ahead(monkeypatch):
    """Round t cannot end before the reading of round t + 1, and that of t + 2 does not begin before it has ended."""
    rounds, timeout = 5, 60
    seen = Order([], [threading.Event() for _ in range(rounds + 1)])
    seen.read[rounds].set()  # which is never read

    def reading():
        t = sum(kind == "read" for kind, _ in seen.happened)
        seen.happened.append(("read", t))
        seen.read[t].set()

    def ending(t):
        if not seen.read[int(t) + 1].wait(timeout):
            raise TimeoutError(f"round {t} runs and the records of the next are not being read")
        seen.happened.append(("ran", int(t)))
        return np.int32(t)

    sampler = fp.fixed_size(CLIENTS, 1)  # one client, so that a round is one read
    plain = fp.fed_avg(squared, sampler=sampler, **LOCAL)

    def noted(*given):  # not in the round itself, which may not call the host
        *_, t, _, _ = given
        after, seen = numbered_round(*given)
        t = jax.pure_callback(ending, jax.ShapeDtypeStruct((), jnp.int32), t)
        return after._replace(state=after.state._replace(round=t + 1)), seen

    monkeypatch.setattr(importlib.import_module("fedpriv.engine.simulate"), "numbered_round", noted)
    run(plain, hooked(FEDERATION, reading), seeds=(0,), rounds=rounds)
    expected = [("read", 0)]
    for t in range(rounds):
        expected += [("read", t + 1), ("ran", t)] if t + 1 < rounds else [("ran", t)]
    assert seen.happened == expected


@pytest.mark.slow
def test_no_more_than_two_rounds_records_are_on_the_device(monkeypatch):
    """Each reading waits for the end of a round: the first two for none, the others for one after the other."""
    waited, reads, wait = [], [], jax.block_until_ready

    def noted(of_round):
        waited.append(of_round)
        return wait(of_round)

    monkeypatch.setattr(jax, "block_until_ready", noted)
    plain = fp.fed_avg(squared, sampler=fp.fixed_size(CLIENTS, 1), **LOCAL)
    federation = hooked(FEDERATION, lambda: reads.append(len(waited)))
    run(plain, federation, seeds=(0, 1), rounds=3)
    assert reads == [1, 2, 3, 4, 5, 6]
    assert waited[:2] == [None, None]
    assert len({id(end) for end in waited[2:]}) == 4
    assert all(end.is_ready() for end in waited[2:])
