"""Rounds of a user's own that look like faulty ones and are sound pass, and what their certificates say.

Of the statistical tests that they pass each refuses a sound algorithm with probability 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from jax import lax
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    RECORDS,
    SIGMA,
    D,
    State,
    after_sum,
    at_random,
    error_feedback,
    fed_avg,
    fed_smp,
    measured,
    moved,
    of_clients,
    scaffold,
    stepped,
    twice,
    update,
)
from planted_rounds import (
    Sound,
    carried,
    in_init,
    of_records,
    sending,
    split_first,
    wrapped,
)
from small import squared

import fedpriv as fp
from fedpriv.certification.checks import check_launch
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.samplers import Opening

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def from_a_chain():
    """Random masks from a scan over a chain of keys, of another part of the round's key."""
    return split_first(lambda key, state: jnp.full(4, carried(key)))


def dropout(key, state):
    return state.extra * jax.random.bernoulli(key, 0.8, (4,))


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


def all_that_is_allowed(key, state, cohort, summed, metrics):
    """Of the cohort's size, public data, what was released, and randomness of the server's own."""
    _ = summed.total["b"] / cohort.size
    metrics["diagnostics"]["size"] = cohort.size.astype(jnp.float32)
    momentum = jax.tree.map(lambda m, s: 0.9 * m + s, state.extra, summed.total)
    state = moved(state._replace(extra=momentum), -0.1 * flatten(update(state, key, cohort.public)))

    count = lambda key, shard: jnp.where(shard.size > 2, 0.5, -0.5)  # noqa: E731
    second, _, _ = cohort.sum(count, jax.random.fold_in(key, 1), mechanism=fp.gaussian(0.5, 2.0))
    rows = second * flatten(summed.total)[None]
    decayed, _ = lax.scan(lambda c, x: (c + 0.1 * x, None), jnp.zeros(D), rows)
    warm = lax.cond(state.round > 3, lambda: jnp.ones(D), lambda: jnp.zeros(D))
    own = 0.1 * jax.random.normal(jax.random.fold_in(key, 7), (D,))
    return moved(state, decayed + warm + own), metrics


def clip_from_releases():
    """The clip norm follows what was released."""

    def round(key, state, cohort):
        used = GAUSSIAN.at(state.extra, SIGMA)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=used)
        after = stepped(state, total, cohort.expected_size)
        bound = jnp.clip(jnp.linalg.norm(flatten(total)), 0.1, 1.0)
        return State(after, state.round + 1, bound), metrics

    return of_clients(round, jnp.float32(0.5))


def public_and_released(key, state, cohort):
    """The mask of top_k."""
    return top_k(jnp.abs(flatten(state.params) + flatten(update(state, key, cohort.public))), 6)


def several_sums():
    """All of one key, which tells nothing of their noise."""

    def loop(once, key, params):
        for _ in range(3):
            params = once(key, params)
        return params

    return twice(loop)


CLASSES = np.array([3, 1, 2])
MASK = np.arange(D) % 2 == 0

HARMLESS = {
    "all that is allowed": Sound(
        after_sum(all_that_is_allowed, jax.tree.map(jnp.zeros_like, PARAMS)), "sums"
    ),
    "several releases in a Python loop": Sound(several_sums(), "sums"),
    "a schedule of noise": Sound(
        fed_avg(fp.dynamic(GAUSSIAN, rounds=4, noise_decay=2.0, parts=2)), "sums"
    ),
    "a clip norm from releases": Sound(clip_from_releases(), "sums"),
    "Fed-SMP, rand_k": Sound(fed_smp(at_random), "sums"),
    "Fed-SMP, top_k of the last sum and of public data": Sound(
        fed_smp(public_and_released), "sums"
    ),
    "error feedback in clients' own state": Sound(error_feedback(), "sums"),
    "DP-SCAFFOLD of everyone with a local decay": Sound(
        scaffold(
            sampler=fp.everyone(CLIENTS),
            direction=lambda h, y, shard: jax.tree.map(lambda h, y: h + 0.01 * y, h, y),
        ),
        "sums",
    ),
    "a mechanism by hand that is sound": Sound(
        fed_avg(GAUSSIAN._replace(seal=())), "mechanism by hand"
    ),
    "a mask of the key": Sound(
        split_first(lambda key, state: jax.random.bernoulli(key, 0.5, (4,)) * 1.0),
        "drawing and counting",
    ),
    "server-side dropout": Sound(split_first(dropout), "drawing and counting"),
    "noise of the round's own": Sound(
        after_sum(
            lambda key, s, c, summed, m: (
                moved(s, jax.random.normal(jax.random.fold_in(key, s.round), (D,))),
                m,
            )
        ),
        "drawing and counting",
    ),
    "masks from a chain of keys": Sound(from_a_chain(), "drawing and counting"),
    "a client that draws from its key, with noise of its own": Sound(
        sending(drawing, adder="own"), "drawing and counting"
    ),
    "a client that prints": Sound(printing(printed), "host"),
    "a client that calls back": Sound(printing(called_back), "host"),
    "a client that checks": Sound(printing(checked), "host"),
    "a client that prints, and little else": Sound(printing_alone(), "host"),
    "counts": Sound(summed(COUNTS), "drawing and counting"),
    "counts with noise of clients' own": Sound(
        sending(lambda k, shard, s: jnp.sum(shard.examples["y"] > 0), adder="own"),
        "drawing and counting",
    ),
    "public arrays of NumPy": Sound(
        after_sum(lambda k, s, c, summed, m: (moved(s, CLASSES.sum() * MASK * jnp.ones(D)), m)),
        "drawing and counting",
    ),
    "a diagnostic that is random": Sound(
        after_sum(
            lambda k, s, c, summed, m: (
                s,
                m | {"diagnostics": {"u": jax.random.uniform(k)}},
            )
        ),
        "drawing and counting",
    ),
    "a wrapper of gradients": Sound(of_records(wrapped(lambda found: found)), "gradients by hand"),
    "a schedule by hand": Sound(fed_avg(Dynamic(GAUSSIAN, 9, 1.0, 2.0, 3)), "mechanism by hand"),
    "an opening": Sound(
        fed_avg(sampler=Opening(fp.everyone(CLIENTS), 1, fp.everyone(CLIENTS))),
        "drawing and counting",
    ),
    "a state of zeros for each client": Sound(
        in_init(lambda f: jnp.zeros((f.num_clients, f.capacity))), "drawing and counting"
    ),
}
DECLARED = {
    "a wrapper of gradients",
    "a schedule by hand",
    "a mechanism by hand that is sound",
}


@tiers.every("name", HARMLESS)
def test_a_round_that_looks_like_it_is_certified(name):
    traced = check_launch(HARMLESS[name].algorithm, PARAMS, FEDERATION)
    said = assert_certified(traced, "declared" if name in DECLARED else "constructed")
    assert ("prints" in said) == ("prints" in name or "calls back" in name)


RUN = ["a client that prints", "a client that checks", "a wrapper of gradients"]
RUN += ["a schedule by hand", "all that is allowed"]
"""Of each kind that is not told by its trace alone, and one more."""


@tiers.every("name", RUN)
def test_it_passes_all_checks_as_it_runs(name):
    fp.check_algorithm(HARMLESS[name].algorithm, PARAMS, FEDERATION)


def test_gradients_by_hand_are_measured_as_sound():
    measured(HARMLESS["a wrapper of gradients"].algorithm)


def test_what_hides_nothing_is_certified_as_that():
    algorithm = fed_avg(fp.unprotected("a baseline"))
    certificate = fp.certify(algorithm, PARAMS, FEDERATION, 3, 1e-3)
    assert (certificate.basis, certificate.epsilon) == ("constructed", np.inf)


def assert_certified(traced, basis):
    """And gives back what is assumed."""
    certificate = traced.certify(3, 1e-3)
    assert np.isfinite(certificate.epsilon)
    assert certificate.basis == basis
    said = "; ".join(certificate.assumptions)
    assert "threefry2x32" in said
    return said


@pytest.mark.slow
def test_a_client_that_prints_trains(capfd):
    run(HARMLESS["a client that prints, and little else"].algorithm)
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


@pytest.mark.slow
def test_tables_of_the_librarys_own_are_not_listed():
    """Those of a Poisson sampler of records, and where a schedule's pieces begin."""
    falling = fp.dynamic(GAUSSIAN, rounds=9, noise_decay=2.0, parts=4)
    records = fp.poisson(RECORDS, 0.5, 3)
    steps = fp.LocalSteps(fp.per_example(squared), records, 2, lambda t: optax.sgd(0.1), falling)
    algorithm = fp.dp_sgd(steps, sampler=fp.everyone(CLIENTS))
    found = fp.certify(algorithm, PARAMS, FEDERATION, 3, 1e-3)
    assert found.basis == "constructed"
    assert not [text for text in found.assumptions if "closes over" in text]


GENERATORS = ["unsafe_rbg", "rbg"]


@pytest.mark.parametrize("generator", GENERATORS)
def test_noise_is_threefrys_whatever_the_generator(generator):
    with jax.default_prng_impl(generator):
        assert_certified(check_launch(fed_avg(), PARAMS, FEDERATION), "constructed")


@pytest.mark.slow
def test_it_trains_whatever_the_generator():
    with jax.default_prng_impl("rbg"):
        run(fed_avg())


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
        (holding, r"closes over federation\['client_rows'\]\.size"),
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
