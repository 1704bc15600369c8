"""Rounds whose sums are of integers: of clients' messages, and of single records through `cohort.private_mean`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from checkpointed import CLIENTS, FEDERATION, FIXED, PER_CLIENT, assert_same, run
from small import compiler_of_one_program, one_round, regression, squared, start

import fedpriv as fp
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.per_example import integer_total

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(0)
TWO = fp.fixed_size(PER_CLIENT, 2)
SGD = {"optimizer": lambda t: optax.sgd(0.1)}
NOISY = {"clip_norm": 0.5, "noise_multiplier": 1.2}


def of_records(
    mechanism, sampler=FIXED, records=TWO, *, together=True, loss=squared, unit="record"
):
    local = fp.LocalSteps(fp.per_example(loss), records, 1, mechanism=mechanism, unit=unit, **SGD)
    return fp.dp_sgd(local, sampler=sampler, together=together)


@pytest.mark.slow
def test_a_streamed_run_that_was_killed_ends_as_one_in_memory(tmp_path):
    """To the bit, of two secret seeds, on two devices, some of whose clients vanish."""
    made = {"mechanism": fp.skellam(bits=16, **NOISY), "batches": fp.full_batch(), **SGD}
    algorithm = fp.fed_avg(squared, sampler=fp.dropping(FIXED, 0.3125, "lost"), **made)
    examples, rows = jax.tree.map(np.asarray, (FEDERATION.examples, FEDERATION.rows))
    streamed = fp.StreamedFederation.from_arrays(examples, list(rows))
    options = {"rounds": 3, "every": 1, "secret_seed": 2**62 + 1, "strategy": fp.Strategy("map", 2)}
    expected, _ = run(algorithm, **options)
    options["compiler"] = compiler_of_one_program()
    run(algorithm, tmp_path, streamed, stop=1, **options)
    history, called = run(algorithm, tmp_path, streamed, **options)
    assert called == [2, 3]
    assert_same(history, expected)


def after(algorithm, federation=FEDERATION, params=None):
    state = algorithm.init(start() if params is None else params, federation)
    state, metrics = one_round(algorithm)(KEY, state, federation)
    return state.params, metrics


RECORDS = {"poisson": fp.poisson(PER_CLIENT, 0.5), "fixed": TWO}


@tiers.every("name", RECORDS, kind=lambda sampler: "records")
def test_without_noise_the_mean_is_that_of_the_same_records_in_floats(name):
    records = RECORDS[name]
    floats, _ = after(of_records(fp.gaussian(0.5, 0.0), records=records))
    integers, metrics = after(of_records(fp.skellam(0.5, 0.0, bits=24), records=records))
    used = IntegerSum("skellam", 24, 0.5, 0.0, 3, 4, records.slots)
    # each of at most 9 records is off by less than 1 in each of 4 rotated coordinates
    off = 0.1 * 9 * 2 / used.scale / (3 * records.expected_size)
    for found, expected in zip(jax.tree.leaves(integers), jax.tree.leaves(floats), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=off)
    assert metrics["diagnostics"]["wrapped"] == 0
    assert metrics["uplink"].bits() == 4 * 24


@pytest.mark.slow
def test_the_noise_is_that_of_all_members_once():
    """Of 3,000 numbers: false alarm below 1e-4."""
    d, clients = 3000, 6
    params = jnp.zeros(d)
    federation = fp.Federation.from_arrays(
        np.zeros((2 * clients, 1), np.float32), fp.partition.natural(np.arange(12) % clients)
    )
    algorithm = of_records(
        fp.discrete_gaussian(0.5, 1.2, bits=16),
        fp.fixed_size(clients, 4),
        fp.fixed_size(2, 1),
        loss=lambda w, example: jnp.sum(0.0 * w) + jnp.sum(example),
    )
    found, _ = after(algorithm, federation, params)
    used = IntegerSum("discrete_gaussian", 16, 0.5, 1.2 * 2, 4, d)
    assert used.noise_of_all.share_variance == pytest.approx(1.2**2 * used.squared_norm)
    expected = 0.1 * used.noise_deviation / 4
    assert abs(float(np.std(found)) / expected - 1) < 4 / np.sqrt(2 * d)


def test_a_record_moves_the_sum_by_no_more_than_its_bound():
    """Counted in whole numbers, whatever the other records are, for gradients far beyond the clip norm."""
    d = 500
    used = IntegerSum("skellam", 12, 1.0, 3.0, 4, d, 8)
    gradients = fp.per_example(lambda w, example: jnp.sum(w * example))
    total = integer_total(gradients, fp.skellam(1.0, 1.5, bits=12), used)
    batch = 10 * np.random.default_rng(0).normal(size=(8, d)).astype(np.float32)
    batch[1] *= 1e-3  # shorter than the clip norm; then one coordinate alone, and none
    batch[2], batch[3] = 1e6 * np.eye(1, d, 3), 0
    masks = ~np.eye(9, 8, dtype=bool)  # without each record, and with all of them
    sums = jax.jit(jax.vmap(lambda m: total(KEY, KEY, jnp.zeros(d), batch, m)))(masks)
    assert sums.dtype == np.int32
    whole = np.asarray(sums, np.int64)
    moved = np.sum((whole[-1] - whole[:-1]) ** 2, axis=1)
    assert max(moved) <= used.squared_norm
    assert max(moved) > 0.5 * used.squared_norm
    assert moved[3] == 0


def test_as_many_records_as_a_cohort_may_draw_fit_the_bits():
    one, other = (IntegerSum("skellam", 16, 1.0, 2.0, *n) for n in ((20, 1000, 5), (100, 1000)))
    assert one.scale == other.scale
    assert one.noise_of_all.shares == 20


def test_what_wraps_is_counted():
    used = IntegerSum("skellam", 8, 1.0, 0.0, 1, 4)
    taken, wrapped = used.perturb(KEY, jnp.array([127, 128, -129, -128], jnp.int32), None)
    assert (taken.tolist(), float(wrapped)) == ([127, -128, 127, -128], 0.5)


@pytest.mark.slow
def test_integers_are_of_32_bits_whatever_jax_has():
    used = IntegerSum("discrete_gaussian", 16, 1.0, 1.0, 10, 100)
    message = 0.1 * np.asarray(jax.random.normal(KEY, (100,)))

    @jax.jit
    def encoded_and_decoded():
        encoded = used.encode(KEY, KEY, jnp.asarray(message))
        noisy, _ = used.perturb(KEY, encoded, None)
        assert encoded.dtype == noisy.dtype == jnp.int32
        return encoded, noisy, used.decode(KEY, noisy, jnp.asarray(message))

    plain = encoded_and_decoded()
    with jax.enable_x64(True):
        wide = encoded_and_decoded()
    for a, b in zip(plain, wide, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def epsilons(mechanism):
    algorithm = of_records(mechanism, fp.fixed_size(20, 10), fp.poisson(20, 0.25))
    traced = fp.trace_round(algorithm, start(), regression([20] * 20))
    assert traced.basis == "constructed"
    return {v: traced.certify(5, 1e-5, view=v).epsilon for v in fp.privacy.VIEWS}


@pytest.mark.slow
def test_records_are_certified_as_with_real_noise():
    """Towards a server that sees messages by one share, elsewhere by all, and within 1 in 1,000."""
    real, integers = (
        epsilons(fp.gaussian(1.0, 1.0)),
        epsilons(fp.discrete_gaussian(1.0, 1.0, bits=18)),
    )
    for view, epsilon in integers.items():
        assert real[view] <= epsilon <= 1.001 * real[view]
    assert integers["server"] > 3 * integers["server_secagg"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"together": False}, "mechanism: .* sum of a cohort alone; take cohort.private_mean"),
        ({"records": fp.PublicSizes([PER_CLIENT] * CLIENTS, batch=2)}, "records: .* one number"),
        ({"sampler": fp.poisson(CLIENTS, 0.5)}, "sampler: .* cohorts of one size"),
        ({"unit": "client"}, "mechanism: .* for a record that one client holds"),
        ({"sampler": fp.dropping(FIXED, 0.25)}, "sampler: .* nobody vanishes"),
        ({"sampler": fp.dropping(FIXED, 0.25, "lost")}, "sampler: .* nobody vanishes"),
    ],
)
def test_shares_that_do_not_add_up_are_refused(given, said):
    algorithm = of_records(fp.skellam(bits=16, **NOISY), **given)
    with pytest.raises(ValueError, match=said):
        fp.trace_round(algorithm, start(), FEDERATION).seen(1)


def taken_twice(mechanism, second):
    """Two noisy means of each round, the other at `second(params)`."""

    def loss(params, example):
        return example["y"] * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    def round(key, state, cohort):
        for params in (state.params, second(state.params)):
            _, metrics = cohort.private_mean(
                fp.per_example(loss), params, records=TWO, mechanism=mechanism
            )
        return state._replace(round=state.round + 1), metrics

    return fp.Algorithm(fp.start, round, FIXED, unit="record")


@pytest.mark.slow
def test_several_means_of_records_are_counted_together_or_refused():
    found, real = (
        fp.certify(taken_twice(used, lambda p: p), start(), FEDERATION, 3, 1e-5)
        for used in (fp.discrete_gaussian(0.5, 3.0, bits=16), fp.gaussian(0.5, 3.0))
    )
    assert real.epsilon < found.epsilon < 1.001 * real.epsilon
    with pytest.raises(ValueError, match=r"private means of several sizes as integers .* together"):
        fp.trace_round(
            taken_twice(fp.skellam(0.5, 3.0, bits=16), lambda p: p["w"]), start(), FEDERATION
        ).seen(3)
