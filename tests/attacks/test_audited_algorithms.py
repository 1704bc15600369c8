"""Every algorithm that ships, audited in every view that it hides something from."""

import math

import pytest
from test_protocol import ALGORITHMS

from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism import draw_scores
from fedpriv.privacy import VIEWS, certify

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROUNDS, DELTA = 3, 1e-3
HIDING = [
    (name, view)
    for name, algorithm in ALGORITHMS.items()
    for view in VIEWS
    if any(r.view == view and r.multiplier > 0 for r in algorithm.releases(ROUNDS))
]


def test_there_are_some():
    assert {name for name, _ in HIDING} >= {"dp_fed_avg", "fed_smp top_k", "dp_scaffold", "dp_adam"}
    assert len(HIDING) > 30


@pytest.mark.parametrize(("name", "view"), HIDING)
def test_the_certificate_holds(name, view):
    """Lower bounds, each wrong with probability 1e-6 at most, keep below it; something is seen at 95 % confidence."""
    algorithm = ALGORITHMS[name]
    certified = certify(algorithm, ROUNDS, DELTA, view=view).epsilon
    seen = [r for r in algorithm.releases(ROUNDS) if r.view == view]
    scores = draw_scores(seen, view, draws=4_000)
    assert lower_bounds(scores, DELTA, significance=1e-6).least <= certified
    assert lower_bounds(scores, DELTA).least > 0
    assert math.isfinite(certified)
