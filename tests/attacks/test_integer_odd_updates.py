"""Rounds of integer sums as they run: odd updates show no more of a client than is certified."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.privacy import Everyone, certify_seen, declared

pytestmark = pytest.mark.usefixtures("quick_to_compile")

D, CLIP, NOISE, BITS = 16, 0.5, 1.5, 6  # so few bits that rounding counts
MECHANISMS = {"discrete_gaussian": fp.discrete_gaussian, "skellam": fp.skellam}
UPDATES = ("all equal", "zero", "one coordinate", "half-way")


def plan(noise, clients):
    return IntegerSum(noise, BITS, CLIP, NOISE, clients, D)


def message(kind, noise, clients):
    """f32[D]; of length `CLIP` at most but for one, which is clipped."""
    row = np.zeros(D, np.float32)
    if kind == "all equal":
        row += CLIP / np.sqrt(D)
    if kind == "one coordinate":
        row[3] = 100 * CLIP
    if kind == "half-way":  # a rotation turns it into +-1/2 everywhere, and rounding into 0 and +-1
        row[3] = np.sqrt(D) / 2 / plan(noise, clients).scale
    return row


def summing(used, sampler):
    """The model is the last round's sum. One over the size of the cohort is told where client 0 is in it, else 0."""

    def client(key, shard):
        told = {"one_of": (shard.client_id == 0).astype(jnp.float32)}
        return fp.Sent(shard.examples[0], told)

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(client, key, mechanism=used)
        return state._replace(params=total, round=state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


def federation(rows):
    return fp.Federation.from_arrays(rows, fp.partition.natural(np.arange(len(rows))))


STAYS = 0.01
DROPPING = fp.dropping(fp.everyone(3), 1 - STAYS, noise="lost")
CASES = {
    "two, skellam": ("skellam", 2, fp.everyone(2)),
    "99 % drop out": ("discrete_gaussian", 3, DROPPING),
}


def rounds_of(algorithm, data):
    """(keys, rows) -> sums and what is told, of a round for each key."""

    def many(keys, rows):
        now = replace(data, examples=rows)

        def one(key):
            after, metrics = fp.one_round(algorithm)(key, fp.start(jnp.zeros(D), now), now)
            return after.params, metrics["diagnostics"]["one_of"]

        return jax.lax.map(one, keys, batch_size=1000)

    return many


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_odd_updates_show_less_than_is_certified(case):
    """Each bound is wrong with probability 1e-6. The adversary knows all but whether client 0 sends its update.

    Rounds of which client 0 drops out tell nothing, so that only others are run: their delta is that of all over their
    chance.
    """
    noise, clients, sampler = CASES[case]
    drops = "out" in case
    delta, runs = (2e-3 / STAYS, 4_000) if drops else (1e-2, 20_000)
    algorithm = summing(MECHANISMS[noise](CLIP, NOISE, bits=BITS), sampler)
    deviation = plan(noise, clients).noise_deviation
    data, of_all = federation(np.zeros((clients, D), np.float32)), delta * (STAYS if drops else 1)
    certified = fp.certify(algorithm, jnp.zeros(D), data, 1, of_all, view="server_secagg").epsilon
    rounds = rounds_of(algorithm, data)
    many, told = jax.jit(rounds), jax.jit(lambda *given: rounds(*given)[1])

    def keys(seed):
        if not drops:
            return jax.random.split(jax.random.key(seed), runs)
        tried = jax.random.split(jax.random.key(seed), int(1.2 * runs / STAYS))
        return tried[told(tried, data.examples) > 0][:runs]

    both = keys(0), keys(1)
    for kind in UPDATES:
        row = message(kind, noise, clients)
        sent = row * min(1, CLIP / max(np.linalg.norm(row), 1e-9))
        along = sent if sent.any() else np.full(D, CLIP / np.sqrt(D))
        rows, scores = np.tile(row, (clients, 1)), []
        for there in (1, 0):
            rows[0] = there * row
            total, one_of = map(np.asarray, many(both[there], rows))
            size = 1 / one_of
            of_client = (total - (size - 1)[:, None] * sent) @ along - along @ along / 2
            scores.append(of_client * clients / size / deviation**2)
        assert len(scores[0]) == len(scores[1]) == runs
        seen = Scores(*scores, frozenset(), False)
        assert lower_bounds(seen, delta, 1e-6).least <= certified
        if kind in ("all equal", "one coordinate"):
            assert lower_bounds(seen, delta).least > (0.1 if drops else 0.3) * certified


@pytest.mark.slow
def test_who_knows_rotation_and_rounding_learns_no_more():
    """Of an update that rounding makes as long as it may: as above, with the integers that are added up."""
    noise = "discrete_gaussian"
    used = plan(noise, 10)
    row = message("half-way", noise, 10)
    sent = jax.jit(jax.vmap(lambda k: used.encode(k, k, row)))(
        jax.random.split(jax.random.key(0), 200)
    )
    squares = np.sum(np.square(sent), axis=1)
    assert squares.max() == used.squared_norm > 1.2 * (CLIP * used.scale) ** 2
    longest = jnp.asarray(sent[np.argmax(squares)])

    @jax.jit
    def scores(key, there):
        noisy = lambda k: used.perturb(k, there * longest, None)[0]  # noqa: E731
        return jax.vmap(noisy)(jax.random.split(key, 50_000)) @ longest

    both = (np.asarray(scores(jax.random.key(i), jnp.int32(i)), float) for i in (1, 0))
    found = lower_bounds(Scores(*both, frozenset(), False), 1e-3, 1e-6).least
    seen = declared(
        "server_secagg", "client", NOISE, Everyone(10), 1, noise=noise, integers=used.noise_of_all
    )
    certified = certify_seen([seen], 1e-3, "server_secagg").epsilon
    assert 0.6 * certified < found <= certified
