"""The laws of every algorithm of `every_algorithm.py`, in one file, so that one process has what they share."""

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from algorithm_exceptions import EXCEPTIONS, but, varied
from every_algorithm import (
    ALGORITHMS,
    CLIENTS,
    ENTRIES,
    FEDERATION,
    FIXED,
    PARAMS,
    PER_CLIENT,
    first_round,
    public_algorithms,
    that,
    traced,
)
from small import assert_close, assert_identical, one_round, squared, table_of, with_capacity

import fedpriv as fp
from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.certification.pieces import bits_of_shares
from fedpriv.devices.layout import spmd, use
from fedpriv.privacy import certify_seen
from fedpriv.proof import primitives
from fedpriv.proof.flow import propagate
from fedpriv.proof.labels import NONE, Hidden, of_kind
from fedpriv.testing.compiled import compiled

pytestmark = pytest.mark.usefixtures("quick_to_compile")

every_kind = tiers.every("name", ENTRIES)
every_function = tiers.every(
    "name", varied(ENTRIES, lambda entry: (entry.make.func, entry.work)), lambda entry: entry.work
)
STATES = varied(ENTRIES, lambda entry: (entry.keeps, entry.work, bool(entry.noise), entry.draws))
every_round = tiers.every("name", STATES, lambda entry: (entry.work, bool(entry.noise)))
every_state = tiers.every("name", STATES, lambda entry: entry.work)


def test_an_exception_has_a_reason_and_is_looked_at():
    """Whoever adds one counts it here, too."""
    assert {law: len(names) for law, names in EXCEPTIONS.items()} == {
        "server": 2,
        "weighting": 7,
        "loss": 1,
        "vanish": 4,
        "nobody": 4,
        "everybody": 2,
    }
    for names in EXCEPTIONS.values():
        assert set(names) <= set(ENTRIES)
        assert all(reason for reason in names.values())
    for name in EXCEPTIONS["weighting"]:
        entry = ENTRIES[name]
        assert not entry.shipped or "Clients count equally, because" in entry.make.func.__doc__
    without_noise = that(lambda entry: not entry.noise)
    assert without_noise == [
        *("fed_avg", "fed_sgd", "dp_scaffold qsgd", "msp_fl", "mspdq_fl", "jopeq")
    ]


def test_every_public_algorithm_has_an_entry():
    made = {entry.make.func for entry in ENTRIES.values()}
    assert public_algorithms() <= made
    assert len(public_algorithms()) >= 14


@tiers.every(
    "name",
    varied(ENTRIES, lambda entry: (entry.noise, entry.work, entry.has_own)),
    lambda entry: (entry.noise, entry.work),
)
def test_the_contract(name):
    """Where JAX promotes neither types nor ranks."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        fp.check_algorithm(ALGORITHMS[name], PARAMS, FEDERATION)


@every_function
def test_nothing_that_jax_warns_of_is_in_a_round(name):
    """No type or rank is promoted, no key used twice, nothing of a trace kept."""
    algorithm = ALGORITHMS[name]
    with (
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.debug_key_reuse(True),
        jax.check_tracer_leaks(True),
    ):
        state = algorithm.init(PARAMS, FEDERATION)
        jax.make_jaxpr(fp.one_round(algorithm))(jax.random.key(1), state, FEDERATION)


def differ(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(np.any(np.asarray(a) != b) for a, b in pairs)


@every_state
def test_a_round(name):
    """It moves the model, another key is other randomness, and messages are counted."""
    state, run = first_round(name)
    after, metrics = run(jax.random.key(1))
    other, _ = run(jax.random.key(2))
    assert differ(after.params, state.params)
    assert differ(after.params, other.params) == ENTRIES[name].draws
    assert metrics["cohort_size"].dtype == np.int32
    assert 0 <= metrics["cohort_size"] <= CLIENTS
    assert metrics["uplink"].bits() > 0
    assert all(np.isfinite(value) for value in jax.tree.leaves(metrics["diagnostics"]))


def streamed(federation):
    """What a round sees of the federation where its records are on the host: here those of all clients.

    Room that is left is filled with what would be noticed.
    """
    rows, sizes = map(np.asarray, (federation.rows, federation.size))
    parts = [rows[i, :size] for i, size in enumerate(sizes)]
    examples, public = jax.tree.map(np.asarray, (federation.examples, federation.public))
    on_host = fp.StreamedFederation.from_arrays(examples, parts, public=public)
    holders, records = jax.tree.map(jnp.asarray, on_host.read(np.arange(CLIENTS)))
    room = CLIENTS * PER_CLIENT - sum(map(len, parts))
    padded = jax.tree.map(
        lambda x: jnp.pad(x, [(0, room), *[(0, 0)] * (x.ndim - 1)], constant_values=1e4), records
    )
    return replace(on_host.empty(), holders=holders, holder_records=padded)


@every_round
def test_where_clients_are_makes_no_difference(name):
    """All side by side, on two devices, their records streamed: the round of one after the other, in memory.

    Also where they hold unequal numbers of records.
    """
    algorithm, key = ALGORITHMS[name], jax.random.key(1)
    state, run = first_round(name)
    with use(fp.Strategy("vmap", 2)):
        elsewhere = compiled(spmd(fp.one_round(algorithm)), key, state, streamed(FEDERATION))
    for federation in ENTRIES[name].federations:
        assert_close(elsewhere(key, state, streamed(federation)), run(key, federation))


@tiers.every(
    "name",
    varied(ENTRIES, lambda entry: (entry.work, bool(entry.noise), entry.has_own)),
    lambda entry: (entry.work, bool(entry.noise)),
)
def test_padding_makes_no_difference(name):
    """What is in rows that are nobody's is in no batch, and changes none."""
    state, run = first_round(name)
    federation = ENTRIES[name].federations[-1]
    padded = with_capacity(federation, PER_CLIENT + 2, poison=True)
    after = one_round(ALGORITHMS[name])(jax.random.key(1), state, padded)
    assert_close(after, run(jax.random.key(1), federation))


def of_clients(state):
    """What clients keep: whatever has one of each."""
    return [leaf for leaf in jax.tree.leaves(state) if leaf.shape[:1] == (CLIENTS,)]


@tiers.every("name", varied(but("nobody")), lambda entry: (entry.noise == "shares", entry.has_own))
def test_nobody_is_drawn(name):
    """The model moves by noise alone, where not each client brings its own; what clients keep stays as it is."""
    entry = ENTRIES[name]
    algorithm = entry.make(sampler=fp.poisson(CLIENTS, 1e-12, 4))
    state = algorithm.init(PARAMS, FEDERATION)
    after, metrics = one_round(algorithm)(jax.random.key(1), state, FEDERATION)
    assert metrics["cohort_size"] == 0
    by_others = entry.noise == "server" or (entry.noise == "shares" and entry.work == "client")
    assert differ(after.params, state.params) == by_others
    assert bool(of_clients(state)) == entry.has_own
    assert_identical(of_clients(after), of_clients(state))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", varied(but("everybody"), lambda entry: (entry.has_own, entry.work))
)
def test_everybody_is_drawn(name):
    """A cohort of all clients is one of everyone, whatever their order. What clients keep is looked at, too."""
    both = [
        ENTRIES[name].make(sampler=sampler)
        for sampler in (fp.everyone(CLIENTS), fp.fixed_size(CLIENTS, CLIENTS))
    ]
    found = []
    for algorithm in both:
        state = algorithm.init(PARAMS, FEDERATION)
        found.append(one_round(algorithm)(jax.random.key(1), state, FEDERATION))
    assert_close(*found)


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def as_type(tree, kind):
    return jax.tree.map(lambda x: x.astype(kind), tree)


def begun(name, kind):
    state = ALGORITHMS[name].init(as_type(PARAMS, kind), FEDERATION)
    return jax.tree.map(jnp.asarray, state)


@tiers.every("name", varied(ENTRIES, lambda entry: entry.keeps), lambda entry: "any")
def test_a_model_of_16_bits(name):
    """It keeps its type, and becomes what the same round makes of its numbers in 32 bits, up to rounding."""
    state = begun(name, "bfloat16")
    arguments = jax.random.key(1), state, FEDERATION
    after, _ = compiled(fp.one_round(ALGORITHMS[name]), *arguments)(*arguments)
    assert types(after) == types(state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
    assert differ(after.params, state.params)
    expected, _ = first_round(name)[1](jax.random.key(1))
    if not ENTRIES[name].rounds:  # else to the next level
        assert_close(as_type(after.params, "float32"), expected.params, 0.1)


@every_state
def test_models_of_other_types_keep_theirs(name):
    """Half precision; and single and double where JAX has 64 bits."""
    for kind, x64 in [("float16", False), ("float32", True), ("float64", True)]:
        with jax.enable_x64(x64):
            state = begun(name, kind)
            round = fp.one_round(ALGORITHMS[name])
            after, _ = jax.eval_shape(round, jax.random.key(1), state, FEDERATION)
            assert types(after) == types(state)


@every_kind
def test_what_is_hidden(name):
    """By what every view sees, and its certificate."""
    assert traced(name).basis == "constructed"
    for seen in traced(name).seen(9):
        by_server = ENTRIES[name].noise == "server"
        noisy = bool(ENTRIES[name].noise) and not (by_server and seen.view != "third_party")
        assert seen.hidden == noisy
        assert bool(seen.reason) == (not noisy)
    for view, rows in table_of(traced(name), 9).items():
        assert sum(row.repeated.rounds for row in rows) == 9
        certificate = traced(name).certify(2, 1e-3, view=view)
        assert (certificate.view, certificate.delta) == (view, 1e-3)
        hidden = all(row.noisy.multiplier > 0 for row in rows)
        assert (0 < certificate.epsilon < math.inf) == hidden


@tiers.every("name", ENTRIES, lambda entry: (entry.claim, entry.noise))
def test_claim(name):
    claim = ALGORITHMS[name].claim(9, 1e-3)
    match ENTRIES[name].claim:
        case "epsilon":
            assert isinstance(claim, fp.privacy.Claim)
            assert claim.source
            assert 0 < claim.epsilon < math.inf
        case "not proved":
            assert not claim.sound
            assert claim.reasons
        case "":
            assert claim is None


@tiers.every("name", varied(but("server")), lambda entry: entry.keeps)
def test_the_server_s_optimiser_is_post_processing(name):
    """What is released, to whom, and whether that is constructed, is as without it; the round passes the leak check."""
    server = fp.fed_opt.yogi(optax.cosine_decay_schedule(0.1, 9))
    algorithm = ENTRIES[name].make(server=server)
    with_server = fp.trace_round(algorithm, PARAMS, FEDERATION)
    assert jax.tree.leaves(with_server.before.server)
    assert with_server.seen(5) == traced(name).seen(5)
    assert with_server.basis == traced(name).basis
    assert algorithm.claim(5, 1e-3) == ALGORITHMS[name].claim(5, 1e-3)


@cache
def assert_not_refuted(seen, view):
    """A lower bound, wrong with probability 1e-6 at most, keeps below it; something is seen at 95 % confidence.

    Half of the draws choose the thresholds. Where a quarter of 4,000 did, nothing was seen of dp_adam once in a hundred
    sets of draws.
    """
    certified = certify_seen(seen, 1e-3, view).epsilon
    scores = draw_scores(seen, view, draws=8_000)
    choosing, counted = (
        scores._replace(present=scores.present[half], absent=scores.absent[half])
        for half in (slice(4_000), slice(4_000, None))
    )
    threshold = best_thresholds(choosing, 1e-3, runs=8_000)
    assert lower_bounds(counted, 1e-3, significance=1e-6, threshold=threshold).least <= certified
    assert lower_bounds(counted, 1e-3, threshold=threshold).least > 0
    assert math.isfinite(certified)


@tiers.every(
    "name",
    varied(that(lambda entry: entry.noise), lambda entry: (entry.noise, entry.of_integers)),
    lambda entry: entry.work,
)
def test_an_audit_does_not_refute_the_certificate(name):
    """Seen by the first view; `test_mechanism_audit.py` has every sampling and every view."""
    seen = traced(name).seen(3)
    view = seen[0].view
    assert_not_refuted(tuple(each for each in seen if each.view == view), view)


@pytest.mark.parametrize(("name", "made"), [("fed_sgd", "fed_avg"), ("dp_adam", "dp_sgd")])
def test_an_algorithm_is_printed_in_one_line(name, made):
    shown = repr(ALGORITHMS[name])
    sampler, unit = ALGORITHMS[name].sampler.accounting, ALGORITHMS[name].unit
    assert shown == f"Algorithm(round={made}, sampler={sampler}, unit={unit!r})"
    assert len(shown) < 100


@tiers.every("name", but("weighting"), lambda entry: entry.keeps)
def test_it_weights_clients_or_says_why_not(name):
    """With the noise that it has without weights, or a line that names them."""
    entry = ENTRIES[name]
    record = ALGORITHMS[name].unit == "record"
    weighting = fp.ByPublicSizes(FEDERATION.size) if record else fp.ByExamples(cap=4)
    refusal = None
    try:
        weighted = fp.trace_round(entry.make(weighting=weighting), PARAMS, FEDERATION)
    except ValueError as error:
        refusal = str(error)
    if refusal is not None:
        assert "weighting" in refusal
        return
    seen, expected = (
        {view: [(row.unit, row.noisy) for row in rows] for view, rows in table_of(each, 3).items()}
        for each in (weighted, traced(name))
    )
    assert seen == expected


def masked(params, example, key):
    """A loss that draws, as dropout does."""
    kept = jax.random.bernoulli(key, 0.5, example["x"].shape).astype(example["x"].dtype)
    return squared(params, example | {"x": kept * example["x"]})


@tiers.every("name", varied(but("loss")), lambda entry: entry.work)
def test_a_loss_that_draws_changes_no_certificate(name):
    drawn = fp.trace_round(ENTRIES[name].of_loss(masked), PARAMS, FEDERATION)
    assert drawn.basis == "constructed"
    assert drawn.seen(5) == traced(name).seen(5)


@every_kind
def test_its_uplink_has_room_for_shares_of_noise(name):
    for stage in traced(name).stages:
        assert stage.uplink is None or stage.uplink >= bits_of_shares(stage)


class Joined:
    """Rules without marks."""

    def transfer(self, eqn, labels):
        if eqn.primitive is primitives.CLIENTS:  # of one client
            labels[2:2] = [NONE] * len(eqn.params["given"])
            return propagate(eqn.params["program"].jaxpr, labels, self)
        return [NONE.union(*labels)] * len(eqn.outvars)


@every_kind
def test_nothing_depends_on_the_hidden_stream_but_through_a_mark(name):
    """And the marks are what keeps it so: without them the noise is in the model."""
    stage = traced(name).stages[0]  # tracing has followed it through the marks, and raised nothing
    program = stage.program.jaxpr
    inputs = [frozenset({Hidden()}), *[NONE] * (len(program.invars) - 1)]
    found = propagate(program, inputs, Joined())
    draws = bool(stage.means) or any(each.step.is_noisy for each in stage.releases)
    assert any(of_kind(Hidden, x) for x in found) == draws


@pytest.mark.slow
@pytest.mark.parametrize("name", varied(but("vanish"), tiers.kind_of))
def test_members_who_vanish(name):
    """With whole noise it costs no more than without drops; with lost noise, no less than that.

    Of entries, one of each kind, on which certificates depend. But for one step of all, for which a client's own noise
    counts where some vanish.
    """
    samplers = (FIXED, fp.dropping(FIXED, 0.3125), fp.dropping(FIXED, 0.3125, "lost"))
    runs = [fp.trace_round(ENTRIES[name].make(sampler=s), PARAMS, FEDERATION) for s in samplers]
    for view in fp.privacy.VIEWS:
        today, whole, lost = (run.certify(2, 1e-3, view=view).epsilon for run in runs)
        assert whole <= today
        assert whole <= lost * (1 + 1e-9)
        assert math.isinf(today) == math.isinf(whole) == math.isinf(lost)
