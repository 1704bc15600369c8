"""What the engine runs is what a round's program means: one client after another, see `fedpriv.proof.reference`.

Both draw the same noise. Chunks, lanes and devices add in another order, and XLA fuses a client's operations. So they
may differ by 50 roundings of the largest number of an array; where all sums are of whole numbers they are the same.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_algorithm import ALGORITHMS, CLIENTS, FEDERATION, PARAMS, UNEQUAL
from small import assert_identical

import fedpriv as fp
from fedpriv.devices import layout
from fedpriv.proof.given import OfClient
from fedpriv.proof.reference import reference_run
from fedpriv.proof.stream import public_key, root_of, round_of
from fedpriv.rounds.algorithm import initial_state
from fedpriv.rounds.one_round import who_takes_part
from fedpriv.rounds.own_state import STORE
from fedpriv.rounds.running import RoundToRun, arguments_of, run_round
from fedpriv.rounds.samplers import Draw

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROUNDINGS = 50 * np.finfo(np.float32).eps
ROOT = root_of(jax.random.key(5))
T = jnp.int32(0)
NOISY = fp.gaussian(1000.0, 0.01)  # nothing here is as long, so clipping is by 1


class State(NamedTuple):
    params: Any
    round: jax.Array
    kept: jax.Array


def whole():
    """Sums of whole numbers, divided by 2; clients keep how much they sent."""

    def round(key, state, cohort):
        def client(key, shard, row):
            sent = jnp.sum(jnp.where(shard.mask, jnp.rint(10 * shard.examples["y"]), 0))
            sent += jax.random.randint(key, (), 0, 9)
            return fp.Sent(sent * jnp.arange(4.0), {"row": row}, row + sent)

        total, metrics, kept = cohort.sum(client, key, mechanism=NOISY, own=state.kept)
        return State({"w": state.params["w"] - total / 2}, state.round + 1, kept), metrics

    def init(params, federation):
        return State({"w": jnp.zeros(4)}, jnp.int32(0), 100 * jnp.arange(float(CLIENTS)))

    return fp.Algorithm(init, round, fp.poisson(CLIENTS, 2 / CLIENTS, 4))


ALL = ALGORITHMS | {"whole": whole()}


@cache
def traced(name):
    return fp.trace_round(ALL[name], PARAMS, FEDERATION).programs[0]


def members(*clients, slots=4):
    """These clients, and empty slots behind them."""
    ids = jnp.array([*clients, *[CLIENTS] * (slots - len(clients))], jnp.int32)
    return Draw(ids, jnp.arange(slots) < len(clients))


def drawn_by(name):
    sampler = ALL[name].sampler
    return who_takes_part(sampler, 0, ROOT, T, sampler.first_memory())[0]


def to_run(name, drawn=None):
    algorithm = ALL[name]
    state = initial_state(algorithm, PARAMS, UNEQUAL)
    keys = round_of(ROOT, 0), public_key(ROOT, 1)
    drawn = drawn_by(name) if drawn is None else drawn
    return RoundToRun(*keys, state, T, algorithm.sampler, drawn, UNEQUAL, None)


def by_reference(name, of):
    ids, mask = np.asarray(of.drawn.ids), np.asarray(of.drawn.mask)

    def client(slot):
        rows = UNEQUAL.client_rows
        i, start = int(ids[slot]), int(rows.start[ids[slot]])
        held = rows.order[start : start + UNEQUAL.capacity]
        records = jax.tree.map(lambda leaf: leaf[held], UNEQUAL.examples)
        answer = jax.tree.map(lambda leaf: leaf[slot], of.drawn.answer)
        return OfClient(records, UNEQUAL.size[i], jnp.int32(i), answer)

    def store(eqn, values):
        half = len(values) // 2
        kept = [np.array(leaf) for leaf in values[:half]]
        for leaf, rows in zip(kept, values[half:], strict=True):
            leaf[ids[mask]] = np.asarray(rows)[mask]
        return [*map(jnp.asarray, kept)]

    slots = [client(slot) if mask[slot] else None for slot in range(len(ids))]
    return reference_run(traced(name), arguments_of(of), slots, {STORE: store})


@cache
def engine(name, clients, devices):
    """Of a draw, compiled once."""
    of = to_run(name)
    with layout.use(fp.Strategy(clients, devices)):
        run = layout.spmd(lambda drawn: run_round(traced(name), of._replace(drawn=drawn)))
        return jax.jit(run).lower(of.drawn).compile()


def by_engine(name, of, clients="map", devices=1):
    return engine(name, clients, devices)(of.drawn)


def results(found):
    return found.state, found.metrics, found.not_finite


def assert_alike(ran, meant):
    pairs = zip(*map(jax.tree.leaves, (results(ran), results(meant))), strict=True)
    for engine, reference in pairs:
        bound = ROUNDINGS * np.max(np.abs(reference), initial=1.0)
        np.testing.assert_allclose(engine, reference, rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["dp_fed_avg", "fed_per", "dp_adam"])
def test_the_engine_runs_what_a_program_means(name):
    """A plain round, one whose clients keep something, and one of private means of records."""
    of = to_run(name)
    assert_alike(by_engine(name, of), by_reference(name, of))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp_fed_avg", "fed_per", "dp_adam"])
@pytest.mark.parametrize("how", [(2, 1), ("vmap", 1), ("map", 2), (2, 2)])
def test_however_clients_are_laid_out(name, how):
    of = to_run(name)
    assert_alike(by_engine(name, of, *how), by_reference(name, of))


COHORTS = {
    "nobody": members(),
    "one client": members(3),
    "empty slots": members(4, 1, 2),
    "a full cohort": members(0, 5, 2, 3),
}


@pytest.mark.parametrize("name", COHORTS)
def test_each_member_counts_once_and_an_empty_slot_never(name):
    of = to_run("whole", COHORTS[name])
    meant = results(by_reference("whole", of))
    for clients in ("map", 3, "vmap"):
        assert_identical(results(by_engine("whole", of, clients)), meant)


@pytest.mark.slow
@pytest.mark.parametrize("name", COHORTS)
def test_on_two_devices_they_do_likewise(name):
    of = to_run("whole", COHORTS[name])
    meant = results(by_reference("whole", of))
    for clients in ("map", 2):
        assert_identical(results(by_engine("whole", of, clients, devices=2)), meant)


def test_a_plain_round_operation_by_operation_is_the_same_to_the_bit():
    of = to_run("dp_fed_avg")
    with layout.use(fp.Strategy("map")):
        ran = run_round(traced("dp_fed_avg"), of)
    assert_identical(results(ran), results(by_reference("dp_fed_avg", of)))


def test_another_cohort_is_noticed():
    """The comparison is not empty: one more member, in the engine's run alone, is no rounding."""
    one, more = to_run("whole", members(3)), to_run("whole", members(3, 1))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_alike(by_engine("whole", more), by_reference("whole", one))
