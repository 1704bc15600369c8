"""What is said of planted faults: errors, warnings and epsilons in a table's cells; no library is asked."""

import warnings

import pytest

from experiments.speed.rivals import planted
from experiments.speed.rivals.faults import shortened


def train(model=0, epsilon=1.0, warning=None, error=None):
    warnings.warn("as always", stacklevel=1)
    if warning:
        warnings.warn(warning, stacklevel=1)
    if error:
        raise error
    return epsilon, [model]


def said(**change):
    return planted.answers(train, {"fault": {"way": change}})["said"]["fault"]


def test_what_a_library_says_is_quoted():
    assert said(model=1) == "way: 1"
    assert said(model=1, epsilon=2.345) == "way: 2.35"
    assert said(model=1, warning="a | b. More") == "way: warns, `a / b`, 1"
    assert said(error=TypeError("no\nmore")) == "way: stops, `TypeError: no`"
    assert said(error=TypeError(101 * "x")).endswith("x...`")
    assert planted.answers(train, {"fault": "no such notion"}) == {
        "epsilon": 1.0,
        "said": {"fault": "no such notion"},
    }


def test_a_fault_has_to_change_something():
    with pytest.raises(RuntimeError, match="the fault changes nothing"):
        said(epsilon=2.0)


def test_places_and_advice_are_left_out():
    message = (
        "round: state.params['a']['b'] (x.py:3) depends on it (y.py:4), past every release; send"
    )
    assert shortened(message) == "round: state.params depends on it"
    assert shortened("the noise in x.py:3 of 0.40000001; fold") == "the noise of 0.400"
