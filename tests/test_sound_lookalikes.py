"""Rounds of a user's own that look like those with holes and are sound pass, and what their certificates say.

Of the statistical tests that they pass each refuses a sound algorithm with probability 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    RECORDS,
    D,
    State,
    after_sum,
    fed_avg,
    moved,
    of_clients,
    scaffold,
    stepped,
    update,
)
from planted_rounds import (
    carried,
    in_init,
    key_words,
    noise_in_a_chain,
    noise_key,
    of_records,
    sending,
    split_first,
    wrapped,
)
from small import squared

import fedpriv as fp
from fedpriv.certification.checks import check_keys, check_launch
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.samplers import Opening

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def from_a_chain():
    """Random masks from a scan over a chain of keys, of another part of the round's key."""
    return split_first(lambda key, state: jnp.full(4, carried(key)))


def dropout(key, state):
    return state.extra * jax.random.bernoulli(key, 0.8, (4,))


def by_hand_words(key):
    return jax.random.wrap_key_data(jax.random.key_data(jax.random.split(key)[1]))


def parts(take):
    """A mask and the sum's noise from two keys, `take(key)`, of the round's."""

    def round(key, state, cohort):
        mask_key, sum_key = take(key)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, sum_key, mechanism=GAUSSIAN)
        mask = jax.random.bernoulli(mask_key, 0.5, (4,)) * 1.0
        params = stepped(state, total, cohort.expected_size)
        return State(params, state.round + 1, mask), metrics

    return of_clients(round, jnp.zeros(4))


def drawing(key, shard, state):
    """A client that draws from its own key, as local training does, beside noise of its own."""
    mask = jax.random.bernoulli(key, 0.5, (3,))
    return mask * shard.examples["x"][0, :3] + jax.random.uniform(jax.random.fold_in(key, 2))


def printing(message):
    def client(key, shard, state):
        return message(shard, update(state, key, shard))

    return sending(client)


def printed(shard, sent):
    jax.debug.print("b: {}, of {}", sent["b"], shard.size)
    return sent


def called_back(shard, sent):
    jax.debug.callback(lambda b: None, sent["b"])
    return sent


def checked(shard, sent):
    from jax.experimental import checkify

    def positive(sent):
        checkify.check(jnp.isfinite(sent["b"]), "not finite")
        return sent

    _, sent = checkify.checkify(positive)(sent)
    checkify.debug_check(jnp.isfinite(sent["b"]), "not finite")
    return sent


def printing_alone():
    """Few equations beside the print, so that the round's counter is computed with it."""

    def round(key, state, cohort):
        def client(key, shard):
            jax.debug.print("{}", shard.size)
            return jnp.float32(1)

        _, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        return state._replace(round=state.round + 1), metrics

    return of_clients(round)


def summed(values):
    """A sum of what clients send, in the types that they compute it in."""
    return sending(lambda k, shard, s: jax.tree.map(lambda v: v(shard), values))


COUNTS = {
    "few": lambda shard: jnp.sum(shard.examples["y"] > 0),
    "some": lambda shard: shard.examples["y"][:2] > 0,
    "half": lambda shard: shard.examples["y"][:2].astype(jnp.bfloat16),
    "byte": lambda shard: shard.examples["y"][:2].astype(jnp.int8),
}
CLASSES = np.array([3, 1, 2])
MASK = np.arange(D) % 2 == 0

KEYS = {
    "a mask of another part of the key": split_first(
        lambda key, state: jax.random.bernoulli(key, 0.5, (4,)) * 1.0
    ),
    "server-side dropout": split_first(dropout),
    "a mask by the round's number": after_sum(
        lambda key, s, c, summed, m: (
            moved(s, jax.random.normal(jax.random.fold_in(key, s.round), (D,))),
            m,
        )
    ),
    "masks from a chain of keys": from_a_chain(),
    "noise and masks from two parts of a chain": noise_in_a_chain(2),
    "two keys of a table": parts(
        lambda key: (lambda ks: (ks[0, 0], ks[1, 1]))(jax.random.split(key, (2, 2)))
    ),
    "two of a strided part": parts(
        lambda key: (lambda ks: (ks[::2][0], ks[1::2][0]))(jax.random.split(key, 4))
    ),
    "two keys of keys": parts(
        lambda key: (lambda ks: (ks[0, 1], ks[0, 0]))(
            jax.vmap(jax.random.split)(jax.random.split(key, 3))
        )
    ),
    "two keys of words": parts(lambda key: tuple(jax.random.split(key_words(key)))),
    "two keys of words, one by one": parts(
        lambda key: (lambda ks: (ks[0], ks[1]))(jax.random.split(key_words(key), 2))
    ),
    "a key that was taken apart and put together": noise_key(by_hand_words),
    "a key picked among keys": noise_key(
        lambda key: jnp.where(
            jax.random.bits(jax.random.fold_in(key, 3)) > 9, *jax.random.split(key)
        )
    ),
    "a key in a branch": noise_key(
        lambda key: lax.cond(True, lambda k: jax.random.split(k)[0], lambda k: k, key)
    ),
    "a key of a list": noise_key(lambda key: jax.random.split(key, 5)[1:][2]),
    "a key for each round": fed_avg(
        sum_key=lambda key, state: jax.random.fold_in(key, state.round)
    ),
}
HARMLESS = {
    "a client that draws from its key, with noise of its own": sending(drawing, local=True),
    "a client that prints": printing(printed),
    "a client that calls back": printing(called_back),
    "a client that checks": printing(checked),
    "a client that prints, and little else": printing_alone(),
    "counts": summed(COUNTS),
    "counts with noise of clients' own": sending(
        lambda k, shard, s: jnp.sum(shard.examples["y"] > 0), local=True
    ),
    "public arrays of NumPy": after_sum(
        lambda k, s, c, summed, m: (moved(s, CLASSES.sum() * MASK * jnp.ones(D)), m)
    ),
    "a diagnostic that is random": after_sum(
        lambda k, s, c, summed, m: (
            s,
            m | {"diagnostics": {"u": jax.random.uniform(k)}},
        )
    ),
    "a wrapper of gradients": of_records(wrapped(lambda found: found)),
    "a schedule by hand": fed_avg(Dynamic(GAUSSIAN, 9, 1.0, 2.0, 3)),
    "an opening": fed_avg(sampler=Opening(fp.everyone(CLIENTS), 1, fp.everyone(CLIENTS))),
    "a state of zeros for each client": in_init(lambda f: jnp.zeros((f.num_clients, f.capacity))),
}
DECLARED = {"a wrapper of gradients", "a schedule by hand"}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_look_alike_are_others(name):
    traced = check_launch(KEYS[name], PARAMS, FEDERATION)
    check_keys(traced, KEYS[name].init(PARAMS, FEDERATION))
    assert_certified(traced, "constructed")


@pytest.mark.parametrize("name", HARMLESS)
def test_a_round_that_looks_like_it_passes(name):
    algorithm = HARMLESS[name]
    fp.check_algorithm(algorithm, PARAMS, FEDERATION)
    traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
    said = assert_certified(traced, "declared" if name in DECLARED else "constructed")
    assert ("prints" in said) == ("prints" in name or "calls back" in name)


def assert_certified(traced, basis):
    """And gives back what is assumed."""
    certificate = traced.certify(3, 1e-3)
    assert np.isfinite(certificate.epsilon)
    assert certificate.basis == basis
    said = "; ".join(certificate.assumptions)
    assert "threefry2x32" in said
    return said


def test_a_client_that_prints_trains(capfd):
    run(HARMLESS["a client that prints, and little else"])
    jax.effects_barrier()
    assert str(RECORDS) in capfd.readouterr().out


def run(algorithm, federation=FEDERATION, **options):
    test = jax.tree.map(lambda leaf: leaf[:3], FEDERATION.examples)
    score = fp.models.Score(lambda params, example: {"loss": squared(params, example)})
    return fp.simulate(algorithm, PARAMS, federation, test, score=score, rounds=1, **options)


@pytest.mark.parametrize("listed", [CLASSES, MASK, np.arange(3, dtype=np.uint8), jnp.arange(4)])
def test_arrays_of_every_type_are_listed_with_the_users_line(listed):
    algorithm = after_sum(
        lambda k, s, c, summed, m: (moved(s, jnp.sum(jnp.asarray(listed)) * jnp.ones(D)), m)
    )
    texts = fp.certify(algorithm, PARAMS, FEDERATION, 1, 1e-3).assumptions
    (said,) = [text for text in texts if "closes over" in text]
    assert f"{jnp.asarray(listed).dtype} {listed.shape} in test_sound_lookalikes.py:" in said


def test_tables_of_the_librarys_own_are_not_listed():
    """Those of a Poisson sampler of records, and where a schedule's pieces begin."""
    falling = fp.dynamic(GAUSSIAN, rounds=9, noise_decay=2.0, parts=4)
    records = fp.poisson(RECORDS, 0.5, 3)
    steps = fp.LocalSteps(fp.per_example(squared), records, 2, lambda t: optax.sgd(0.1), falling)
    algorithm = fp.dp_sgd(steps, sampler=fp.everyone(CLIENTS))
    found = fp.certify(algorithm, PARAMS, FEDERATION, 3, 1e-3)
    assert found.basis == "constructed"
    assert not [text for text in found.assumptions if "closes over" in text]


@pytest.mark.parametrize("generator", ["unsafe_rbg", "rbg"])
def test_noise_of_other_generators(generator):
    """One noise for the sum may be drawn by rbg, of which a batch of keys would draw by its first."""
    per_client = scaffold(), sending(drawing, local=True)
    with jax.default_prng_impl(generator):
        if generator == "rbg":
            made = fp.certify(fed_avg(), PARAMS, FEDERATION, 1, 1e-3)
            assert any("by JAX's rbg" in text for text in made.assumptions)
            run(fed_avg())
        else:
            per_client = (
                fed_avg(),
                fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1),
            )
        for algorithm in per_client:
            for of in (lambda a: fp.certify(a, PARAMS, FEDERATION, 1, 1e-3), run):
                with pytest.raises(ValueError, match=f"'{generator}'.* can give different clients"):
                    of(algorithm)


def test_a_key_of_another_generator_in_a_round():
    derive = lambda key: jax.random.wrap_key_data(  # noqa: E731
        jnp.tile(jax.random.key_data(key), 2), impl="unsafe_rbg"
    )
    with pytest.raises(ValueError, match=r"the noise in .* is drawn by 'unsafe_rbg', which"):
        fp.certify(noise_key(derive), PARAMS, FEDERATION, 1, 1e-3)


def test_every_seeds_federation_is_checked():
    """Records that are drawn among, and what a round closes over."""
    rows = np.arange(CLIENTS * RECORDS)
    equal = FEDERATION.repartition(np.split(rows, CLIENTS))
    unequal = FEDERATION.repartition(np.split(rows, [2, 6, 9, 12, 15]))
    holding = after_sum(
        lambda k, s, c, summed, m: (moved(s, jnp.sum(unequal.size) * jnp.ones(D)), m)
    )
    for algorithm, said in (
        (scaffold(), "records: drawn among 3, but client 0 holds 2"),
        (holding, r"closes over federation\['size'\]"),
    ):
        check_launch(algorithm, PARAMS, equal)
        with pytest.raises(ValueError, match=said):
            run(algorithm, [equal, unequal], seeds=(0, 1))


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("examples", lambda f: f.examples["y"]),
        ("size", lambda f: f.size),
        ("order", lambda f: f.order),
        ("offsets", lambda f: f.offsets),
    ],
)
def test_arrays_of_a_streamed_federation_are_known(name, taken):
    """Its own, on the host, though a round sees none of them."""
    count = CLIENTS * RECORDS
    examples = {name: np.asarray(leaf)[:count] for name, leaf in FEDERATION.examples.items()}
    rows = np.split(np.random.default_rng(0).permutation(count), [2, 6, 9, 12, 15])
    streamed = fp.StreamedFederation.from_arrays(examples, rows)
    array = taken(streamed)
    holding = after_sum(lambda k, s, c, summed, m: (moved(s, jnp.sum(array) * jnp.ones(D)), m))
    for of in (lambda a: fp.certify(a, PARAMS, streamed, 1, 1e-3), lambda a: run(a, streamed)):
        with pytest.raises(fp.LeakError, match=rf"closes over federation\['{name}'\]"):
            of(holding)
