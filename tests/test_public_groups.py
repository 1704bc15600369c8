"""Records in public groups with rates of their own: draws, certificates against pairs computed here, and refusals."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from algorithm_exceptions import varied
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, PARAMS, PER_CLIENT, that
from small import (
    FALSE_ALARM,
    assert_close,
    assert_normal,
    assert_uniform,
    one_round,
    refused,
    regression,
    squared,
    start,
    with_stream,
)
from test_streaming import streamed
from test_unequal_certificates import epsilon_of, in_place_curve, replaced_curve
from unequal import GRADIENTS, sending, steps

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.attacks.mechanism_audit import draw_scores

pytestmark = pytest.mark.usefixtures("quick_to_compile")

GROUPS = (
    ["x"] * 6 + ["y"] * 4,
    ["y"] * 8,
    ["x", "y", "y", "x", "y"],
    ["x"] * 12,
    ["y", "x"] * 3,
    ["x"],
    ["y"] * 3,
    ["y", "x", "x"] * 2,
)
SIZES = tuple(map(len, GROUPS))
RATES, BATCHES = {"x": 0.2, "y": 0.5}, {"x": 2, "y": 3}
BY_RATE, BY_BATCH = fp.PublicGroups(GROUPS, rate=RATES), fp.PublicGroups(GROUPS, batch=BATCHES)
HOSPITALS = regression(SIZES)


def descent(records, noise=2.0, sampler=None, count=2, make=fp.dp_sgd):
    used = fp.gaussian(0.8, noise)
    return make(steps(records, used, count), sampler=sampler or fp.fixed_size(8, 4))


@pytest.mark.parametrize("kind", ["rate", "batch"])
def test_each_group_of_a_clients_records_is_drawn_by_itself(kind):
    """Run through the engine: a mean over a batch of one-hot records shows which it held, and its divisor."""
    gradients = fp.per_example(lambda params, example: -params @ example["x"])
    records = {"rate": BY_RATE, "batch": BY_BATCH}[kind]
    local = fp.LocalSteps(gradients, records, 1, lambda t: optax.sgd(1.0), fp.gaussian(9.0, 0.0))

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, None))
    def moved(key, client, size):
        shard = fp.Shard({"x": jnp.eye(12)}, size, client_id=client)
        return local.run(key, jnp.zeros(12), with_stream(shard, key))[0]

    keys = jax.random.split(jax.random.key(2), 4000)
    for client in (0, 2, 5):
        own = np.array(GROUPS[client])
        given = moved(keys, jnp.int32(client), jnp.int32(len(own)))
        check_draws(np.asarray(given, np.float64), own, kind)


def check_draws(moved, own, kind):
    """`moved`: means f64[draws, 12] of one-hot records that are in groups `own`."""
    draws, held = len(moved), {name: int(np.sum(own == name)) for name in "xy"}
    expected = {
        name: RATES[name] * n if kind == "rate" else min(BATCHES[name], n)
        for name, n in held.items()
    }
    moved = moved * sum(expected.values())
    there = np.round(moved)
    np.testing.assert_allclose(moved, there, atol=1e-5)
    assert set(np.unique(there)) <= {0.0, 1.0}
    assert np.all(there[:, len(own) :] == 0)
    for name, n in held.items():
        if n == 0:
            continue
        where = np.flatnonzero(own == name)
        assert_uniform(there[:, where].sum(0), draws, expected[name] / n)
        if kind == "batch":
            assert np.all(there[:, where].sum(1) == expected[name])
        others = np.flatnonzero(own != name)
        pairs = (there.T @ there)[np.ix_(where, others)]
        if pairs.size:
            other = own[others[0]]
            assert_uniform(pairs, draws, expected[name] / n * expected[other] / held[other])


def test_the_noise_is_that_of_the_divisor():
    """Gradients are 0, so that a step is noise alone: sigma C over the sum of the expected sizes."""
    gradients = fp.per_example(lambda params, example: 0.0 * jnp.sum(params))
    local = fp.LocalSteps(gradients, BY_RATE, 1, lambda t: optax.sgd(1.0), fp.gaussian(0.8, 1.7))
    shard = fp.Shard({"x": jnp.eye(12)}, jnp.int32(10), client_id=jnp.int32(0))
    keys = jax.random.split(jax.random.key(3), 200)
    run = jax.vmap(lambda key: local.run(key, jnp.zeros(20), with_stream(shard, key))[0])
    assert_normal(np.asarray(jax.jit(run)(keys)), 1.7 * 0.8 / (0.2 * 6 + 0.5 * 4))


def test_rates_have_the_epsilons_of_own_pairs():
    """Replace one record of a group, which every client's have at the same rate; a server sees each client's steps."""
    algorithm = descent(BY_RATE, sampler=fp.everyone(8))
    whole = fp.certify(algorithm, start(), HOSPITALS, 5, 1e-3, view="server", each_client=True)
    for name, rate in RATES.items():
        own = epsilon_of(in_place_curve(rate, 2.0), 10, 1e-3)
        assert whole.of_groups[name].epsilon == pytest.approx(own, rel=1e-3)
    assert whole.epsilon == whole.of_groups["y"].epsilon
    assert (whole.relation, whole.basis, whole.unit) == ("replace_one", "constructed", "record")
    for own, client in zip(GROUPS, whole.of_clients, strict=True):
        assert client.epsilon == max(whole.of_groups[name].epsilon for name in own)


@pytest.mark.slow
def test_batches_cost_most_where_fewest_records_are_of_the_group():
    """By the client's own number of them, as two of three, or one of one."""
    groups = GROUPS[3:6]
    algorithm = descent(fp.PublicGroups(groups, batch=BATCHES), 4.0, sampler=fp.everyone(3))
    hospitals = regression([*map(len, groups)])
    whole = fp.certify(algorithm, start(), hospitals, 5, 1e-3, view="server", each_client=True)
    for i, own in enumerate(groups):
        shares = [min(BATCHES[name], own.count(name)) / own.count(name) for name in set(own)]
        expected = epsilon_of(replaced_curve(max(shares), 4.0), 10, 1e-3)
        assert whole.of_clients[i].epsilon == pytest.approx(expected, rel=1e-3)
    assert whole.of_groups["x"].epsilon == whole.of_clients[2].epsilon


STEPPING = that(lambda entry: "local" in entry.make.keywords and not entry.of_integers)


@tiers.every("name", varied(STEPPING), kind=lambda one: "any")
def test_groups_that_are_alike_cost_what_public_sizes_cost(name):
    """Of every algorithm whose clients take private steps, every view; each trains."""
    entry = ENTRIES[name]
    local = entry.make.keywords["local"]
    groups = [["x", "y", "x"], ["y", "x", "x"]] * (CLIENTS // 2)
    each = [
        fp.PublicGroups(groups, rate={"x": 0.5, "y": 0.5}),
        fp.PublicSizes([PER_CLIENT] * CLIENTS, rate=0.5),
    ]
    algorithms = [entry.make(local=local._replace(records=records)) for records in each]
    by_group, at_once = (fp.trace_round(a, PARAMS, FEDERATION) for a in algorithms)
    for view in fp.privacy.VIEWS:
        one, other = (traced.certify(4, 1e-3, view=view) for traced in (by_group, at_once))
        assert one.epsilon == pytest.approx(other.epsilon, rel=1e-9)
        assert (one.relation, one.basis) == (other.relation, other.basis)
    claim = algorithms[0].claim(4, 1e-3)
    assert claim is None or not claim.sound
    jax.eval_shape(
        fp.one_round(algorithms[0]),
        jax.random.key(0),
        algorithms[0].init(PARAMS, FEDERATION),
        FEDERATION,
    )


@pytest.mark.slow
def test_the_audit_of_the_worst_group_is_below_its_certificate_and_near_it():
    """A bound above a true epsilon has probability 1e-6; 60 % of the certificate are found at 95 % confidence."""
    traced = fp.trace_round(descent(BY_RATE, 2.0, fp.everyone(8), 1), start(), HOSPITALS)
    whole = traced.certify(8, 1e-2, view="server")
    (worst,) = (
        kind for kind in traced.kinds if whole.of_groups[kind.group].epsilon == whole.epsilon
    )
    scores = draw_scores(traced.seen(8, worst), "server", draws=20_000, seed=6)
    assert worst.group == "y"
    assert lower_bounds(scores, 1e-2, FALSE_ALARM).least <= whole.epsilon
    assert lower_bounds(scores, 1e-2).least > 0.6 * whole.epsilon


@pytest.mark.slow
def test_clients_in_groups_give_records_their_own_participation():
    """Hospitals of one group are drawn more often; records are drawn alike, and cost most where there are fewest."""
    labels, sizes = [*"abab"], (6, 6, 3, 3)
    cohorts = fp.grouped(labels, {"a": fp.fixed_size(2, 2), "b": fp.fixed_size(2, 1)})
    local = steps(fp.PublicSizes(sizes, batch=2), fp.gaussian(0.8, 4.0), 1)
    given = (start(), regression(sizes), 10, 1e-3)
    whole = fp.certify(fp.dp_sgd(local, sampler=cohorts), *given, each_client=True)
    for group, size in (("a", 4), ("b", 2)):
        alone = fp.dp_sgd(local, sampler=fp.fixed_size(4, size))
        expected = fp.certify(alone, *given, each_client=True).of_clients
        own = [i for i, label in enumerate(labels) if label == group]
        for i in own:
            assert whole.of_clients[i].epsilon == pytest.approx(expected[i].epsilon, rel=1e-9)
        assert whole.of_groups[group].epsilon == max(whole.of_clients[i].epsilon for i in own)


@pytest.mark.slow
def test_streamed_records_train_the_same():
    algorithm, on_host = descent(BY_BATCH), streamed(HOSPITALS)
    holders, records = on_host.read(np.arange(8))
    seen = replace(on_host.empty(), holders=jnp.asarray(holders), holder_records=records)
    state = algorithm.init(start(), HOSPITALS)
    found, expected = (
        one_round(algorithm)(jax.random.key(1), state, each)[0].params for each in (seen, HOSPITALS)
    )
    assert_close(found, expected, 1e-6)


def test_groups_of_clients_and_of_records_at_once_are_refused():
    labels = {"a": fp.fixed_size(4, 3), "b": fp.fixed_size(4, 1)}
    algorithm = descent(BY_RATE, sampler=fp.grouped([*"abababab"], labels))
    with refused("others are drawn by other groups"):
        fp.certify(algorithm, start(), HOSPITALS, 3, 1e-3)


def test_groups_of_a_leaf_are_those_of_each_clients_rows():
    rows = [[4, 0, 2], [1, 5]]
    examples = {"x": np.zeros((6, 3)), "ward": np.array([3, 3, 7, 7, 7, 3])}
    wards = fp.Federation.from_arrays(examples, rows)
    found = fp.PublicGroups.of_leaf(wards, "ward", rate={3: 0.1, 7: 0.2})
    assert [*map(list, found.groups)] == [[7, 3, 7], [3, 3]]
    assert found == fp.PublicGroups([["7", "3", "7"], ["3", "3"]], rate={"3": 0.1, "7": 0.2})


def test_lists_that_change_later_change_no_groups():
    """What is drawn among, what is certified, and what a federation has to hold stay the same."""
    given = [[*own] for own in GROUPS]
    records = fp.PublicGroups(given, rate=RATES)
    del given[0][5:]
    assert records.public_sizes == SIZES
    assert tuple(sum(own.values()) for own in records.held) == SIZES


def test_a_client_is_not_taken_for_another():
    """Its groups would be those of somebody else."""

    def mean(key, params, shard):
        other = replace(shard, client_id=0)
        return other.private_mean(
            GRADIENTS, params, records=BY_RATE, mechanism=fp.gaussian(1.0, 4.0)
        )

    with refused("shard: its client_id was changed"):
        fp.certify(sending(mean), start(), HOSPITALS, 3, 1e-3)


def test_canaries_find_no_place_among_groups():
    traced = fp.trace_round(descent(BY_RATE), start(), HOSPITALS)
    seen = traced.seen(1, traced.kinds[0])[1]
    played = fp.attacks.with_canaries(descent(BY_RATE), 2, seen, per_client=1)
    with refused("records: canaries take the first records. places, of groups", NoPlaceError):
        fp.simulate(
            played,
            start(),
            HOSPITALS,
            HOSPITALS.examples,
            score=lambda params, example: {"loss": squared(params, example)},
            rounds=1,
        )


@pytest.mark.parametrize("groups", [GROUPS[:-1], (*GROUPS[:-1], ["y"] * 5)], ids=["few", "fewer"])
def test_groups_of_other_records_are_refused(groups):
    records = fp.PublicGroups(groups, rate=RATES)
    with refused("groups: 7; give 8" if len(groups) == 7 else r"groups\[7\]: 5, .*holds 6"):
        fp.certify(descent(records), start(), HOSPITALS, 3, 1e-3)


def test_whole_clients_are_not_hidden_by_groups_of_their_records():
    """So they cost the same with them as without, whichever group is looked at."""
    local = partial(steps, mechanism=fp.gaussian(0.8, 60.0), count=1)
    epsilons = [
        fp.certify(
            fp.dp_sgd(local(records)._replace(unit="client"), sampler=fp.everyone(8)),
            start(),
            HOSPITALS,
            2,
            1e-3,
        ).epsilon
        for records in (
            fp.PublicGroups(GROUPS, batch={"x": 2, "y": 3}),
            fp.PublicSizes(SIZES, batch=5),
        )
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-9)
