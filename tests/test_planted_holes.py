"""Holes that were once found from outside, planted in a user's own rounds, are refused by name.

Of the statistical tests behind them each refuses a sound algorithm with probability 1e-6.
"""

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
    POISSON,
    D,
    after_sum,
    fed_avg,
    measured,
    moved,
    twice,
)
from planted_rounds import (
    Fading,
    Favouring,
    Peeking,
    Planted,
    Scale,
    Sound,
    Warm,
    a_callback,
    blind,
    changed_before,
    complex_update,
    counted_on_the_host,
    enlarging,
    in_init,
    in_metrics,
    in_shard_map,
    keeping,
    keeping_noise,
    key_in_state,
    key_words,
    less_the_last,
    looking_at_the_cohort,
    misnamed,
    mixed,
    noise_by_data,
    noise_key,
    numbered,
    of_records,
    randomly_placed,
    record_level,
    sending,
    sending_the_rounds_numbers,
    to_a_point,
    wrapped,
)
from small import keys_of, refused, squared

import fedpriv as fp
from fedpriv.certification.checks import check_launch
from fedpriv.core.provenance import sealed
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.described import Scaling, described
from fedpriv.privacy import Poisson
from fedpriv.rounds.samplers import Opening

ZEROS = jax.tree.map(jnp.zeros_like, PARAMS)
pytestmark = pytest.mark.usefixtures("quick_to_compile")

LOOP = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
INIT = r"init: it reads the federation on the host \(\w+\.py:\d+"
MECHANISM = r"mechanism \(\w+\.py:\d+\), round \d+: "

KEPT = {
    "the round's key in the state": keeping(lambda key: key, jax.random.key(0)),
    "its words": keeping(key_words),
    "half of its words": keeping(lambda key: key_words(key)[0]),
    "its words as numbers": keeping(lambda key: key_words(key).astype(jnp.float32) / 2.0**32),
    "its words, mixed": keeping(lambda key: key_words(key)[0] ^ jnp.uint32(12345)),
    "a sibling of the sum's key": key_in_state(),
    "a child's words": keeping(lambda key: key_words(jax.random.fold_in(key, 3))),
    "all keys of a split": keeping(lambda key: key_words(jax.random.split(key, 4))),
    "the words of one in a branch": keeping(
        lambda key: lax.cond(True, key_words, lambda k: jnp.zeros(2, jnp.uint32), key)
    ),
    "a key's words in a diagnostic": in_metrics(
        lambda key: {"seed": key_words(key)[0].astype(jnp.float32)}
    ),
    "a key's words in the uplink": sending(
        lambda k, shard, s: key_words(k).astype(jnp.float32) * shard.size
    ),
}
DRAWN = {
    "normal numbers": keeping(lambda key: jax.random.normal(key, (8,))),
    "bits": keeping(lambda key: jax.random.bits(key, (4,))),
    "a mask": keeping(lambda key: jax.random.bernoulli(key, 0.5, (4,))),
    "the round's own numbers in what clients send": sending_the_rounds_numbers(),
    "numbers of a key that a word was folded into": keeping(
        lambda key: jax.random.normal(jax.random.fold_in(jax.random.key(3), key_words(key)[0]))
    ),
    "random numbers that clients keep": keeping_noise(),
    "a point by the client's key": record_level(randomly_placed),
}
FEW = {
    "a constant key": noise_key(lambda key: jax.random.key(0)),
    "a key of a small number": noise_key(
        lambda key: jax.random.key(jax.random.randint(key, (), 0, 1000))
    ),
    "a key of 32 bits": noise_key(lambda key: jax.random.key(jax.random.bits(key))),
    "a key of one word twice": noise_key(
        lambda key: jax.random.wrap_key_data(jnp.repeat(key_words(key)[:1], 2))
    ),
    "a key of masked words": noise_key(
        lambda key: jax.random.wrap_key_data(key_words(key) & jnp.uint32(255))
    ),
    "a folded constant": noise_key(
        lambda key: jax.random.fold_in(jax.random.key(0), jax.random.bits(key))
    ),
    "a constant key in one branch": noise_key(
        lambda key: lax.cond(jax.random.bits(key) > 9, lambda: key, lambda: jax.random.key(3))
    ),
    "a key that is picked by the data, and not used": after_sum(noise_by_data),
    "a key of another generator": noise_key(
        lambda key: jax.random.wrap_key_data(
            jnp.tile(jax.random.key_data(key), 2), impl="unsafe_rbg"
        )
    ),
}
KEYS = {
    name: Sound(algorithm, like)
    for like, group in (("kept", KEPT), ("drawn from", DRAWN), ("of few values", FEW))
    for name, algorithm in group.items()
}
"""No noise is drawn from a key that a round holds, so that none of these tells of any; each was once a hole."""

FAULTS = {
    "a sum on each device": Planted(in_shard_map(), LOOP),
    "a loop whose length is counted on the host": Planted(
        twice(counted_on_the_host),
        r"traced again it is another program \(\w+\.py:\d+\)",
    ),
    # records
    "records standardised by each other": Planted(
        changed_before(lambda e: e | {"x": (e["x"] - e["x"].mean(0)) / (1 + e["x"].std(0))}),
        "round: records were changed before private_mean",
    ),
    "one record several times": Planted(
        changed_before(lambda e: jax.tree.map(lambda leaf: leaf[jnp.array([0, 0, 0])], e)),
        "round: records were changed before private_mean",
    ),
    # what a round or `init` knows without asking
    "sizes, read on the host": Planted(
        in_init(lambda f: jnp.asarray(np.asarray(f.size) / 3.0)), INIT
    ),
    "the largest client, as a number": Planted(in_init(lambda f: float(f.size.max())), INIT),
    "sizes in a static field": Planted(in_init(lambda f: Scale(np.asarray(f.size).mean())), INIT),
    "who holds which rows": Planted(in_init(lambda f: jnp.asarray(np.asarray(f.rows)[:, 0])), INIT),
    "sizes in JAX": Planted(
        in_init(lambda f: f.size / 2), "init: state.extra depends on the clients'"
    ),
    "rows in JAX": Planted(
        in_init(lambda f: f.rows.sum()), "init: state.extra depends on the clients'"
    ),
    "the records that the loss closes over": Planted(
        after_sum(
            lambda k, s, c, summed, m: (moved(s, FEDERATION.examples["y"].sum() * jnp.ones(D)), m)
        ),
        "it closes over federation",
    ),
    "the rows that a round closes over": Planted(
        after_sum(lambda k, s, c, summed, m: (moved(s, jnp.sum(FEDERATION.rows) * jnp.ones(D)), m)),
        r"it closes over federation\['client_rows'\]",
    ),
    "how many were drawn": Planted(
        looking_at_the_cohort(lambda c: c._calls.given.members * 1.0),
        r"state\.params.* depends on who takes part",
    ),
    "a client's number in a diagnostic fed back": Planted(
        numbered(),
        r"state\.extra.* depends on a client's data",
    ),
    "a metric that is called so": Planted(
        after_sum(misnamed),
        r"metrics\['my diagnostics'\].* depends on",
    ),
    "a callback that returns": Planted(
        after_sum(a_callback), "round: pure_callback .* calls the host"
    ),
    # types
    "complex messages": Planted(
        sending(complex_update),
        r"message: complex64 holds no real numbers.* give jnp\.stack\(\[z\.real, z\.imag\]\)",
    ),
    "complex numbers beside real ones": Planted(
        sending(lambda k, shard, s: {"w": s.params["w"], "z": jnp.ones(2, jnp.complex64)}),
        r"message\['z'\]: complex64 holds no real",
    ),
    "complex numbers with noise of their own": Planted(
        sending(complex_update, adder="own"), "complex64"
    ),
    "an opening in an opening": Planted(
        fed_avg(
            sampler=Opening(
                Opening(fp.everyone(CLIENTS), 1, fp.everyone(CLIENTS)),
                1,
                fp.poisson(CLIENTS, 0.4, 5),
            )
        ),
        "sampler: .* give one such as fp.poisson",
    ),
}

MEASURED = {  # seals that can be carried over
    "gradients that mix records": Planted(
        of_records(mixed),
        r"gradients \(\w+\.py:\d+\): a record's gradient",
    ),
    "norms that are too small": Planted(
        of_records(wrapped(lambda g: g._replace(norms=jax.tree.map(lambda n: n / 10, g.norms)))),
        r"gradients \(\w+\.py:\d+\): a norm is",
    ),
    "a schedule's subclass": Planted(
        fed_avg(Fading(*fp.dynamic(GAUSSIAN, rounds=9, noise_decay=2.0))),
        MECHANISM + "it declares a multiplier",
        "a schedule",
    ),
    "a sampler's subclass": Planted(
        fed_avg(sampler=Favouring(*fp.poisson(CLIENTS, 0.4, 5))),
        "sampler: .* is in 0.* of the draws, but the accounting says",
    ),
    "a sampler's subclass that tells of other draws later": Planted(
        fed_avg(
            sampler=Warm(*fp.poisson(CLIENTS, 0.9, 6)._replace(accounting=Poisson(CLIENTS, 0.1)))
        ),
        "sampler: .* of the draws, but the accounting says",
    ),
    "a schedule that is quieter later": Planted(
        fed_avg(Fading(*fp.dynamic(GAUSSIAN, rounds=900, noise_decay=2.0, parts=1))),
        MECHANISM + "it declares a multiplier",
    ),
    "gradients that subtract the last": Planted(
        of_records(wrapped(less_the_last)),
        r"gradients \(\w+\.py:\d+\): ",
    ),
    "NaN passes": Planted(
        fed_avg(GAUSSIAN._replace(clip=blind)), MECHANISM + "a contribution with NaN"
    ),
    "the longest pass": Planted(
        fed_avg(GAUSSIAN._replace(clip=to_a_point)), MECHANISM + "it declares a multiplier", "clip"
    ),
    "short ones are blown up": Planted(
        fed_avg(GAUSSIAN._replace(clip=enlarging)),
        MECHANISM + "it declares a multiplier",
    ),
    "a mechanism that looks at its batch": Planted(
        of_records(fp.per_example(squared), Peeking()),
        MECHANISM + "`for_batch` looks at the gradients",
    ),
    "a mechanism that scales no record": Planted(
        of_records(
            fp.per_example(squared),
            described(GAUSSIAN, scaling=Scaling(lambda norms: jax.tree.map(jnp.ones_like, norms))),
        ),
        MECHANISM + "it declares a multiplier",
        "scaling",
    ),
}


@jax.custom_batching.custom_vmap
def shared(y):
    """Of one alone itself; of several side by side the mean of all."""
    return y


@shared.def_vmap
def _(size, batched, y):
    return jnp.broadcast_to(y.mean(0), y.shape), True


def mixing_loss(params, example):
    return squared(params, example | {"y": shared(example["y"])})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: of_records(fp.per_example(mixing_loss)),
            "loss: its .*custom_vmap may mix the records",
        ),
        (
            lambda: sending(lambda key, shard, state: shared(shard.examples["y"].sum())),
            r"round: custom_vmap_call \(\w+\.py:\d+\) may mix clients",
        ),
    ],
    ids=["records", "clients"],
)
def test_what_mixes_those_that_are_computed_side_by_side(make, said):
    with refused(said):
        fp.certify(make(), PARAMS, FEDERATION, 1, 1e-3)


def test_clients_may_mix_their_own_records():
    gradient = fp.mean_grad(mixing_loss)
    sent = sending(lambda key, shard, state: gradient(state.params, shard.examples, shard.mask))
    assert fp.certify(sent, PARAMS, FEDERATION, 1, 1e-3).basis == "constructed"


@tiers.every("name", KEYS)
def test_the_keys_of_a_round_are_public(name):
    certificate = check_launch(KEYS[name].algorithm, PARAMS, FEDERATION).certify(3, 1e-3)
    assert certificate.basis == "constructed"
    assert np.isfinite(certificate.epsilon)


@pytest.mark.parametrize("name", FAULTS)
def test_a_hole_is_closed(name):
    algorithm, said, _ = FAULTS[name]
    with refused(said):
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)


@tiers.every("name", MEASURED)
def test_what_a_seal_does_not_show_is_measured(name):
    algorithm, said, _ = MEASURED[name]
    with refused(said):
        measured(algorithm)


def told_the_seed():
    """The noise computed again from the run's own seed, and taken off."""

    def without_noise(key, state, cohort, summed, metrics):
        noise = GAUSSIAN.perturb(keys_of(jax.random.key(0), state.round).noise, ZEROS)
        return moved(state, flatten(noise) / cohort.expected_size), metrics

    return after_sum(without_noise)


def sealed_by_hand():
    return fed_avg(sealed(GAUSSIAN._replace(clip=lambda u: (u, jnp.float32(0)))))


@pytest.mark.parametrize("make", [told_the_seed, sealed_by_hand])
def test_what_passes_knowingly(make):
    """docs/ideas/the_check.md lists these: the check protects from mistakes, not from who writes the round."""
    assert fp.certify(make(), PARAMS, FEDERATION, 1, 1e-3).basis == "constructed"


def asking():
    """A sampler by hand that asks private records who takes part."""
    records = FEDERATION.examples["x"]

    def draw(key):
        ids, mask, _ = POISSON.draw(key)
        asked = records[FEDERATION.rows[jnp.clip(ids, 0, CLIENTS - 1), 0], 0]
        return fp.types.Draw(ids, mask & (asked > 0))

    return fed_avg(sampler=POISSON._replace(draw=draw, seal=()))


def test_the_arrays_of_a_sampler_by_hand_are_listed():
    certificate = fp.certify(asking(), PARAMS, FEDERATION, 1, 1e-3)
    assert certificate.basis == "declared"
    (listed,) = (text for text in certificate.assumptions if "sampler made by hand" in text)
    shape = ", ".join(map(str, FEDERATION.examples["x"].shape))
    assert f"float32 ({shape}) in test_planted_holes.py:" in listed
