"""The quickstart: a delta that nobody has to defend, and results that do not depend on it."""

import jax
import numpy as np
import pytest

import fedpriv as fp
from configs import quickstart
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.settings import changed


def test_its_delta_is_far_below_one_over_all_units():
    records = len(quickstart.load(quickstart.settings).train["label"])
    assert quickstart.settings.delta <= 1 / max(records, quickstart.settings.clients) / 100


@pytest.mark.slow
def test_accuracies_do_not_depend_on_delta():
    """A round is the same program on the same data, from the same model; the epsilon is not the same."""
    programs, data, epsilons = [], [], []
    for delta in (quickstart.settings.delta, quickstart.settings.clients**-1.1):
        given = {"delta": delta, "algorithms": ("top_k",), "seeds": 1}
        made = experiment_of(quickstart, changed(quickstart.settings, given))
        entry, key = made.entries["top_k"], jax.random.key(0)
        state = entry.algorithm.init(made.model.init(key), entry.federations[0])
        lowered = jax.jit(fp.one_round(entry.algorithm)).lower(key, state, entry.federations[0])
        programs.append(lowered.as_text())
        data.append(jax.tree.leaves((state.params, entry.federations[0])))
        epsilons.append(made.ledger.certify("top_k", 2).epsilon)
    assert programs[0] == programs[1]
    for one, other in zip(*data, strict=True):
        np.testing.assert_array_equal(one, other)
    assert epsilons[0] > epsilons[1]
