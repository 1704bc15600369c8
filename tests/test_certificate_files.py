"""A certificate as a file: what it carries, what a check of it finds, and 200 ways to claim too much."""

import ast
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedpriv as fp
from fedpriv.experiments.accounting.verifying import differences
from fedpriv.pairs.search import epsilon
from fedpriv.pairs.written import read_pair, written
from fedpriv.privacy import (
    Allocation,
    Certificate,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_choice,
    certify_seen,
    declared,
)
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Who
from fedpriv.proof.cases import Noisy
from fedpriv.proof.pairs import SEEN, Moved, Times, Told
from fedpriv.proof.row import seen_of

TP, DELTA = "third_party", 1e-5


def of_a_person(sampling, units):
    """Of so many units, in 20 rounds of multiplier 5."""
    drawn = Drawn(sampling, Who(units))
    return seen_of(Row(TP, "person", Noisy("gaussian", 1 / 5.0), "shares", drawn, Repeated(20)))


KINDS = {
    "poisson": (TP, [declared(TP, "client", 1.4, Poisson(600, 0.05), 30)]),
    "cut": (TP, [declared(TP, "client", 1.4, Poisson(100, 0.1, 12), 10)]),
    "two": (
        TP,
        [
            declared(TP, "client", 1.4, Poisson(600, 0.05), 30),
            declared(TP, "client", 9.0, Everyone(600), 3),
        ],
    ),
    "steps": (
        TP,
        [
            declared(
                TP,
                "record",
                2.0,
                Poisson(80, 0.1),
                5,
                local_steps=4,
                participation=FixedSize(50, 10),
            )
        ],
    ),
    "fixed size": (TP, [declared(TP, "client", 3.0, FixedSize(600, 10), 20)]),
    "everyone": (TP, [declared(TP, "client", 3.0, Everyone(60), 20)]),
    "known": ("server", [declared("server", "client", 3.0, Poisson(60, 0.1), 20)]),
    "laplace": (TP, [declared(TP, "client", 9.0, Poisson(60, 0.1), 20, noise="laplace")]),
    "blocks": (TP, [declared(TP, "client", 2.0, Allocation(100, 5), 3)]),
    "persons": (TP, [of_a_person(Poisson(100, 0.02), 3)]),
    "with replacement": (
        "server",
        [declared("server", "client", 9.0, WithReplacement(60, 3, 0.05), 9)],
    ),
}


@cache
def certificate(kind: str) -> Certificate:
    if kind == "the best of three":
        return certify_seen(KINDS["poisson"][1], DELTA, TP, best_of=3)
    if kind == "the best of settings":
        settings = [KINDS["poisson"][1], [declared(TP, "client", 2.0, Poisson(600, 0.1), 9)]]
        return certify_choice(settings, DELTA, 3)
    view, seen = KINDS[kind]
    return certify_seen(seen, DELTA, view)


EVERY = [*KINDS, "the best of three", "the best of settings"]


@pytest.mark.parametrize("kind", EVERY)
def test_what_is_written_is_read_and_confirmed(kind):
    whole = certificate(kind)
    read = Certificate.from_json(whole.to_json())
    assert (read, read.compositions) == (whole, whole.compositions)
    assert fp.verify(whole.to_json()).holds
    assert differences(read, whole) == ()
    assert read.profile().epsilon(1e-7) == whole.profile().epsilon(1e-7)


def test_an_infinite_epsilon_claims_nothing():
    bare = certify_seen([declared(TP, "client", 0.0, Everyone(9), 1)], DELTA, TP)
    found = fp.verify(bare.to_json())
    assert found.holds
    assert "nothing is claimed" in str(found)


def test_an_infinite_epsilon_does_not_cover_a_unit_that_claims_more():
    said = json.loads(certificate("poisson").to_json())
    said |= {"epsilon": "inf", "epsilons": {"PLD": 0.1}}
    units(said)[0] |= {"epsilon": 0.1, "pair": written(SEEN)}
    assert fp.verify(json.dumps(said)).status == "contradicted"


def test_a_file_without_pairs_is_not_verifiable():
    said = json.loads(certificate("poisson").to_json())
    del said["compositions"], said["version"]
    found = fp.verify(json.dumps(said))
    assert (found.status, found.holds) == ("not verifiable", False)
    with pytest.raises(ValueError, match="read from a file"):
        Certificate.from_json(json.dumps(said)).profile()


class Forged(NamedTuple):
    """A change of a file that claims too much: what it does, and which check has to find it."""

    change: Callable[[dict[str, Any], np.random.Generator], None]
    found_by: str


def units(said):
    return said["compositions"]


def claim(said, value):
    """An epsilon everywhere."""
    said["epsilon"] = value
    said["epsilons"] = dict.fromkeys(said["epsilons"], value)
    for unit in units(said):
        unit["epsilon"] = value


def lower_epsilon(said, rng):
    claim(said, said["epsilon"] * rng.uniform(0.3, 1 - 1e-6))


def epsilon_of_one_place(said, rng):
    value = said["epsilon"] * rng.uniform(0.3, 0.99)
    place = rng.integers(3)
    if place == 0:
        said["epsilon"] = value
    elif place == 1:
        name = rng.choice(list(said["epsilons"]))
        said["epsilons"][name] = value
    else:
        units(said)[0]["epsilon"] = value


def lower_delta(said, rng):
    said["delta"] *= rng.uniform(1e-3, 1 - 1e-6)


def larger_pair(said, rng):
    """The pair of more than is claimed."""
    for unit in units(said):
        unit["pair"] = written(changed(read_pair(unit["pair"]), rng))


def changed(pair, rng, more=True):
    """With a larger, or smaller, move or number of draws; of the best of runs, of one of them."""
    if hasattr(pair, "mean"):
        return pair.__class__((changed(pair.of[0], rng, more), *pair.of[1:]), pair.mean)
    if hasattr(pair, "rounds"):
        cases = tuple((c, d * (1.2 if more else 0.8), n) for c, d, n in pair.cases)
        return pair.__class__(pair.noise, pair.rounds, cases)
    if more and not isinstance(pair, Moved):
        return larger_part(pair, rng)
    if isinstance(pair, Moved):
        by = 1.2 if more else 0.8
        return pair.__class__(
            pair.noise, tuple((by * d, p) for d, p in pair.law), pair.replaced, pair.subset
        )
    return smaller_part(pair, rng)


def larger_part(pair, rng):
    if isinstance(pair, Times):
        return (
            Times(pair.of, pair.n + 1)
            if rng.random() < 0.5
            else Times(changed(pair.of, rng), pair.n)
        )
    if isinstance(pair, Told):
        return Told(tuple((c, changed(p, rng) if not empty(p) else p) for c, p in pair.cases))
    return pair.__class__(tuple(changed(each, rng) for each in pair.of))


def smaller_part(pair, rng):
    if isinstance(pair, Times):
        if pair.n > 1 and rng.random() < 0.5:
            return Times(pair.of, pair.n - 1)
        return Times(changed(pair.of, rng, more=False), pair.n)
    if isinstance(pair, Told):
        return Told(
            tuple((c, p if empty(p) else changed(p, rng, more=False)) for c, p in pair.cases)
        )
    return pair.__class__(tuple(changed(each, rng, more=False) for each in pair.of))


def empty(pair):
    return getattr(pair, "of", None) == () or math.isinf(getattr(pair, "law", ((0,),))[-1][0])


def consistent_smaller_pair(said, rng):
    """A smaller pair with its own epsilon and witness: its numbers are right."""
    pair = changed(read_pair(units(said)[0]["pair"]), rng, more=False)
    found = epsilon(pair, said["delta"])
    claim(said, found.epsilon)
    units(said)[0] |= {"pair": written(pair), "witness": written(found.witness)}


def another(field, *values):
    def change(said, rng):
        said[field] = rng.choice([value for value in values if value != said[field]])

    return change


def fewer_assumptions(said, rng):
    said["assumptions"].pop(int(rng.integers(len(said["assumptions"]))))


FORGED = {
    "a lower epsilon": Forged(lower_epsilon, "numbers"),
    "a lower epsilon in one place": Forged(epsilon_of_one_place, "numbers"),
    "a lower delta": Forged(lower_delta, "numbers"),
    "a larger pair": Forged(larger_pair, "numbers"),
    "a smaller pair": Forged(consistent_smaller_pair, "origin"),
    "another unit": Forged(another("unit", "client", "record", "person"), "origin"),
    "another view": Forged(another("view", "third_party", "server", "server_secagg"), "origin"),
    "another adjacency": Forged(
        another("relation", "add_or_remove", "replace_one", "zero_out"), "origin"
    ),
    "another basis": Forged(another("basis", "declared", "constructed"), "origin"),
    "fewer assumptions": Forged(fewer_assumptions, "origin"),
}


def forge(number):
    """(of what kind, which change, the text) of one of the random changes."""
    rng = np.random.default_rng([7, number])
    kind, name = EVERY[number % len(EVERY)], list(FORGED)[number % len(FORGED)]
    said = json.loads(certificate(kind).to_json())
    FORGED[name].change(said, rng)
    return kind, name, json.dumps(said)


@pytest.mark.parametrize(
    "numbers",
    [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)],
    ids=["20", "180 more"],
)
def test_a_claim_that_is_too_good_fails_one_check(numbers):
    for number in numbers:
        kind, name, text = forge(number)
        found = fp.verify(text)
        differ = differences(Certificate.from_json(text), certificate(kind))
        by_numbers = FORGED[name].found_by == "numbers"
        assert found.status == ("contradicted" if by_numbers else "confirmed"), (number, kind, name)
        assert by_numbers or differ, (number, kind, name)


@pytest.mark.parametrize("kind", ["poisson", "everyone", "the best of three"])
def test_a_weaker_claim_is_confirmed(kind):
    for field, by in {"epsilon": 1.5, "delta": 2.0}.items():
        said = json.loads(certificate(kind).to_json())
        said[field] *= by
        assert fp.verify(json.dumps(said)).holds


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": 2}, "version: 2"),
        ({"epsilon": "little"}, "epsilon: "),
        ({"epsilon": math.nan}, "epsilon: "),
        ({"delta": 0.0}, "delta: "),
        ({"delta": 1.5}, "delta: "),
        ({"epsilons": [1.0]}, "epsilons: "),
        ({"compositions": {}}, "compositions: "),
        ({"compositions": [3]}, "compositions: "),
    ],
    ids=str,
)
def test_what_is_no_certificate(change, word):
    said = json.loads(certificate("poisson").to_json()) | change
    with pytest.raises(ValueError, match=f"^{word}[^\n]*; [^\n]*$"):
        fp.verify(json.dumps(said))
    with pytest.raises(ValueError, match=r"^certificate: "):
        Certificate.from_json("{")
    with pytest.raises(ValueError, match=r"^certificate: "):
        fp.verify("[1]")


def test_an_older_file_does_not_say_whether_a_law_is_rounded():
    drawn = {"local_steps": 2, "participation": FixedSize(5, 2)}
    made = declared("server", "client", 1.0, Poisson(9, 0.3), 3, **drawn)
    text = certify_seen([made], DELTA, "server").to_json()
    assert '"witness": {"rounded": {}}' in text
    for file in (text, text.replace('"rounded"', '"exact"')):
        assert fp.verify(file).holds


def test_the_check_imports_no_search():
    """Nor what certifies: what has to be trusted of a number is the bound."""
    seen, left = set(), ["fedpriv.pairs.numbers"]
    while left:
        name = left.pop()
        path = Path(*name.split(".")).with_suffix(".py")
        if name in seen or not path.exists():
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    assert "fedpriv.proof.verify" in seen
    assert not {name for name in seen if name.startswith("fedpriv.privacy")}
    assert "fedpriv.pairs.search" not in seen
