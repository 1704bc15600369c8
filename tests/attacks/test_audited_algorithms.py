"""Every algorithm that ships can be audited; `test_mechanism_audit.py` has every sampling and every view."""

import math
from functools import cache

import pytest
from test_protocol import ALGORITHMS, FEDERATION, PARAMS

from fedpriv import trace_round
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.privacy import VIEWS, certify_releases

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROUNDS, DELTA = 3, 1e-3


@cache
def hidden(name):
    """View -> what it sees, of the views from which something is hidden."""
    every = trace_round(ALGORITHMS[name], PARAMS, FEDERATION).releases(ROUNDS)
    seen = {view: [r for r in every if r.view == view] for view in VIEWS}
    return {view: found for view, found in seen.items() if any(r.multiplier > 0 for r in found)}


def test_there_are_some():
    names = {name for name in ALGORITHMS if hidden(name)}
    assert names >= {"dp_fed_avg", "fed_smp top_k", "dp_scaffold", "dp_adam", "adaptive_fed_avg"}
    assert sum(len(hidden(name)) for name in names) > 30


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_certificate_holds(name):
    """A lower bound, wrong with probability 1e-6 at most, keeps below it; something is seen at 95 % confidence."""
    for view, seen in list(hidden(name).items())[:1]:
        certified = certify_releases(seen, DELTA, view).epsilon
        scores = draw_scores(seen, view, draws=4_000)
        assert lower_bounds(scores, DELTA, significance=1e-6).least <= certified
        assert lower_bounds(scores, DELTA).least > 0
        assert math.isfinite(certified)
