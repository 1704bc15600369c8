"""The configs of correlated noise: equal epsilon by brute force over all turns, masks, matrices, texts."""

from dataclasses import replace
from itertools import combinations

import jax
import numpy as np
import pytest
from correlated_runs import gaussian_epsilon
from prepared import write_random
from test_shakespeare import LONG, write_plays

import fedpriv as fp
from configs import correlated, correlated_text
from fedpriv.core.trees import flatten
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.papers.correlated import FRESH, matrix

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = {"clients": 6, "cohort": 2, "rounds": 6, "every": 3, "seeds": 1}
SMALL |= {"bands": 3, "buffers": 1}
IN_TURN = [name for name in correlated.settings.algorithms if name != "poisson"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", train=60, test=20)
    return folder


def sensitivity(name, settings):
    """Of C, over all sets of the six rounds that are three or more apart; a client's entries may have any signs."""
    rounds = settings.rounds
    fresh = name in FRESH
    c = np.eye(rounds) if fresh else np.linalg.inv(matrix(name, settings).noising(rounds))
    gram = np.abs(c.T @ c)
    pairs = [(s, t) for s, t in combinations(range(rounds), 2) if t - s >= 3]
    sets = [*pairs, *((t,) for t in range(rounds))]
    return max(np.sqrt(gram[np.ix_(s, s)].sum()) for s in sets)


@pytest.mark.slow
def test_equal_multipliers_cost_the_same():
    """Every run is a Gaussian release of multiplier sigma / sensitivity; the tree's sensitivity is a bound."""
    settings = replace(correlated.settings, **SMALL)

    def epsilon(name, multiplier):
        noise = multiplier * sensitivity(name, settings)
        own = replace(settings, algorithms=(name,), noise_multiplier=noise)
        return correlated.ledger(own).certify(name, settings.rounds).epsilon

    fresh = gaussian_epsilon(1 / 2.0, settings.delta)
    assert epsilon("tree", 2.0 * 1.05) <= fresh <= epsilon("tree", 2.0) * (1 + 1e-3)
    for name in set(IN_TURN) - {"tree"}:
        assert epsilon(name, 2.0) == pytest.approx(fresh, rel=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize("period", [None, 3])
def test_the_mask_stays_for_its_period(data_dir, period):
    """From three rounds to six a quarter of the coordinates moves, those of the first three if for the whole run."""
    settings = replace(correlated.settings, data_dir=data_dir, p=0.25, period=period, **SMALL)
    settings = replace(settings, momentum=0.0, algorithms=("fed_smp",))
    experiment = experiment_of(correlated, settings)
    entry, model = experiment.entries["fed_smp"], experiment.model
    begin = model.init(jax.random.key(0))
    given = (entry.algorithm, begin, entry.federations[0], experiment.test)
    models = [fp.simulate(*given, score=model.score, rounds=t).params() for t in (3, 6)]
    pairs = (begin, models[0]), models
    early, late = (np.not_equal(*map(flatten, pair)) for pair in pairs)
    assert early.sum() == late.sum() == round(0.25 * late.size)
    assert np.array_equal(early, late) == (period is None)


@pytest.mark.slow
def test_the_matrix_of_least_error():
    """Of all, under the server's momentum where that is asked for."""
    made = {}
    for error, momentum in (("prefix", 0.0), ("momentum", 0.9)):
        settings = replace(correlated.settings, error=error, **SMALL)
        names = ("tree", "banded", "blt", "banded_inverse")
        candidates = [matrix(name, settings) for name in names]
        best = made[error] = matrix("least_error", settings)
        errors = {each: fp.noise_matrices.error(each, 6, 3, None, momentum) for each in candidates}
        assert errors[best] == min(errors.values())
    assert made["prefix"] != made["momentum"]
    assert "momentum=0.9" in repr(matrix("banded", settings))


def test_roles_are_counted_where_the_data_are(tmp_path):
    """And taken from the setting where they are not, which a note says."""
    speeches = [("A", f"ROLE {i}", LONG) for i in range(8) for _ in range(4)]
    write_plays(tmp_path / "there" / "shakespeare" / "plays.jsonl", speeches)
    small = replace(correlated_text.settings, algorithms=("dp_fed_avg",), **SMALL)
    there, absent = (replace(small, data_dir=tmp_path / name) for name in ("there", "absent"))
    found = [correlated_text.ledger(each) for each in (there, absent)]
    sizes = [each.entries["dp_fed_avg"].federations[0].num_clients for each in found]
    assert sizes == [8, 6]
    assert [len(each.notes) for each in found] == [0, 1]
    federation = experiment_of(correlated_text, there).entries["dp_fed_avg"].federations[0]
    assert federation.num_clients == 8
