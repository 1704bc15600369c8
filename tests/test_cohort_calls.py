"""Ways to call the cohort twice, late or from elsewhere: each call has noise of its own, or is refused in its place."""

import copy
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax import lax
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    D,
    State,
    fed_avg,
    moved,
    of_clients,
    update,
)
from planted_rounds import private_mean, record_level
from small import one_round, refused, squared

import fedpriv as fp
from fedpriv.compression.codecs import Coded
from fedpriv.core.trees import flatten
from fedpriv.proof.marks import Marks
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.cohort_calls import CohortCalls
from fedpriv.rounds.samplers import Answer

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)
NOTHING = {"uplink": fp.types.Wire(D)}


def calling(wrapped):
    """A round that makes its sum by `wrapped(one sum, params)`."""

    def round(key, state, cohort):
        def once(params):
            now = state._replace(params=params)
            client = lambda key, shard: update(now, key, shard)  # noqa: E731
            return cohort.sum(client, key, mechanism=GAUSSIAN).total

        return state._replace(params=wrapped(once, state.params), round=state.round + 1), NOTHING

    return of_clients(round)


TRANSFORMED = {
    "jit": lambda once, p: jax.jit(once)(p),
    "scan": lambda once, p: lax.scan(lambda c, _: (once(c), None), p, None, length=2)[0],
    "fori_loop": lambda once, p: lax.fori_loop(0, 2, lambda i, c: once(c), p),
    "while_loop": lambda once, p: lax.while_loop(lambda c: c["b"] < 9, once, p),
    "cond": lambda once, p: lax.cond(p["b"] > 0, once, lambda c: c, p),
    "map": lambda once, p: jax.tree.map(
        lambda x: x[0], lax.map(once, jax.tree.map(lambda x: x[None], p))
    ),
    "vmap": lambda once, p: jax.tree.map(
        lambda x: x[0], jax.vmap(once)(jax.tree.map(lambda x: x[None], p))
    ),
    "grad": lambda once, p: jax.grad(lambda q: flatten(once(q)).sum())(p),
    "linearize": lambda once, p: jax.linearize(once, p)[0],
    "checkpoint": lambda once, p: jax.checkpoint(once)(p),
    "eval_shape": lambda once, p: (jax.eval_shape(once, p), p)[1],
}


LOOPS = ("scan", "fori_loop", "while_loop", "map")


@tiers.every("name", list(TRANSFORMED), lambda name: name in LOOPS)
def test_a_call_that_could_be_repeated_is_refused_where_it_stands(name):
    said = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
    with refused(said):
        fp.certify(calling(TRANSFORMED[name]), PARAMS, FEDERATION, 1, 1e-3)


@tiers.every("name", ["scan", "jit", "cond"])
def test_so_is_one_where_nothing_is_compiled(name):
    said = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
    with jax.disable_jit(), refused(said):
        fp.certify(calling(TRANSFORMED[name]), PARAMS, FEDERATION, 1, 1e-3)


def stepping(wrapped):
    """A client that takes its private mean by `wrapped(one private mean, params)`."""
    return record_level(
        lambda key, shard, state: wrapped(lambda p: private_mean(shard, p), state.params)
    )


@tiers.every("name", list(TRANSFORMED), lambda name: name in LOOPS)
def test_a_private_mean_that_could_be_repeated_is_refused(name):
    with refused(r"round: shard\.private_mean is called in a loop"):
        fp.certify(stepping(TRANSFORMED[name]), PARAMS, FEDERATION, 1, 1e-3)


KEPT = []


def by_a_shard_that_was_kept(key, state, cohort):
    KEPT.clear()

    def keeps(key, shard):
        KEPT.append(shard)
        return private_mean(shard, state.params)

    def uses(key, shard):
        return private_mean(KEPT[0], state.params)

    for client in (keeps, uses):
        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
    return state._replace(params=total, round=state.round + 1), metrics


def by_a_cohort_that_was_kept(key, state, cohort):
    KEPT.append(cohort)
    client = lambda key, shard: update(state, key, shard)  # noqa: E731
    total, metrics, _ = KEPT[0].sum(client, key, mechanism=GAUSSIAN)
    return state._replace(params=total, round=state.round + 1), metrics


def by_a_client(key, state, cohort):
    def client(key, shard):
        own = lambda key, shard: update(state, key, shard)  # noqa: E731
        return cohort.sum(own, key, mechanism=GAUSSIAN).total

    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
    return state._replace(params=total, round=state.round + 1), metrics


def by_a_thread(key, state, cohort):
    client = lambda key, shard: update(state, key, shard)  # noqa: E731
    found = []

    def call():
        try:
            found.append(cohort.sum(client, key, mechanism=GAUSSIAN).total)
        except ValueError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if isinstance(found[0], ValueError):
        raise found[0]
    return state._replace(params=found[0], round=state.round + 1), NOTHING


def by_a_second_cohort(key, state, cohort):
    """Made of the parts of the first one, with a stream of the round's own key."""
    calls = cohort._calls
    other = Cohort(
        CohortCalls(calls.given._replace(hidden=key), calls.shape, calls.sampler, Answer(), Marks())
    )
    total, metrics, _ = other.sum(
        lambda key, shard: update(state, key, shard), key, mechanism=GAUSSIAN
    )
    return state._replace(params=total, round=state.round + 1), metrics


def by_a_shard_of_its_own(key, state, cohort):
    def client(key, shard):
        return private_mean(fp.Shard(shard.examples, shard.size), state.params)

    total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
    return state._replace(params=total, round=state.round + 1), metrics


def by_a_whole_copy(key, state, cohort):
    return copy.deepcopy(cohort), {}


def by_a_pickle(key, state, cohort):
    return pickle.loads(pickle.dumps(cohort._calls._stream)), {}


def test_a_copy_of_the_cohort_has_the_same_count():
    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        one = cohort.sum(client, key, mechanism=GAUSSIAN).total
        other = copy.copy(cohort).sum(client, key, mechanism=GAUSSIAN).total
        difference = (flatten(one) - flatten(other)) / 2
        return moved(state, difference)._replace(round=state.round + 1), NOTHING

    algorithm = of_clients(round, sampler=EVERYONE)
    assert len(fp.trace_round(algorithm, PARAMS, FEDERATION).stages[0].sums) == 2
    after, _ = one_round(algorithm)(jax.random.key(0), State(PARAMS, jnp.int32(0)), FEDERATION)
    assert np.abs(flatten(after.params) - flatten(PARAMS)).max() > 0.01


def later_round(key, state, cohort):
    """In which a schedule's noise would be gone."""
    cohort.round = jnp.int32(10**6)
    return fed_avg(fp.dynamic(GAUSSIAN, rounds=100, noise_decay=40.0)).round(key, state, cohort)


def other_size(key, state, cohort):
    def client(key, shard):
        shard.size = shard.size - 10**5
        return update(state, key, shard)

    weighting = fp.ByExamples(3.0)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, weighting=weighting)
    return state._replace(params=total, round=state.round + 1), metrics


def added_by_the_codec(key, state, cohort):
    """To a message that carries its noise already."""
    kept = []

    def client(key, shard):
        kept[:] = [shard.examples["y"].sum()]
        return kept[0]

    def code(key, message):
        return Coded(message + kept[0], {})

    codec = fp.types.Codec(code, fp.types.Wire, True)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, adder="own", codec=codec)
    return State(state.params, state.round + 1, total), metrics


def words_added_by_the_codec(key, state, cohort):
    kept = []

    def client(key, shard):
        kept[:] = [jax.random.key_data(shard._in_call.stream.own_noise_key)[0] * 1.0]
        return 0 * kept[0]

    codec = fp.types.Codec(lambda key, message: Coded(message + kept[0], {}), fp.types.Wire, True)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, adder="own", codec=codec)
    return State(state.params, state.round + 1, total), metrics


def words_of_the_stream(key, state, cohort):
    client = lambda key, shard: jax.random.key_data(shard._in_call.stream.own_noise_key) * 1.0  # noqa: E731
    total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
    return State(state.params, state.round + 1, total), metrics


def how_many_take_part(key, state, cohort):
    """Of clients who are protected by nothing but that nobody knows it."""
    ones = lambda key, shard: jnp.ones(1)  # noqa: E731
    total, metrics, _ = cohort.sum(ones, key, mechanism=fp.ALREADY_PRIVATE)
    return State(state.params, state.round + 1, total), metrics


@tiers.every("beside", [False, True])
def test_a_release_of_nothing_is_one(beside):
    """Of what a protocol shows to all while it runs."""

    def round(key, state, cohort):
        shown = lambda key, shard: shard.examples["y"]  # noqa: E731
        cohort.unprotected(shown, key, lambda key, messages: ((), messages), reason="a test")
        after = state._replace(round=state.round + 1)
        return fed_avg().round(key, state, cohort) if beside else (after, NOTHING)

    for view in fp.privacy.VIEWS:
        found = fp.certify(of_clients(round), PARAMS, FEDERATION, 1, 1e-3, view=view)
        assert found.epsilon == np.inf


def test_a_private_mean_inside_of_another_is_counted():
    def client(key, shard, state):
        def gradients(params, batch):
            shifted = jax.tree.map(jnp.add, params, private_mean(shard, params))
            return fp.per_example(squared)(shifted, batch)

        return private_mean(shard, state.params, gradients)

    (stage,) = fp.trace_round(record_level(client), PARAMS, FEDERATION).stages
    assert len(stage.means) == 2
    assert sorted(kind for kind, *_ in stage.of.calls) == ["Mean", "Mean", "Sum"]


FAULTS = {
    "a round that is set": (later_round, "has no setter"),
    "a size that is set": (other_size, "cannot assign to field"),
    "what a codec adds after the noise": (added_by_the_codec, "message .* depends on a client's"),
    "words of the stream": (words_of_the_stream, "message .* depends on the hidden random"),
    "words that a codec adds": (words_added_by_the_codec, "message .* on the hidden random"),
    "how many take part": (how_many_take_part, "depends on who takes part"),
    "a shard kept from another call": (by_a_shard_that_was_kept, "its client, is over"),
    "a client that calls the cohort": (by_a_client, "is called by a client"),
    "a thread": (by_a_thread, "is called in a loop"),
    "a second cohort": (by_a_second_cohort, "use the one that a round is given"),
    "a shard of one's own": (by_a_shard_of_its_own, "has no noise of its own"),
    "a whole copy": (by_a_whole_copy, "neither pickled nor copied whole"),
    "a pickle": (by_a_pickle, "neither pickled nor copied whole"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_other_ways_to_a_call_are_refused(name):
    round, said = FAULTS[name]
    unit = "record" if "shard" in name else "client"
    extra = {
        "how many take part": jnp.zeros(1),
        "what a codec adds after the noise": jnp.zeros(()),
        "words that a codec adds": jnp.zeros(()),
        "words of the stream": jnp.zeros(2),
    }
    algorithm = of_clients(round, extra.get(name, ()), unit=unit)
    with pytest.raises(Exception, match=said):
        fp.certify(algorithm, PARAMS, FEDERATION, 1, 1e-3)


def test_a_cohort_kept_between_rounds_is_refused():
    KEPT.clear()
    algorithm = of_clients(by_a_cohort_that_was_kept)
    fp.trace_round(algorithm, PARAMS, FEDERATION)
    with pytest.raises(Exception, match="over; use the cohort"):
        fp.trace_round(algorithm, PARAMS, FEDERATION)
