"""Options that make DP-SCAFFOLD what its authors' published code is: one seed for all clients, ranges of records."""

import functools
from functools import cache

import jax
import numpy as np
import pytest
from small import (
    assert_identical,
    assert_normal,
    certified,
    of_clients,
    one_round,
    regression,
    squared,
    start,
)

import fedpriv as fp
from configs import dp_scaffold_synthetic
from fedpriv.experiments.papers.dp_scaffold import Authors, local_steps
from fedpriv.experiments.papers.dp_scaffold_authors import (
    ONE_SEED,
    ranged_by_records,
    with_one_seed,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS = 40, 6
FEDERATION = regression([RECORDS] * CLIENTS)
NOISY = {"clip_norm": 1.0, "noise_multiplier": 60.0}


CLAIMED = functools.partial(fp.dp_sgd, claim="dp_scaffold")


@cache
def algorithm(kind, one_seed, **given):
    """Four steps of half of the records, too short to move."""
    records = fp.fixed_size(RECORDS, 3)
    local = local_steps(fp.per_example(squared), records, 4, 1e-9, **given)

    def make(local):
        return kind(local, sampler=fp.everyone(CLIENTS))

    return with_one_seed(make, local) if one_seed else make(local)


def after(one_seed, key, federation=FEDERATION):
    made = algorithm(fp.dp_scaffold, one_seed, **NOISY)
    return one_round(made)(jax.random.key(key), made.init(start(), federation), federation)[0]


@pytest.mark.slow
@pytest.mark.parametrize("one_seed", [True, False])
def test_clients_of_one_seed_draw_alike_and_no_average_helps(one_seed):
    """A control variate is the mean of K noisy gradients, 2 C sigma / (s R sqrt K) = 20; the server's is their mean.

    Gradients of length 1 at most are lost in it, but not in the difference of two clients with the same noise. Clients
    that hold the same records send the same only if they also draw the same ones.
    """
    own = 2 * 60 / 3 / 4**0.5
    states = [after(one_seed, key) for key in range(100)]
    noise = np.ravel([state.control for state in states])
    assert_normal(noise, own if one_seed else own / CLIENTS**0.5)
    same = of_clients(FEDERATION, [0] * FEDERATION.num_clients)
    apart = [np.ptp(s.controls, axis=0) for s in (states[0], after(one_seed, 0, same))]
    if one_seed:
        assert (apart[0] > 0.1).all()
        assert (apart[0] < 2.1).all()
        assert (apart[1] < 1e-4).all()
    else:
        assert (np.array(apart) > own).all()


@pytest.mark.parametrize(("kind", "clip"), [(fp.dp_scaffold, 1.0), (CLAIMED, "median")])
def test_nothing_is_certified_of_one_seed(kind, clip):
    given = NOISY | {"clip_norm": clip}
    made = algorithm(kind, True, **given)
    for view in fp.privacy.VIEWS:
        found = certified(made, 10, 1e-5, RECORDS, view=view)
        assert found.epsilon == np.inf
        assert f"not private: {ONE_SEED}" in found.assumptions
        assert "from a seed made of round and step" in str(found)
        assert found.unit == "record"
    claim, honest = made.claim(10, 1e-5), algorithm(kind, False, **given).claim(10, 1e-5)
    assert claim.epsilon == honest.epsilon
    assert not claim.sound
    assert claim.reasons[0] == ONE_SEED
    if clip == 1.0:
        assert certified(algorithm(kind, False, **given), 10, 1e-5, RECORDS).epsilon < 1


def test_without_noise_one_seed_is_not_the_reason():
    made = algorithm(fp.dp_scaffold, True)
    found = certified(made, 10, 1e-5, RECORDS)
    assert "not private: no noise is added" in found.assumptions
    assert made.claim(10, 1e-5) is None


def ranged(clients):
    """Record by record and feature by feature, as the authors' code says it; lists of lists of floats."""
    for records in clients:
        for d in range(len(records[0])):
            low, high = min(records[d]), max(records[d])
            for record in records:
                record[d] = (record[d] - low) / (high - low)
    return [[np.array(r) / np.linalg.norm(r) for r in records] for records in clients]


def test_ranges_of_records_against_loops():
    given = {"clients": 3, "records": 60, "seed": 1}
    raw = fp.datasets.synthetic(1.0, 1.0, preprocess=False, **given)
    train, test = (raw.train["image"].reshape(3, -1, 40), raw.test["image"].reshape(3, -1, 40))
    both = np.concatenate([train, test], axis=1).astype(float).tolist()
    expected = np.array(ranged(both))
    found = ranged_by_records(raw, 3)
    np.testing.assert_allclose(found.train["image"].reshape(3, 48, 40), expected[:, :48], atol=1e-5)
    np.testing.assert_allclose(found.test["image"].reshape(3, 12, 40), expected[:, 48:], atol=1e-5)
    assert_identical(found.test["client"], raw.test["client"])
    assert_identical(raw.train["image"].reshape(3, -1, 40), train)  # what was given stays
    config = dp_scaffold_synthetic.Synthetic(
        clients=3, records=60, client_rate=1.0, data_seed=1, alpha=1.0, beta=1.0,
        authors=Authors(record_ranges=True),
    )  # fmt: skip
    assert_identical(dp_scaffold_synthetic.load(config).train["image"], found.train["image"])
