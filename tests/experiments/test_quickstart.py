"""The quickstart: a delta that nobody has to defend, and results that do not depend on it."""

import numpy as np
import pytest

import experiments
from configs import quickstart


def test_its_delta_is_far_below_one_over_all_units():
    records = len(quickstart.load(quickstart.settings).train["label"])
    assert quickstart.settings.delta <= 1 / max(records, quickstart.settings.clients) / 100


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
def test_accuracies_do_not_depend_on_delta(tmp_path):
    few = {"algorithms": ["dp_fed_avg"], "rounds": 2, "every": 1, "seeds": 1}
    runs = [
        experiments.run("quickstart", folder=tmp_path / f"{d}", delta=d, progress=False, **few)
        for d in (quickstart.settings.delta, quickstart.settings.clients**-1.1)
    ]
    for name in few["algorithms"]:
        for metric in ("accuracy", "loss"):
            one, other = (run.history[name].metric(metric) for run in runs)
            np.testing.assert_array_equal(one, other)
        small, large = (run.certificates[name]["third_party"].epsilon for run in runs)
        assert small > large
