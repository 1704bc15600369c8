"""Who adds the noise: what each view then sees of clients, and what does not go together."""

import math

import jax.numpy as jnp
import pytest
from small import refused, start, table_of, traced

import fedpriv as fp

CLIENTS, SIZE, SIGMA = 6, 3, 1.2
FIXED, POISSON = fp.fixed_size(CLIENTS, SIZE), fp.poisson(CLIENTS, 0.5, CLIENTS)
GAUSSIAN = fp.gaussian(0.5, SIGMA)
CLIPPED = fp.ByExamples(2.0, estimator="clipped")
LOUD, SHARE = SIGMA * math.sqrt(SIZE), SIGMA / math.sqrt(SIZE)


def summing(sampler=FIXED, mechanism=GAUSSIAN, **how):
    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: state.params, key, mechanism=mechanism, **how
        )
        return fp.ModelState(total, state.round + 1), metrics

    return fp.Algorithm(lambda params, _: fp.ModelState(start(), jnp.int32(0)), round, sampler)


TABLE = {
    "shares": ({}, ("shares", SIGMA), ("own", SHARE), ("shares", SIGMA)),
    "own": ({"adder": "own"}, ("own_summed", LOUD), ("own", SIGMA), ("own_summed", LOUD)),
    "own, rounded": (
        {"adder": "own", "codec": fp.qsgd(8)},
        ("own", SIGMA),
        ("own", SIGMA),
        ("own", SIGMA),
    ),
    "rounded": ({"codec": fp.qsgd(8)}, ("server", SIGMA), ("server", 0), ("server", 0)),
    "divided": ({"weighting": CLIPPED}, ("server", SIGMA), ("server", 0), ("server", 0)),
    "own, of Poisson cohorts": (
        {"adder": "own", "sampler": POISSON},
        ("own", SIGMA),
        ("own", SIGMA),
        ("own", SIGMA),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_each_view_sees(name):
    how, *rows = TABLE[name]
    seen = table_of(traced(summing(**how)), 4)
    for view, (adder, multiplier) in zip(fp.privacy.VIEWS, rows, strict=True):
        (row,) = seen[view]
        assert row.adder == adder
        assert row.noisy.multiplier == pytest.approx(multiplier)
        assert bool(row.reason) == (multiplier == 0)


@pytest.mark.parametrize("adder", ["server", "enclave"])
def test_whoever_adds_noise_that_is_correlated(adder):
    tree = fp.noise_matrices.tree(rounds=4)
    used = fp.correlated(GAUSSIAN, tree, adder=adder)
    seen = table_of(traced(summing(fp.fixed_order(CLIENTS, SIZE), used)), 4)
    assert [seen[view][0].noisy.multiplier > 0 for view in fp.privacy.VIEWS] == [
        True,
        False,
        adder == "enclave",
    ]
    assert seen["server_secagg"][0].adder == adder


def test_a_server_hides_nothing_from_itself():
    given = {"unit": "client", "multiplier": 1.0, "sampling": FIXED.accounting, "rounds": 1}
    assert fp.privacy.declared("third_party", adder="server", **given).hidden
    for view in ("server", "server_secagg"):
        with refused("adder: 'server'; a server sees the sum before it adds the noise"):
            fp.privacy.declared(view, adder="server", **given)


def test_names_that_are_gone_say_what_to_give():
    with refused('local: True; give adder="own"'):
        traced(summing(local=True))
    with refused('enclave: True; give adder="enclave"'):
        fp.correlated(GAUSSIAN, fp.noise_matrices.tree(rounds=4), enclave=True)
    with refused("adder: 'server'; give one of 'shares', 'own'"):
        traced(summing(adder="server"))
