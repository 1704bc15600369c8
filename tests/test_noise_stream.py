"""The hidden stream: what comes from it has a key of its own, and no round can ask for one twice.

Each statistical test refuses a sound stream with probability 1e-6; seeds are fixed.
"""

import copy
import itertools
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_algorithm import ALGORITHMS, traced
from jax import lax
from jax.experimental import buffer_callback, io_callback
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    SIGMA,
    D,
    State,
    fed_avg,
    moved,
    of_clients,
    starting,
    update,
)
from planted_rounds import private_mean, record_level, sending
from scipy import stats
from small import FALSE_ALARM, assert_normal, refused, squared

import fedpriv as fp
from fedpriv.certification.information_flow import NONE, follow
from fedpriv.certification.marks import is_noisy
from fedpriv.certification.privacy_labels import Hidden, of
from fedpriv.compression.codecs import Coded
from fedpriv.core.random_streams import DROPOUT, NOISE, RECORDS
from fedpriv.core.trees import flatten
from fedpriv.rounds.client_shard import shard_of
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.noise_stream import (
    NoiseStream,
    participation_key,
    public_key,
    root_of,
    round_of,
    schedule_key,
)
from fedpriv.rounds.samplers import Opening

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)
NOTHING = {"uplink": fp.Wire(D)}


def two_sums(keys):
    """The model moves by half the difference of two noisy sums of the same messages, of `keys(key)`."""

    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        one, other = (cohort.sum(client, k, mechanism=GAUSSIAN).total for k in keys(key))
        difference = (flatten(one) - flatten(other)) / 2
        return moved(state, difference)._replace(round=state.round + 1), NOTHING

    return of_clients(round, sampler=EVERYONE)


REPEATED = {
    "fold_in(k, i - i % 2)": lambda k: [jax.random.fold_in(k, i - i % 2) for i in range(2)],
    "where(i >= 3, i - 3, i)": lambda k: [
        jax.random.fold_in(k, jnp.where(i >= 3, i - 3, i)) for i in (0, 3)
    ],
    "(0.5 * i).astype(int)": lambda k: [
        jax.random.fold_in(k, jnp.int32(0.5 * i)) for i in range(2)
    ],
    "split(k, K - 1)[i]": lambda k: [jax.random.split(k, 1)[i] for i in range(2)],
    "tiled keys": lambda k: list(jnp.tile(jax.random.split(k, 1), 2)),
    "the same key": lambda k: [k, k],
    "a constant": lambda k: [jax.random.key(0), jax.random.key(0)],
}


@pytest.mark.parametrize("name", REPEATED)
def test_sums_of_one_key_have_noise_of_their_own(name):
    algorithm = two_sums(REPEATED[name])
    assert np.isfinite(fp.certify(algorithm, PARAMS, FEDERATION, 1, 1e-3).epsilon)
    found = jax.jit(
        lambda root: fp.one_round(algorithm)(root, State(PARAMS, jnp.int32(0)), FEDERATION)
    )
    moves = [
        flatten(jax.tree.map(jnp.subtract, found(jax.random.key(i))[0].params, PARAMS))
        for i in range(40)
    ]
    assert_normal(np.array(moves), CLIP * SIGMA / np.sqrt(2))


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


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_call_that_could_be_repeated_is_refused_where_it_stands(name):
    said = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
    with refused(said):
        fp.certify(calling(TRANSFORMED[name]), PARAMS, FEDERATION, 1, 1e-3)


@pytest.mark.parametrize("name", ["jit", "scan", "cond"])
def test_so_is_one_where_nothing_is_compiled(name):
    said = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
    with jax.disable_jit(), refused(said):
        fp.certify(calling(TRANSFORMED[name]), PARAMS, FEDERATION, 1, 1e-3)


def stepping(wrapped):
    """A client that takes its private mean by `wrapped(one private mean, params)`."""
    return record_level(
        lambda key, shard, state: wrapped(lambda p: private_mean(shard, p), state.params)
    )


@pytest.mark.parametrize("name", TRANSFORMED)
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
    other = Cohort(
        cohort.round, cohort._federation, cohort._drawn, cohort._sampler, NoiseStream(key)
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
    return pickle.loads(pickle.dumps(cohort._stream)), {}


def test_a_copy_of_the_cohort_has_the_same_count():
    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        one = cohort.sum(client, key, mechanism=GAUSSIAN).total
        other = copy.copy(cohort).sum(client, key, mechanism=GAUSSIAN).total
        difference = (flatten(one) - flatten(other)) / 2
        return moved(state, difference)._replace(round=state.round + 1), NOTHING

    algorithm = of_clients(round, sampler=EVERYONE)
    assert len(fp.trace_round(algorithm, PARAMS, FEDERATION).stages[0].sums) == 2
    after, _ = fp.one_round(algorithm)(jax.random.key(0), State(PARAMS, jnp.int32(0)), FEDERATION)
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

    codec = fp.Codec(code, fp.Wire, True)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, local=True, codec=codec)
    return State(state.params, state.round + 1, total), metrics


def words_added_by_the_codec(key, state, cohort):
    kept = []

    def client(key, shard):
        kept[:] = [jax.random.key_data(shard._stream.own_noise_key)[0] * 1.0]
        return 0 * kept[0]

    codec = fp.Codec(lambda key, message: Coded(message + kept[0], {}), fp.Wire, True)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, local=True, codec=codec)
    return State(state.params, state.round + 1, total), metrics


def words_of_the_stream(key, state, cohort):
    client = lambda key, shard: jax.random.key_data(shard._stream.own_noise_key) * 1.0  # noqa: E731
    total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
    return State(state.params, state.round + 1, total), metrics


def how_many_take_part(key, state, cohort):
    """Of clients who are protected by nothing but that nobody knows it."""
    ones = lambda key, shard: jnp.ones(1)  # noqa: E731
    total, metrics, _ = cohort.sum(ones, key, mechanism=fp.ALREADY_PRIVATE)
    return State(state.params, state.round + 1, total), metrics


@pytest.mark.parametrize("beside", [False, True])
def test_a_release_of_nothing_is_one(beside):
    """Of what a protocol shows to all while it runs."""

    def round(key, state, cohort):
        shown = lambda key, shard: shard.examples["y"]  # noqa: E731
        cohort.unprotected(shown, key, lambda key, messages: ((), messages), reason="a test")
        after = state._replace(round=state.round + 1)
        return fed_avg().round(key, state, cohort) if beside else (after, NOTHING)

    for view in fp.VIEWS:
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
    ((*_, means),) = stage.calls
    assert [mean[0] for mean in means] == ["mean", "mean"]


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
    "a second cohort": (by_a_second_cohort, "has no attribute 'records'"),
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


def trained(algorithm, rounds=1):
    test = jax.tree.map(lambda leaf: leaf[:3], FEDERATION.examples)
    score = lambda params, example: {"loss": squared(params, example)}  # noqa: E731
    return fp.simulate(algorithm, PARAMS, FEDERATION, test, score=score, rounds=rounds)


SEEN = {"traces": 0}


def remembering(key, state, cohort):
    def client(key, shard, own):
        return fp.Sent(update(state, key, shard), own=own)

    own = jnp.zeros(CLIENTS)
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN, own=own)
    return moved(state, flatten(total))._replace(round=state.round + 1), metrics


def changing(other):
    """DP-FedAvg that becomes `other` from its third trace on."""

    def round(key, state, cohort):
        SEEN["traces"] += 1
        return (fed_avg() if SEEN["traces"] < 3 else other).round(key, state, cohort)

    return of_clients(round)


@pytest.mark.parametrize(
    "other",
    [
        fed_avg(fp.gaussian(CLIP, SIGMA / 100)),
        fed_avg(fp.unprotected()),
        fed_avg(GAUSSIAN._replace(perturb=lambda key, total: total)),
        fed_avg(fp.laplace(CLIP, SIGMA)),
        two_sums(lambda key: [key, key]),
        of_clients(lambda key, state, cohort: (state._replace(round=state.round + 1), NOTHING)),
        of_clients(remembering),
    ],
    ids=["quieter", "bare", "silent", "laplace", "twice", "never", "remembering"],
)
def test_calls_that_are_others_in_training_are_refused(other):
    SEEN["traces"] = 0
    with refused(r"round: in training it calls the cohort otherwise than when it was certified"):
        trained(changing(other))


def test_mechanisms_made_in_a_round_are_the_same():
    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=fp.gaussian(CLIP, SIGMA))
        return moved(state, flatten(total))._replace(round=state.round + 1), metrics

    trained(of_clients(round))


SWITCH = {"on": False}


def test_a_global_that_init_changes_is_noticed():
    def init(params, federation):
        SWITCH["on"] = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(params)) and (
            SWITCH.setdefault("traces", 0) > 0
        )
        SWITCH["traces"] = SWITCH.get("traces", 0) + 1
        return State(params, jnp.int32(0))

    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        scale = 2.0 if SWITCH["on"] else 1.0
        return moved(state, scale * flatten(total))._replace(round=state.round + 1), metrics

    with refused("traced again it is another program"):
        trained(fp.Algorithm(init, round, EVERYONE))


def in_init():
    def init(params, federation):
        io_callback(lambda: None, None)
        return State(params, jnp.int32(0))

    return fed_avg()._replace(init=init)


def buffered(key, shard, state):
    call = buffer_callback.buffer_callback(
        lambda ctx, out, x: None, jax.ShapeDtypeStruct((), jnp.float32)
    )
    return call(shard.examples["y"].sum())


EXPORTED = jax.export.export(jax.jit(lambda x: x + FEDERATION.examples["y"].sum()))(jnp.float32(0))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sending(buffered), r"round: buffer_callback \(\w+\.py:\d+\) is not among"),
        (in_init, r"init: io_callback \(\w+\.py:\d+\) calls the host"),
        (
            lambda: sending(lambda k, shard, s: EXPORTED.call(jnp.float32(0)) + shard.size),
            r"round: call_exported \(\w+\.py:\d+\) is not among",
        ),
    ],
    ids=["buffer_callback", "io_callback in init", "an exported function"],
)
def test_operations_that_are_not_known_are_refused(make, said):
    with refused(said):
        fp.certify(make(), PARAMS, FEDERATION, 1, 1e-3)


def test_a_clip_norm_computed_in_a_round_bounds_what_float32_sees():
    def message(key, shard, state):
        return jnp.full(1000, 5e-20)

    tiny = GAUSSIAN.at(jnp.float32(1e-25), SIGMA)
    bounded, _ = jax.jit(lambda u: GAUSSIAN.at(jnp.float32(1e-25), SIGMA).clip(u))(
        message(None, None, None)
    )
    assert float(tiny.clip_norm) >= 1e-12 * (1 - 1e-6)
    assert np.linalg.norm(np.asarray(bounded, np.float64)) <= float(tiny.clip_norm) * (1 + 1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_depends_on_the_stream_but_through_a_mark(name):
    """And the marks are what keeps it so: without them the noise is in the model."""
    program = traced(name).stages[0].program.jaxpr
    stream = frozenset({Hidden()})
    inputs = [stream, *[NONE] * (len(program.invars) - 1)]
    found = follow(program, inputs, _Joined())
    stage = traced(name).stages[0]
    uses = any(map(is_noisy, stage.releases)) or bool(stage.means)  # noise, or records drawn
    assert any(of(Hidden, x) for x in found) == uses
    # `trace_round` has followed it through the marks, and raised nothing.


class _Joined:
    """Rules without marks."""

    def through(self, eqn, labels):
        return [NONE.union(*labels)] * len(eqn.outvars)


def branches():
    """All keys of some rounds, those that are drawn from and those that they descend from."""
    fold, keys = jax.random.fold_in, []
    for seed in (0, 1):
        root = root_of(jax.random.key(seed))
        keys += [root, *(schedule_key(root, part) for part in (0, 1))]
        for t in (0, 1, 2):
            calls = NoiseStream(round_of(root, t))
            keys += [round_of(root, t), public_key(root, t), participation_key(root, t)]
            for _ in range(3):
                call = calls.begin("")
                calls.tell(())
                keys += [call, fold(call, NOISE)]
                for i in range(3):
                    shard = shard_of(fold(call, i), jnp.ones(1), jnp.int32(1), 0, jnp.int32(i))
                    own = shard._stream.own_noise_key
                    keys += [fold(call, i), own, *of_steps(shard._stream)]
    return keys


def of_steps(stream):
    """A private mean, a loop of two steps of two private means each, and another mean."""

    def mean():
        key = stream.begin("")
        stream.tell(())
        return [key, *(jax.random.fold_in(key, number) for number in (RECORDS, NOISE, DROPOUT))]

    keys, loop = mean(), stream.begin("")
    for k in range(2):
        with stream.turns(jax.random.fold_in(loop, k), 2):
            keys += [jax.random.fold_in(loop, k), *mean(), *mean()]
    stream.tell(())
    return [*keys, loop, *mean()]


def test_no_two_branches_share_a_key():
    words = np.stack([np.asarray(jax.random.key_data(key)) for key in branches()])
    assert len(np.unique(words, axis=0)) == len(words)


def noises(seeds, rounds):
    """f32[seeds, rounds, calls, clients, steps, d] of private means, and f32[seeds, rounds, calls, d] of sums."""
    step_noise = fp.gaussian(1.0, 1.0)
    nothing = fp.per_example(lambda params, example: 0.0 * params["w"].sum())
    d, steps = 3, 2

    def round(key, state, cohort):
        def client(key, shard):
            def step(k, carry):
                mean = shard.private_mean(
                    nothing, {"w": jnp.zeros(d)}, records=fp.everyone(3), mechanism=step_noise
                )
                return carry.at[k].set(mean["w"])

            found = shard.private_steps(step, jnp.zeros((steps, d)), steps=steps)
            return jnp.zeros((CLIENTS, steps, d)).at[shard.client_id].set(found)

        of_clients_, of_sums = [], []
        for _ in range(2):
            total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
            of_clients_.append(total)
            zeros = lambda key, shard: {"a": jnp.zeros(d), "b": jnp.zeros(d)}  # noqa: E731
            of_sums.append(cohort.sum(zeros, key, mechanism=step_noise).total)
        both = jnp.stack(of_clients_), jax.tree.map(lambda *x: jnp.stack(x), *of_sums)
        return State(state.params, state.round + 1, both), metrics

    like = (
        jnp.zeros((2, CLIENTS, steps, d)),
        {"a": jnp.zeros((2, d)), "b": jnp.zeros((2, d))},
    )
    sampler = Opening(EVERYONE, 1, EVERYONE)
    algorithm = fp.Algorithm(starting(like), round, sampler, unit="record")
    once = jax.jit(fp.one_round(algorithm))
    means, sums = [], []
    for seed, t in itertools.product(range(seeds), range(rounds)):
        state = State(PARAMS, jnp.int32(t), like)
        (_, _, (mean, total)), _ = once(jax.random.key(seed), state, FEDERATION)
        means.append(3 * mean)  # of the sum of three records
        sums.append(jnp.concatenate([total["a"], total["b"]], 1))
    return np.array(means), np.array(sums)


def test_noises_are_independent_and_as_loud_as_declared():
    """Of seeds, rounds, both parts of an `Opening`, calls, clients, steps and leaves: by their correlations."""
    means, sums = noises(seeds=100, rounds=3)
    assert_normal(means, 1.0)
    assert_normal(sums, 1.0)
    count = len(means)
    rows = np.concatenate([means.reshape(count, -1), sums.reshape(count, -1)], 1)
    # Every two of them, over seeds and rounds; then of one round and the next, and of one seed and the next.
    for later in (0, 1, 3):
        one, other = rows[: count - later], rows[later:]
        n, z = count - later, lambda x: (x - x.mean(0)) / x.std(0)
        r = z(one).T @ z(other) / n
        r = r[np.triu_indices(len(r), 1)] if later == 0 else r.ravel()
        t = stats.t.isf(FALSE_ALARM / 2 / r.size, n - 2)  # exact for normals
        assert np.abs(r).max() < t / np.sqrt(n - 2 + t**2) < 0.5


def test_a_round_is_replayed_with_the_same_noise():
    algorithm, root = fed_avg(), jax.random.key(5)
    state = State(PARAMS, jnp.int32(3))
    one, other, later = (
        fp.one_round(algorithm)(root, s, FEDERATION)[0].params["w"]
        for s in (state, state, state._replace(round=jnp.int32(4)))
    )
    np.testing.assert_array_equal(one, other)
    assert np.abs(np.asarray(one) - np.asarray(later)).max() > 1e-3


def test_the_public_keys_of_a_run_are_of_the_default_generator():
    root = root_of(jax.random.key(0))
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        with jax.default_prng_impl(name):
            key = public_key(root, 1)
            assert str(jax.random.key_impl(key)) == name
            assert str(jax.random.key_impl(root_of(jax.random.key(0)))) == "threefry2x32"
