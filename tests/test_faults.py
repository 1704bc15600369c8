"""Leaks, and noise that is not fresh, planted in a user's own algorithms are refused by name, with their place."""

import jax
import jax.numpy as jnp
import pytest
import tiers
from faulty_rounds import (
    SKELLAM,
    added,
    branching_on_the_host,
    by_records,
    by_size,
    calling_a_library,
    calling_the_host,
    choosing,
    cond_leak,
    counting_on_the_host,
    derivative,
    drawing_on_the_host,
    encoding_by_hand,
    filling_a_buffer_of_the_host,
    filling_shared_memory,
    holding_the_data,
    in_two_loops,
    not_finite,
    old_rows,
    raw,
    raw_mean,
    reduction_leak,
    replaced_rows,
    running_mean,
    scan_leak,
    scanned,
    starting_from_the_data,
    summed_again,
    under_vmap,
    while_leak,
    while_loop,
    window_leak,
)
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    RECORDS,
    D,
    after_sum,
    error_feedback,
    fed_avg,
    fed_smp,
    moved,
    scaffold,
    twice,
)
from planted_rounds import Planted
from small import refused

import fedpriv as fp
from fedpriv.certification.certificate import check_twice
from fedpriv.certification.checks import check_launch
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")


LOOP = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
FAULTS = {
    # past the releases
    "the raw sum after the noise": Planted(
        after_sum(lambda k, s, c, summed, m: (moved(s, 1e-6 * raw(summed)), m)),
        r"round: state\.params.* depends on a client's data \(own_algorithms\.py:\d+\)",
    ),
    "division by the realised size": Planted(
        after_sum(lambda k, s, c, summed, m: (moved(s, jnp.ones(D) / c.size), m)),
        r"state\.params.* depends on who takes part \(test_faults\.py",
    ),
    "a diagnostic fed back": Planted(
        after_sum(
            lambda k, s, c, summed, m: (
                s._replace(extra=summed.metrics["diagnostics"]["mean_update_norm"]),
                m,
            ),
            jnp.float32(0),
        ),
        r"state\.extra.* depends on a client's data",
    ),
    "how many messages are not finite": Planted(
        after_sum(not_finite("messages")),
        r"state\.params.* depends on how many messages or gradients are not finite",
    ),
    "how many gradients of records are not finite": Planted(
        after_sum(not_finite("records")),
        r"state\.params.* depends on how many messages or gradients are not finite",
    ),
    "the sum before the noise in a metric": Planted(
        after_sum(lambda k, s, c, summed, m: (s, m | {"raw": raw(summed)})),
        r"metrics\['raw'\].* depends on a client's data",
    ),
    "a metric that is not known": Planted(
        after_sum(lambda k, s, c, summed, m: (s, m | {"loss": jnp.float32(0)})),
        r"metrics: \['loss'\] belong under 'diagnostics'",
    ),
    "a leak through scan": Planted(
        after_sum(scan_leak), r"state\.params.* depends on a client's data", "scan"
    ),
    "a leak through reduce": Planted(
        after_sum(reduction_leak), r"state\.params.* depends on a client's data", "reduce"
    ),
    "a leak through windows": Planted(
        after_sum(window_leak), r"state\.params.* depends on a client's data", "reduce_window"
    ),
    "a leak through cond": Planted(
        after_sum(cond_leak), r"state\.params.* depends on who takes part"
    ),
    "a leak through while": Planted(
        after_sum(while_leak), r"state\.params.* depends on a client's data", "while"
    ),
    "clients' own state in the model": Planted(
        error_feedback(after=lambda s: moved(s, s.memory.mean(0))),
        r"state\.params.* depends on clients' own state",
    ),
    "a running mean of records": Planted(
        running_mean(), r"state\.extra.* depends on a client's data"
    ),
    "clients' own state mixed": Planted(
        error_feedback(after=lambda s: s._replace(memory=jnp.roll(s.memory, 1, 0))),
        "depends on clients' own state",
    ),
    "top_k's mask from clients' records": Planted(
        fed_smp(by_records),
        "depends on a client's data.* that it",
    ),
    "the coordinates that clients sent": Planted(
        error_feedback(after=lambda s: moved(s, jnp.sum(s.memory == 0, 0) * 1e-3)),
        r"state\.params.* depends on clients' own state",
    ),
    "a clip norm from clients' data": Planted(
        choosing(lambda summed: summed.metrics["diagnostics"]["mean_update_norm"]),
        r"the release in faulty_rounds.py:\d+ depends on a client's data .* does not bound",
    ),
    "who took part, by the rows they replace": Planted(
        after_sum(replaced_rows),
        "state.params.* depends on clients' own state",
    ),
    "rows that a second call leaves as they were": Planted(
        after_sum(old_rows, jnp.zeros(CLIENTS), sampler=fp.everyone(CLIENTS)),
        "state.params.* depends on clients' own state",
        "two calls",
    ),
    "the derivative of a noisy sum": Planted(after_sum(derivative), LOOP),
    # calls that could be repeated
    "releases in a loop": Planted(scanned(), LOOP),
    "releases in a loop of unknown length": Planted(twice(while_loop), LOOP),
    "releases in two loops": Planted(twice(in_two_loops), LOOP),
    "releases under vmap": Planted(under_vmap(), LOOP, "vmap"),
    # records past their private mean
    "a raw mean in a local step": Planted(
        scaffold(direction=added),
        r"the release in .* depends on a client's data .* that it does not bound",
    ),
    "gradients at a model that saw records": Planted(
        scaffold(at=lambda y, shard: jax.tree.map(jnp.add, y, raw_mean(y, shard))),
        "depends on a client's data .* that it does not bound",
    ),
    "a client's size in its step": Planted(by_size(), "depends on a client's data"),
    "a control variate of raw records": Planted(
        scaffold(kept=lambda c_i, mean, shard: flatten(raw_mean(PARAMS, shard))),
        "depends on a client's data",
    ),
    # the host
    "a counter on the host": Planted(
        after_sum(counting_on_the_host),
        r"traced again it is another program \(faulty_rounds\.py:\d+\)",
    ),
    "np.random": Planted(
        after_sum(drawing_on_the_host),
        r"traced again it is another program \(faulty_rounds\.py:\d+\)",
    ),
    "a branch of the host": Planted(
        after_sum(branching_on_the_host),
        r"traced again it is another program \(faulty_rounds\.py:\d+\)",
    ),
    "a buffer of the host": Planted(
        after_sum(filling_a_buffer_of_the_host),
        r"traced again it is another program \(faulty_rounds\.py:\d+\)",
        "buffer",
    ),
    "memory that JAX shares with the host": Planted(
        after_sum(filling_shared_memory),
        r"traced again it is another program \(faulty_rounds\.py:\d+\)",
    ),
    "a program of a library": Planted(
        after_sum(calling_a_library),
        r"round: ffi_call \(faulty_rounds\.py:\d+\) is not among the operations",
    ),
    "a callback": Planted(after_sum(calling_the_host), "round: pure_callback .* calls the host"),
    "records as they are, in the state": Planted(
        after_sum(
            lambda k, s, c, summed, m: (s._replace(extra=FEDERATION.examples["y"]), m),
            jnp.zeros_like(FEDERATION.examples["y"]),
        ),
        r"it closes over federation\['examples'\]\['y'\]",
    ),
    "records that the round closes over": Planted(
        holding_the_data(),
        r"it closes over federation\['examples'\]\['x'\]",
    ),
    "an initial model of the records": Planted(
        starting_from_the_data(),
        "init: state.params.* depends on",
    ),
    # sums of integers
    "integers rotated by clients' data": Planted(
        summed_again(GAUSSIAN, folded=lambda norm: norm.astype(jnp.int32)),
        r"the release in faulty_rounds.py:\d+ depends on a client's data .* does not bound",
    ),
    "integers scaled by clients' data": Planted(
        summed_again(GAUSSIAN, lambda norm: SKELLAM._replace(clip_norm=norm)),
        "^clip_norm: a traced value.* give a finite number",
    ),
    "noise of integers by clients' data": Planted(
        summed_again(GAUSSIAN, lambda norm: SKELLAM._replace(noise_multiplier=norm)),
        "^noise_multiplier: a traced value.* give a finite number",
    ),
    "a sum of integers beside one of floats": Planted(
        summed_again(GAUSSIAN),
        "sums of one cohort differ in their kind of noise",
    ),
    "a sum of integers before the noise": Planted(
        after_sum(lambda k, s, c, summed, m: (moved(s, raw(summed)), m), mechanism=SKELLAM),
        r"state\.params.* depends on a client's data",
        "integers",
    ),
    "how much of a sum wrapped": Planted(
        after_sum(
            lambda k, s, c, summed, m: (
                moved(s, jnp.ones(D) * summed.metrics["diagnostics"]["wrapped"]),
                m,
            ),
            mechanism=SKELLAM,
        ),
        r"state\.params.* depends on the hidden random numbers",
    ),
    "integers that are encoded by hand": Planted(
        encoding_by_hand(),
        "a client's message .* depends on a client's data",
    ),
    "another population": Planted(
        fed_avg(sampler=fp.poisson(9, 0.4, 5)),
        "made for 9 clients, but the fed",
    ),
    "another number of records": Planted(
        scaffold(records=fp.fixed_size(RECORDS + 1, 2)),
        "records: drawn among 4, but client 0 holds 3",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name):
    """Before anything runs."""
    algorithm, said, _ = FAULTS[name]
    with refused(said):
        traced = check_launch(algorithm, PARAMS, FEDERATION)
        check_twice(traced)
        traced.certify(3, 1e-3)


HOST = (counting_on_the_host, drawing_on_the_host, branching_on_the_host)
READERS = {reader.__name__: reader for reader in HOST}


@tiers.every("name", READERS)
def test_the_host_is_noticed_before_a_certificate_and_before_training(name):
    of = READERS[name]
    given = after_sum(of), PARAMS, FEDERATION
    loss = fp.models.Score(lambda params, example: {"loss": jnp.zeros(())})
    line = rf"faulty_rounds\.py:{of.__code__.co_firstlineno + 2}"
    if (
        of is branching_on_the_host
    ):  # which of the two programs is the longer one, depends on the tests before
        line = r"\w+\.py:\d+"
    with pytest.raises(ValueError, match=rf"another program \({line}\)"):
        fp.certify(*given, 2, 1e-3)
    with pytest.raises(ValueError, match=rf"another program \({line}\)"):
        fp.simulate(
            *given, jax.tree.map(lambda leaf: leaf[:1], FEDERATION.examples), score=loss, rounds=1
        )
