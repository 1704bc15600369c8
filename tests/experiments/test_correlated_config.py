"""The config of correlated noise: equal epsilon by brute force over all turns, and a mask that stays where it is."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from prepared import write_random
from small import refused

import experiments
import fedpriv as fp
from configs import correlated
from experiments.accounting.cost import costs
from experiments.config.experiment import experiment_of
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = {"clients": 6, "cohort": 2, "batch_size": 5, "rounds": 6, "every": 3, "seeds": 1}
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
    fresh = name in correlated.FRESH
    c = (
        np.eye(rounds)
        if fresh
        else np.linalg.inv(correlated.matrix(name, settings).noising(rounds))
    )
    gram = np.abs(c.T @ c)
    pairs = [(s, t) for s, t in combinations(range(rounds), 2) if t - s >= 3]
    sets = [*pairs, *((t,) for t in range(rounds))]
    return max(np.sqrt(gram[np.ix_(s, s)].sum()) for s in sets)


@pytest.mark.slow
def test_a_target_gives_all_the_same_multiplier():
    """Every run is a Gaussian release of multiplier sigma / sensitivity; the tree's sensitivity is a bound."""
    settings = replace(correlated.settings, algorithms=IN_TURN, target_epsilon=3.0, **SMALL)
    noise = costs(correlated, settings).noise
    ratios = {name: noise[name] / sensitivity(name, settings) for name in IN_TURN}
    fresh = ratios["dp_fed_avg"]
    assert fresh * (1 - 1e-6) <= ratios.pop("tree") <= 1.05 * fresh
    assert [*ratios.values()] == pytest.approx([fresh] * len(ratios), rel=1e-3)


def test_the_mask_stays_where_it_is(data_dir):
    """From three rounds to six a quarter of the coordinates moves, and no others."""
    settings = replace(correlated.settings, data_dir=data_dir, p=0.25, **SMALL)
    experiment = experiment_of(correlated, settings)
    entry, model = experiment.entries["fed_smp_fixed"], experiment.model
    given = (entry.algorithm, model.init, entry.federations[0], experiment.test)
    models = [fp.simulate(*given, score=model.score, rounds=t).params() for t in (3, 6)]
    moved = np.not_equal(*map(flatten, models))
    assert moved.sum() == round(0.25 * moved.size)


def test_bands_beyond_the_run_are_refused():
    with refused("^bands: 7; give at most the 6 rounds of the run"):
        experiments.cost("correlated", **SMALL | {"bands": 7})
