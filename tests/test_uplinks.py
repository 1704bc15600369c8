"""A certificate counts on shares of noise only where the reported uplink has room for them."""

import math

import jax
import jax.numpy as jnp
import pytest
import tiers
from rows_seen import CLIENTS, GAUSSIAN, RECORDS
from small import refused, regression, squared, start

import fedpriv as fp
from fedpriv.compression.codecs import UNCODED, Coded
from fedpriv.core.trees import dimension

NARROW = fp.types.Codec(
    lambda key, message: Coded(message, {}), lambda d: fp.types.Wire(d, 4), lossy=False
)
SAMPLER, PARAMS = fp.fixed_size(CLIENTS, 3), start(7)
D = dimension(PARAMS)
FEDERATION = regression([RECORDS] * CLIENTS, features=7)


def sending(uplink=lambda t, wire: wire, sums=1, sampler=SAMPLER, mechanism=GAUSSIAN, **options):
    """Sums of zeros; it reports `uplink(round, that of the last call)`."""

    def round(key, state, cohort):
        params = state.params
        for _ in range(sums):
            total, metrics, _ = cohort.sum(
                lambda key, shard: jax.tree.map(jnp.zeros_like, state.params),
                key,
                mechanism=mechanism,
                **options,
            )
            params = jax.tree.map(jnp.add, params, total)
        metrics |= {"uplink": uplink(state.round, metrics["uplink"])}
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


def certificates(algorithm):
    """By view."""
    run = fp.trace_round(algorithm, PARAMS, FEDERATION)
    return {view: run.certify(5, 1e-3, view=view) for view in fp.privacy.VIEWS}


def assumed(certificate, said):
    return any(said in text for text in certificate.assumptions)


def in_arrays(codec):
    return codec._replace(wire=lambda d: fp.types.Wire(*map(jnp.int32, codec.wire(d))))


def of_the_first(of_last):
    """Two sums, and the metrics of the first, or of the last."""

    def round(key, state, cohort):
        def client(key, shard):
            return jax.tree.map(jnp.zeros_like, state.params)

        total, first, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        more, last, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        params = jax.tree.map(lambda *leaves: sum(leaves), state.params, total, more)
        return fp.ModelState(params, state.round + 1), last if of_last else first

    return fp.Algorithm(fp.start, round, SAMPLER)


ROOM = {
    "in arrays": sending(codec=in_arrays(UNCODED), sums=2),
    "as the sum gives it": sending(),
    "in other units": sending(lambda t, wire: fp.types.Wire(1, 32 * D)),
    "as overhead": sending(lambda t, wire: fp.types.Wire(0, 32, 32 * D)),
    "more": sending(lambda t, wire: wire._replace(overhead=wire.overhead + 7)),
}
NONE = {
    "a bit less": sending(lambda t, wire: fp.types.Wire(D - 1, 32, 31)),
    "a bit each": sending(lambda t, wire: fp.types.Wire(D, bits_per_value=1)),
    "nothing": sending(lambda t, wire: fp.types.Wire(0)),
    "one sum of three": sending(lambda t, wire: fp.types.Wire(D), sums=3),
    "a codec that says it loses nothing": sending(codec=NARROW),
}


@tiers.every("name", ROOM)
def test_shares_that_have_room_count(name):
    for view, certificate in certificates(ROOM[name]).items():
        assert math.isfinite(certificate.epsilon), view
        assert not assumed(certificate, "server adds")
        assert not assumed(certificate, "uplink")


@tiers.every("name", NONE)
def test_without_room_for_shares_the_server_adds_the_noise(name):
    """As with a lossy codec, whose epsilons it has."""
    found = certificates(NONE[name])
    assert math.isfinite(found["third_party"].epsilon)
    assert assumed(found["third_party"], "the server adds all of the noise")
    for view in ("server", "server_secagg"):
        assert math.isinf(found[view].epsilon)
        assert "no room for a share" in str(found[view])
    if "sum" not in name:
        lossy = certificates(sending(codec=fp.qsgd(8)))
        assert found["third_party"].epsilon == lossy["third_party"].epsilon


@pytest.mark.slow
def test_integers_too_have_to_have_room():
    """The server then adds the noise of all shares to the sum, as a third party sees it."""
    mechanism = fp.skellam(1.0, 2.0, bits=12)
    narrow = certificates(
        sending(lambda t, wire: wire._replace(bits_per_value=11), mechanism=mechanism)
    )
    wide = certificates(sending(mechanism=mechanism))
    assert narrow["third_party"].epsilon == wide["third_party"].epsilon
    for view in ("server", "server_secagg"):
        assert math.isinf(narrow[view].epsilon)
        assert math.isfinite(wide[view].epsilon)


def test_metrics_of_a_call_before_the_last_are_named():
    assert math.isfinite(certificates(of_the_first(True))["server_secagg"].epsilon)
    said = str(certificates(of_the_first(False))["server_secagg"])
    assert "return the metrics of the last call" in said
    assert "last call" not in str(certificates(NONE["a bit each"])["server_secagg"])


@pytest.mark.slow
def test_the_size_of_a_message_may_be_in_arrays():
    found, sums = [], 2
    for codec in (NARROW, in_arrays(NARROW)):
        algorithm = sending(codec=codec, sums=sums)
        traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
        run = jax.jit(fp.one_round(algorithm))
        _, metrics = run(jax.random.key(0), fp.start(PARAMS, FEDERATION), FEDERATION)
        found.append((traced.stages[0].uplink, jax.tree.map(int, metrics["uplink"]).bits()))
    assert found == [(4 * D * sums, 4 * D * sums)] * 2


def test_a_size_that_is_computed_in_the_round_is_refused():
    def round(key, state, cohort):
        codec = NARROW._replace(wire=lambda d: fp.types.Wire(d, state.round + 4))
        return sending(codec=codec).round(key, state, cohort)

    with refused("codec: the size of its messages"):
        certificates(fp.Algorithm(fp.start, round, SAMPLER))


def test_an_uplink_that_is_computed_anew_is_an_assumption():
    algorithm = sending(lambda t, wire: fp.types.Wire(jnp.where(t > 3, D, 1)))
    for certificate in certificates(algorithm).values():
        assert assumed(certificate, f"a client's share of the noise, {32 * D} bits")


def test_each_sampler_of_an_opening_is_looked_at():
    opening = fp.Opening(fp.everyone(CLIENTS), rounds=2, then=SAMPLER)
    narrow = certificates(sending(lambda t, wire: fp.types.Wire(1), sampler=opening))
    assert math.isinf(narrow["server_secagg"].epsilon)


@pytest.mark.slow
def test_noise_of_one_s_own_is_then_not_counted_together():
    """What a client adds alone hides it, in however few bits it travels; what others add does not reach it."""
    alone, together = (
        certificates(sending(uplink, adder="own"))
        for uplink in (lambda t, wire: fp.types.Wire(1), lambda t, wire: wire)
    )
    assert alone["server"].epsilon == together["server"].epsilon
    assert alone["server_secagg"].epsilon > together["server_secagg"].epsilon


@pytest.mark.slow
def test_nor_is_that_of_a_step_of_the_whole_cohort():
    def found(uplink):
        def round(key, state, cohort):
            drawn = fp.fixed_size(RECORDS, 2)
            mean, metrics = cohort.private_mean(
                fp.per_example(squared), state.params, records=drawn, mechanism=GAUSSIAN
            )
            params = jax.tree.map(jnp.subtract, state.params, mean)
            metrics |= {"uplink": uplink(metrics["uplink"])}
            return fp.ModelState(params, state.round + 1), metrics

        algorithm = fp.Algorithm(fp.start, round, SAMPLER, unit="record")
        return certificates(algorithm)["server_secagg"]

    narrow, wide = found(lambda wire: fp.types.Wire(D, 1)), found(lambda wire: wire)
    assert narrow.epsilon > wide.epsilon
    assert assumed(narrow, "noise of others is not counted, as the uplink")
    assert not assumed(wide, "is not counted")


def test_shares_that_members_take_along_have_to_travel():
    lost, whole = (fp.dropping(SAMPLER, 0.1, noise=noise) for noise in ("lost", "whole"))
    with refused("uplink: the server adds the noise, .* but members who vanish"):
        certificates(sending(lambda t, wire: fp.types.Wire(1), sampler=lost))
    narrow = certificates(sending(lambda t, wire: fp.types.Wire(1), sampler=whole))
    assert math.isfinite(narrow["third_party"].epsilon)
    own = certificates(sending(lambda t, wire: fp.types.Wire(1), sampler=lost, adder="own"))
    lossy = certificates(sending(sampler=lost, adder="own", codec=fp.qsgd(8)))
    assert own["server"].epsilon == lossy["server"].epsilon
    assert own["server_secagg"].epsilon == lossy["server_secagg"].epsilon
    # Coded messages tell who takes part.
    assert (own["third_party"].relation, lossy["third_party"].relation) == (
        "replace_one",
        "zero_out",
    )


def test_no_noise_wants_no_room():
    bare = sending(lambda t, wire: fp.types.Wire(1), mechanism=fp.unprotected())
    assert not assumed(certificates(bare)["third_party"], "uplink")


def test_two_messages_are_as_long_as_both():
    for one, other in (
        (fp.types.Wire(3), fp.types.Wire(4, overhead=2)),
        (fp.types.Wire(3, 8), fp.types.Wire(5, 8, 1)),
        (fp.types.Wire(3, 7, 2), fp.types.Wire(5, 32)),
        (fp.types.Wire(2**31 - 1), fp.types.Wire(2**30, 31)),
        (fp.types.Wire(0), fp.types.Wire(0, 1)),
    ):
        both = one.beside(other)
        assert both.bits() == one.bits() + other.bits()
        assert both.beside(fp.types.Wire(2)).bits() == both.bits() + 64
