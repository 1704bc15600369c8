"""Rates, weights and clip scales that budgets of groups allow."""

import numpy as np
import optax
import pytest
import tiers
from small import refused, squared, start
from unequal import steps

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LABELS, MEMBERS = ["strict", "lax"] * 50, 50
HUNDRED = fp.Federation.blank({"x": np.zeros(3, np.float32), "y": np.float32(0)}, 100, 4)
BUDGETS = {"strict": 0.5, "lax": 3.0}


def averaging(sampler, noise=2.0):
    return fp.dp_fed_avg(
        squared,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=0.5,
        noise_multiplier=noise,
    )


def by_rate(rates):
    return averaging(fp.grouped(LABELS, {g: fp.poisson(MEMBERS, q) for g, q in rates.items()}))


def by_clip_scale(scales):
    return averaging(fp.grouped(LABELS, fp.fixed_order(100, 20), clip_scales=scales), 1.0)


def by_record(rates):
    groups = [["strict", "lax", "lax", "strict"]] * 100
    local = steps(fp.PublicGroups(groups, rate=rates), fp.gaussian(0.8, 3.0), 2)
    return fp.dp_sgd(local, sampler=fp.everyone(100))


def of_groups(algorithm, rounds=20, delta=1e-3, **how):
    return fp.trace_round(algorithm, start(), HUNDRED).certify(rounds, delta, **how).of_groups


NUMBERS = {
    "rates towards a server": (by_rate, {"view": "server_secagg", "honest": 0.8}),
    "clip scales": (by_clip_scale, {}),
    "records": (by_record, {}),
}


@tiers.every("name", NUMBERS)
def test_each_group_spends_its_budget_and_no_more(name):
    """Within a thousandth, by a certificate of its own."""
    make, how = NUMBERS[name]
    given = {"epsilon": BUDGETS, "rounds": 20, "delta": 1e-3}
    found = fp.calibrate_groups(make, start(), HUNDRED, **given, **how)
    assert 0 < found["strict"] < found["lax"] < 1
    for name, certificate in of_groups(make(found), **how).items():
        assert (1 - 1e-3) * BUDGETS[name] <= certificate.epsilon <= BUDGETS[name]


@pytest.mark.slow
def test_sizes_of_cohorts_come_as_close_as_whole_numbers_do():
    def make(shares):
        sizes = {g: max(1, int(MEMBERS * share)) for g, share in shares.items()}
        return averaging(
            fp.grouped(LABELS, {g: fp.fixed_size(MEMBERS, s) for g, s in sizes.items()}), 6.0
        )

    given = {"epsilon": {"strict": 1.0, "lax": 2.0}, "rounds": 20, "delta": 1e-3}
    told = {"view": "server_secagg"}
    found = fp.calibrate_groups(make, start(), HUNDRED, **given, **told, tolerance=1e-2)
    sizes = {name: int(MEMBERS * share) for name, share in found.items()}
    certificates = of_groups(make(found), **told)
    for name, size in sizes.items():
        larger = of_groups(make(found | {name: (size + 1.5) / MEMBERS}), **told)[name].epsilon
        assert certificates[name].epsilon <= given["epsilon"][name] < larger


@pytest.mark.slow
def test_numbers_that_depend_on_one_another_settle_within_the_budgets():
    """A server sees a share of the noise, which falls with the capacity of the whole cohort."""
    budgets = {"strict": 20.0, "lax": 30.0}
    given = {"epsilon": budgets, "rounds": 20, "delta": 1e-3, "view": "server", "tolerance": 0.05}
    found = fp.calibrate_groups(by_rate, start(), HUNDRED, **given)
    for name, certificate in of_groups(by_rate(found), view="server").items():
        assert 0.9 * budgets[name] <= certificate.epsilon <= budgets[name]


@pytest.mark.slow
def test_groups_are_named_as_the_budgets_name_them():
    """Labels that are numbers are looked up as numbers in what is the user's own."""
    labels, members = [1, 8] * 50, {1: 50, 8: 50}

    def make(rates):
        return averaging(
            fp.grouped(labels, {g: fp.poisson(members[g], q) for g, q in rates.items()})
        )

    given = {"rounds": 20, "delta": 1e-3, "view": "server_secagg", "tolerance": 0.05}
    found = fp.calibrate_groups(make, start(), HUNDRED, epsilon={1: 0.5, 8: 3.0}, **given)
    as_text = fp.calibrate_groups(by_rate, start(), HUNDRED, epsilon=BUDGETS, **given)
    assert found == {1: as_text["strict"], 8: as_text["lax"]}


REFUSED = {
    "a group lacks": (
        lambda q: by_rate({"lax": 0.5} | q),
        {"strict": 0.5},
        "epsilon: .*group 'lax' has none; give an epsilon for each of",
    ),
    "unknown to make": (
        lambda q: averaging(
            fp.grouped(LABELS, {g: fp.poisson({"strict": 50, "lax": 50}[g], q[g]) for g in q})
        ),
        BUDGETS | {"other": 1.0},
        r"epsilon: \['other'\]; `make` knows no such group",
    ),
    "handed on to fp.grouped": (
        by_rate,
        BUDGETS | {"other": 1.0},
        "epsilon: 'other'; nobody is in this group",
    ),
    "handed on to fp.PublicGroups": (
        by_record,
        {"strict": 0.5},
        r"epsilon: \['strict'\]; group 'lax' has none; give an epsilon",
    ),
    "names that make wrote itself": (
        lambda q: by_rate({"strict": q["strict"]}),
        BUDGETS,
        r"samplers: \['strict'\]; group 'lax' has none",
    ),
    "no noise": (
        lambda q: averaging(
            fp.grouped(LABELS, {g: fp.poisson(MEMBERS, x) for g, x in q.items()}), 0.0
        ),
        BUDGETS,
        r"epsilon\['strict'\]: 0.5; .*no noise is added",
    ),
    "too much": (
        by_rate,
        {"strict": 0.5, "lax": 400.0},
        r"epsilon\['lax'\]: 400.0; even 1, the larg",
    ),
    "too little": (
        lambda q: averaging(
            fp.grouped(LABELS, {g: fp.fixed_size(MEMBERS, max(1, round(50 * q[g]))) for g in q})
        ),
        {"strict": 1e-3, "lax": 3.0},
        r"epsilon\['strict'\]: 0.001; even the number 1e-09 costs 0.\d+; raise it, or the noise",
    ),
}


@tiers.every("name", REFUSED)
def test_budgets_that_nothing_meets_are_refused(name):
    make, budgets, said = REFUSED[name]
    with refused(said):
        fp.calibrate_groups(make, start(), HUNDRED, epsilon=budgets, rounds=20, delta=1e-3)


@pytest.mark.parametrize("wrong", ["strictt", "", "other"])
def test_a_group_that_nobody_is_in_is_named(wrong):
    """Though `make` counts its members, of which there are none."""

    def make(rates):
        drawn = {g: fp.poisson(LABELS.count(g), q) for g, q in rates.items()}
        return averaging(fp.grouped(LABELS, drawn))

    budgets = {"lax": 3.0, wrong: 0.5}
    with pytest.raises(ValueError, match="population: 0") as error:
        fp.calibrate_groups(make, start(), HUNDRED, epsilon=budgets, rounds=20, delta=1e-3)
    assert f"epsilon[{wrong!r}]" in str(error.value)


def test_an_error_of_make_that_is_of_no_group_stays_as_it_is():
    def make(rates):
        return averaging(by_rate(rates), noise=-1.0)

    with pytest.raises(ValueError, match=r"^sampler|^noise_multiplier") as error:
        fp.calibrate_groups(make, start(), HUNDRED, epsilon=BUDGETS, rounds=20, delta=1e-3)
    assert "epsilon[" not in str(error.value)


def test_noise_that_lets_nobody_be_drawn_warns():
    def make(rates):
        drawn = {g: fp.poisson(MEMBERS, q) for g, q in rates.items()}
        return averaging(fp.grouped(LABELS, drawn), noise=0.3)

    with pytest.warns(UserWarning, match="members are expected") as caught:
        found = fp.calibrate_groups(
            make, start(), HUNDRED, epsilon=BUDGETS, rounds=20, delta=1e-3, tolerance=0.1
        )
    assert MEMBERS * sum(found.values()) < 1
    assert len(caught) == 1
