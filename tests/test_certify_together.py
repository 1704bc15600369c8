"""Certificates of several runs on the same clients."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import pytest
import tiers
from rows_seen import (
    CLIENTS,
    COMMON,
    FALLING,
    GAUSSIAN,
    LAPLACE,
    PRIVATE,
    RECORDS,
    SAMPLERS,
    SIGMA,
    local,
)
from small import blank, refused, regression, squared, start

import fedpriv as fp
from fedpriv.privacy import certify_seen
from fedpriv.privacy.words import LATER_RUNS, OF_SEVERAL_RUNS, SEVERAL_RUNS
from fedpriv.proof.seen import ONE_RUN

DELTA = 1e-3
FEDERATION = regression([RECORDS] * CLIENTS)


@cache
def made(name="poisson", **changes):
    """DP-FedAvg."""
    return fp.dp_fed_avg(squared, sampler=SAMPLERS[name], **COMMON, **PRIVATE | changes)


@cache
def by_record(records="poisson", sampler="fixed_size", together=False, **changes):
    drawn = {"fixed_size": fp.fixed_size(RECORDS, 2), "poisson": fp.poisson(RECORDS, 0.5, RECORDS)}
    steps = local(drawn[records], **changes)
    return fp.dp_sgd(steps, sampler=SAMPLERS[sampler], together=together)


def bare(name="poisson"):
    return fp.fed_avg(squared, sampler=SAMPLERS[name], **COMMON)


def own_noise(name="poisson"):
    return fp.papers.ldp_fed_avg(squared, sampler=SAMPLERS[name], mechanism=GAUSSIAN, **COMMON)


def together(*runs, params=None, **options):
    return fp.certify_together(list(runs), params or start(), FEDERATION, DELTA, **options)


@cache
def traced_alone(algorithm):
    return fp.trace_round(algorithm, start(), FEDERATION)


def alone(algorithm, rounds, **options):
    return traced_alone(algorithm).certify(rounds, DELTA, **options)


SINGLE = {
    "server_secagg": made(),
    "server": by_record(),
    "third_party": fp.fed_avg(squared, sampler=SAMPLERS["fixed_size"], mechanism=FALLING, **COMMON),
}


@tiers.every("view", SINGLE, kind=lambda algorithm: algorithm.unit)
def test_a_single_run_has_its_own_certificate(view):
    found = together((SINGLE[view], 5), view=view, honest=0.9)
    assert found == alone(SINGLE[view], 5, view=view, honest=0.9)


DRAWN = dict(sorted(SAMPLERS.items(), key=lambda item: item[1].accounting.of_a_round.everyone))


@tiers.every("name", DRAWN, kind=lambda sampler: sampler.accounting.full)
def test_a_run_in_two_parts_costs_what_it_costs_as_one(name):
    """Of clients, and of records: whoever sees it, and however cohorts are drawn, each of the two."""
    clients, records = made(name), fp.dp_sgd(local(), sampler=SAMPLERS[name])
    others = [clients, records] if list(SAMPLERS).index(name) % 2 else [records, clients]
    wholes = {algorithm: traced_alone(algorithm) for algorithm in others}
    for view, algorithm in zip(("third_party", "server"), others, strict=True):
        parts = together((algorithm, 3), (algorithm, 4), view=view)
        whole = wholes[algorithm].certify(7, DELTA, view=view)
        assert math.isfinite(whole.epsilon)
        assert parts.epsilon == pytest.approx(whole.epsilon, rel=1e-9)
        assert parts.epsilons.keys() == whole.epsilons.keys()
        assert (parts.relation, parts.unit, parts.basis) == (
            whole.relation,
            whole.unit,
            "constructed",
        )


def library_epsilon(*counted):
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=5e-4)
    for event, count in counted:
        accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


def test_different_mechanisms_compose_as_the_library_composes_them():
    import dp_accounting as dp

    def poisson(rate, event):
        return dp.PoissonSampledDpEvent(rate, event)

    laplace = fp.fed_avg(squared, sampler=SAMPLERS["poisson"], mechanism=LAPLACE, **COMMON)
    sampler = fp.poisson(CLIENTS, 0.1, CLIENTS)
    rare = fp.dp_fed_avg(squared, sampler=sampler, **COMMON, **PRIVATE)
    found = together((laplace, 1), (made(), 5), (rare, 6))
    expected = library_epsilon(
        (poisson(0.5, dp.LaplaceDpEvent(SIGMA)), 1),
        (poisson(0.5, dp.GaussianDpEvent(SIGMA)), 5),
        (poisson(0.1, dp.GaussianDpEvent(SIGMA)), 6),
    )
    assert found.epsilons["PLD"] == pytest.approx(expected, rel=1e-3)
    assert found.relation == "add_or_remove"


def test_everybody_s_rounds_are_one_gaussian():
    from dp_accounting import get_epsilon_gaussian

    quiet = made("everyone", noise_multiplier=3.0)
    found = together((quiet, 1), (made("everyone"), 8))
    exact = get_epsilon_gaussian((1 / 3.0**2 + 8 / SIGMA**2) ** -0.5, DELTA)
    assert found.epsilon == pytest.approx(exact, rel=1e-6)


@pytest.mark.slow
def test_records_of_several_runs():
    """Clients that are always there; each local step draws its records by itself.

    A single step of the whole cohort is hidden by the noise of all clients.
    """
    import dp_accounting as dp

    def event(multiplier):
        return dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(multiplier))

    once = by_record(sampler="everyone", steps=1, together=True)
    more = by_record(sampler="everyone", steps=3)
    found = together((once, 20), (more, 4))
    assert (found.unit, found.relation) == ("record", "add_or_remove")
    expected = library_epsilon((event(SIGMA * math.sqrt(CLIENTS)), 20), (event(SIGMA), 4 * 3))
    assert found.epsilons["PLD"] == pytest.approx(expected, rel=1e-3)


def test_a_server_knows_who_takes_part_in_each_run():
    """One of the cohort's sums is hidden by all of the noise, one of the messages by a share of it."""
    from scipy.stats import binom, norm

    drawn = (("poisson", 2), ("fixed_size", 3))  # which only a third party has to tell apart
    for view, shares in (("server_secagg", (1, 1)), ("server", (6, 3))):
        found = together(*((made(name), rounds) for name, rounds in drawn), view=view)
        assert found.relation == "zero_out"
        delta = 0.0
        for a in range(3):
            for b in range(4):
                mu = math.sqrt(a * shares[0] + b * shares[1]) / SIGMA
                if mu:
                    gap = found.epsilon / mu
                    given = norm.cdf(mu / 2 - gap) - math.exp(found.epsilon) * norm.cdf(
                        -mu / 2 - gap
                    )
                    delta += binom(2, 0.5).pmf(a) * binom(3, 0.5).pmf(b) * given
        assert delta == pytest.approx(DELTA, rel=1e-3)


@pytest.mark.slow
def test_several_models():
    """A run with another model is traced for that."""
    algorithm = made()

    def sum_of_squares(mean, example):
        return ((example["x"] - mean) ** 2).sum()

    first = fp.dp_fed_avg(
        sum_of_squares, sampler=SAMPLERS["poisson"], **COMMON, clip_norm=1.0, noise_multiplier=3.0
    )
    found = together((first, 1, jnp.zeros(3)), (algorithm, 4))
    each = (made(noise_multiplier=3.0), 1), (algorithm, 4)
    seen = [one for made_of, rounds in each for one in _of(made_of, rounds)]
    expected = certify_seen(seen, DELTA, "third_party")
    assert found.epsilon == expected.epsilon > alone(algorithm, 4).epsilon
    assert found.basis == "constructed"


def _of(algorithm, rounds):
    return fp.trace_round(algorithm, start(), blank(algorithm)).seen(rounds)


def test_what_several_runs_assume():
    """Everything that each does, but that it is the only one; what a later one uses may come from earlier ones."""
    closing = jnp.ones(3)

    def loss(params, example):
        return squared(params, example) + 0 * closing.sum()

    arrays = fp.dp_fed_avg(loss, sampler=SAMPLERS["everyone"], **COMMON, **PRIVATE)
    runs = [(made(), 2), (arrays, 3)]
    found = together(*runs)
    each = {text for run in runs for text in alone(*run).assumptions}
    (of_array,) = (text for text in found.assumptions if "closes over" in text)
    assert "through what this view saw of earlier runs" in of_array
    for order in (runs[::-1], [runs[1]] * 2):  # it is the first
        (of_first, *_) = (t for t in together(*order).assumptions if "closes over" in t)
        assert of_first.endswith("do not depend on data")
    assert {SEVERAL_RUNS, LATER_RUNS} <= set(found.assumptions)
    assert ONE_RUN not in found.assumptions
    assert len(set(found.assumptions)) == len(found.assumptions)
    visible = {text for text in each if "takes part" in text or "unknown to the view" in text}
    (alone_of_array,) = (text for text in each if "closes over" in text)
    assert each - set(found.assumptions) - visible == {*OF_SEVERAL_RUNS, alone_of_array}
    strict = {text for text in found.assumptions if text.endswith("data") and "not depend" in text}
    assert all("first run" in text for text in strict)


@pytest.mark.slow
def test_one_declared_run_makes_all_of_it_declared():
    algorithm = made()
    word = GAUSSIAN._replace(certified_multiplier=100.0)
    told = fp.fed_avg(squared, sampler=SAMPLERS["poisson"], mechanism=word, **COMMON)
    assert together((algorithm, 1), (told, 1)).basis == "declared"


def test_a_run_without_noise_makes_it_infinite():
    """Though its cohorts are of another adjacency."""
    found = together((made(), 5), (bare("fixed_size"), 1))
    assert found.epsilon == math.inf
    assert found.assumptions == ("not private: no noise is added (runs[1])",)
    assert "noise that a round adds itself" in found.why_infinite()


def test_runs_of_no_rounds_cost_nothing():
    private = alone(made(), 5)
    assert together((bare("fixed_size"), 0), (made(), 5)).epsilon == private.epsilon
    assert together((made(), 0), (made("fixed_size"), 0)).epsilon == 0


ALL_OF_IT = (
    "sampling: .*removed: noise that clients add themselves is gone with one that is removed"
)
UNLIKE = {
    "cohorts": (
        [(made(), 1), (made("fixed_size"), 1)],
        "sampling: .*removed: another unit takes the place .*; replaced: how many units there are is hidden",
    ),
    "replacement": (
        [(made("with_replacement"), 1), (made("fixed_size"), 1)],
        "sampling: .*replaced: how often each unit is drawn is taken to be known",
    ),
    "batches": (
        [(by_record("fixed_size"), 1), (by_record("poisson"), 1)],
        "sampling: .*emptied: another unit takes the place .*replaced: how many units there are",
    ),
    "units": ([(made(), 1), (by_record(), 1)], r"unit: \['client', 'record'\]; certify one unit"),
    "noise": ([(made(), 1), (own_noise(), 1)], ALL_OF_IT),
    "noise of everyone": ([(made(), 1), (own_noise("everyone"), 1)], ALL_OF_IT),
    "noise of steps": ([(made(), 1), (by_record(unit="client"), 1)], ALL_OF_IT),
}


def rule(given):
    """The units, whether cohorts are known, and the sentence."""
    runs, said = given
    return [(one.unit, one.sampler.accounting.of_a_round.everyone) for one, _ in runs], said


@tiers.every("name", UNLIKE, kind=lambda given: str(rule(given)))
def test_what_cannot_be_composed_is_refused_in_one_line(name):
    runs, said = UNLIKE[name]
    with refused(said):
        fp.certify_together(runs, start(), FEDERATION, DELTA)


@pytest.mark.slow
def test_noise_of_one_s_own_goes_with_cohorts_of_known_size():
    """One client replaced by another: both would take part in the same rounds, and add their noise."""
    both = together((made("fixed_size"), 2), (own_noise(), 3))
    assert both.relation == "replace_one"
    zeroed = alone(own_noise(), 3).epsilon  # moved by C, where replacing one moves by 2 C
    assert both.epsilon > max(alone(made("fixed_size"), 2).epsilon, zeroed)


def test_an_algorithm_for_other_clients_is_named():
    other = fp.dp_fed_avg(squared, sampler=fp.everyone(7), **COMMON, **PRIVATE)
    with pytest.raises(ValueError, match=r"sampler: made for 7 clients, .* has 6; give") as caught:
        together((made(), 1), (other, 1))
    assert "in runs[1]" in caught.value.__notes__


def test_a_leak_in_a_later_run_is_found():
    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(lambda key, shard: state.params, key, mechanism=GAUSSIAN)
        params = jax.tree.map(lambda s: s / cohort.size, total)
        return fp.ModelState(params, state.round + 1), metrics

    leaking = fp.Algorithm(fp.start, round, SAMPLERS["poisson"])
    with pytest.raises(fp.LeakError, match="who takes part") as caught:
        together((made(), 1), (leaking, 1))
    assert "in runs[1]" in caught.value.__notes__
