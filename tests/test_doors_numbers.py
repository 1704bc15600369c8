"""Noise, pairs, witnesses and ends of a run of somebody else's, by the doors of `fedpriv.proof` alone."""

import ast
import json
import math
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
from scipy.stats import binom
from small import refused

from fedpriv import proof
from fedpriv.pairs.search import epsilon
from fedpriv.pairs.written import read_pair, written
from fedpriv.proof.cells import Losses
from fedpriv.proof.exact import exact
from fedpriv.proof.noise import Noise, gaussian_delta
from fedpriv.proof.pairs import All, Leaf, Moved, Pair, Rest, Times, Told, leaves_of
from fedpriv.proof.tilted import log_most, squared_weights
from fedpriv.proof.verify import Grid, Witness, delta, deltas
from fedpriv.proof.views import together

DELTA = 1e-5


@dataclass(frozen=True)
class Wider(Noise):
    """Gaussian noise of another deviation."""

    deviation: float
    kind = "wider"

    def curve(self, epsilon, far):
        return gaussian_delta(epsilon, np.asarray(far) / self.deviation)

    def largest_loss(self, far, deviations):
        apart = far / self.deviation
        return apart**2 / 2 + deviations * apart


@pytest.mark.parametrize(("rate", "replaced"), [(0.1, False), (0.1, True), (1.0, False)])
def test_a_noise(rate, replaced):
    own = Times(Moved(Wider(2.0), ((1.0, rate),), replaced), 20)
    known = Times(Moved("gaussian", ((0.5, rate),), replaced), 20)
    value, witness = epsilon(own, DELTA)
    assert delta(own, value, witness) <= DELTA
    if isinstance(witness, Grid):
        assert delta(known, value, witness) == delta(own, value, witness)
    assert value == pytest.approx(epsilon(known, DELTA).epsilon, rel=2e-3)


@pytest.mark.parametrize("noise", ["cauchy", 3, Wider])
def test_what_is_no_noise(noise):
    with pytest.raises(ValueError, match=r"^noise: [^\n]*; give one of "):
        Moved(noise, ((1.0, 1.0),))


@dataclass(frozen=True)
class RandomizedResponse(Leaf):
    """One bit that is told truly with probability e^a / (1 + e^a)."""

    nats: float

    @property
    def is_symmetric(self):
        return True

    def reach(self, deviations):
        return self.nats

    def losses(self, interval, beyond):
        cells = math.ceil(self.nats / interval)
        true = 1 / (1 + math.exp(-cells * interval))
        chances = np.zeros(2 * cells + 1)
        chances[0], chances[-1] = 1 - true, true
        return (Losses(-cells, chances, 0.0),) * 2


def test_a_leaf():
    """Of n bits, j of which are false, the loss is (n - 2 j) a."""
    n, nats = 50, 0.25
    pair = Times(RandomizedResponse(nats), n)
    value, witness = epsilon(pair, DELTA)
    false = np.arange(n + 1)
    chances = binom.pmf(false, n, 1 / (1 + math.exp(nats)))
    exact = chances @ np.maximum(0.0, -np.expm1(np.minimum(value - (n - 2 * false) * nats, 0.0)))
    assert exact <= delta(pair, value, witness) <= DELTA
    assert exact == pytest.approx(DELTA, rel=0.02)
    beside = All((pair, Moved("laplace", ((0.1, 0.5),))))
    assert value < epsilon(beside, DELTA).epsilon < value + 0.1


@dataclass(frozen=True)
class Pure(Witness):
    """Basic composition: all losses are at most the sum of the largest."""

    def deltas(self, pair: Pair, epsilon):
        leaves = leaves_of(pair)
        if not all(leaf.noise == "laplace" for leaf in leaves):
            raise self.unknown()
        return np.where(epsilon >= sum(leaf.far for leaf in leaves), 0.0, 1.0)


def test_a_witness():
    pair = All((Moved("laplace", ((0.1, 1.0),)), Moved("laplace", ((0.2, 0.5),))))
    assert delta(pair, 0.31, Pure()) == 0.0
    assert delta(pair, 0.29, Pure()) == 1.0
    with pytest.raises(ValueError, match=r"^witness: Pure; no such law of this pair is known$"):
        delta(Moved("gaussian", ((0.1, 1.0),)), 1.0, Pure())
    for wrong in ([1.0, math.inf], [1.0, -0.1], [1.0, math.nan]):
        with refused("epsilon: "):
            deltas(pair, np.array(wrong), Pure())


@dataclass(frozen=True)
class Halved(Rest):
    """A run that is released or not, by a coin that is thrown once."""

    of: Pair

    def deltas(self, epsilon, witness):
        return deltas(self.of, epsilon, witness) / 2


def test_the_end_of_a_run():
    pair = Times(Moved("gaussian", ((0.5, 0.1),)), 5)
    value, witness = epsilon(pair, DELTA)
    assert delta(Halved(pair), value, witness) == delta(pair, value, witness) / 2


def test_a_file_names_what_it_cannot_be_read_with():
    said = json.loads(json.dumps(written(Times(RandomizedResponse(0.5), 2))))
    with pytest.raises(ValueError, match="give one key of moved, "):
        read_pair(said)


def test_the_bound_imports_nothing_but_the_proof_and_how_complaints_are_worded():
    seen, left = set(), {"fedpriv.proof.verify"}
    while left:
        seen.add(name := left.pop())
        for node in ast.walk(ast.parse(Path(*name.split(".")).with_suffix(".py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("fedpriv"):
                inside = Path(*node.module.split(".")).is_dir()
                names = {f"{node.module}.{each.name}" for each in node.names}
                left |= (names if inside else {node.module}) - seen
    assert seen - {"fedpriv.core.complaints"} == {
        name for name in seen if name.startswith("fedpriv.proof.")
    }


@pytest.mark.parametrize("chances", [(0.0, 1.0), (0.5, 0.4)])
def test_told_cases_happen_and_are_all(chances):
    pair = Moved("gaussian", ((1.0, 1.0),))
    with refused("cases: .*give chances above 0 that add up to 1"):
        Told(tuple((chance, pair) for chance in chances))


def test_what_is_shown_cannot_be_changed_afterwards():
    modules = [import_module(f"fedpriv.proof.{m.name}") for m in iter_modules(proof.__path__)]
    values = {v for m in modules for v in vars(m).values() if is_dataclass(v)}
    assert {v for v in values if not v.__dataclass_params__.frozen} == set()
    assert len(values) > 20


def test_releases_of_one_draw_count_together():
    assert together([(2.0, 1)], 2) == 2.0
    assert together([(2.0, 4)], 2) == together([(2.0, 1)] * 4, 2) == pytest.approx(1.0)
    assert together([(2.0, 4)], 1) == pytest.approx(0.5)
    assert together([(2.0, 1), (0.0, 1)], 2) == 0.0
    assert together([(2.0, 1), (0.0, 0)], 2) == 2.0


def test_of_too_many_values_no_exact_law_is_known(monkeypatch):
    def one_of(*far):
        return Told(tuple((0.5, Moved("gaussian", ((each, 1.0),))) for each in far))

    three = All((one_of(0.1, 0.2), one_of(0.5, 0.9), one_of(1.3, 2.1)))
    assert len(unwrap(exact)(three).values) == 8
    monkeypatch.setattr("fedpriv.proof.exact._MOST", 3)
    assert unwrap(exact)(three) is None


@pytest.mark.parametrize("tilt", [0.1, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("interval", [1e-3, 0.1, 2.0])
def test_weights_of_a_tilted_law_are_bounded_and_hardly_more(tilt, interval):
    x = np.arange(0, 200 / tilt + 1, interval)
    each = np.exp(-tilt * x) * -np.expm1(-x)
    total, largest = float(each @ each), math.exp(log_most(tilt))
    assert each.max() <= largest * (1 + 1e-12)
    assert (
        total
        <= squared_weights(tilt, interval) * (1 + 1e-12)
        <= (total + 2 * largest**2) * (1 + 1e-9)
    )
