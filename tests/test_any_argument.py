"""Whatever is given for a number, a choice, a flag or a part: a result, or one line that names the argument."""

import functools
import inspect
import itertools
import random
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import pytest
import tiers
from odd_arguments import (
    ODD,
    arguments,
    as_type,
    fits,
    fuzzed,
    is_refused,
    outcome,
    parts_of,
)
from public_functions import bare, everything
from valid_calls import KNOWN, LEFT_OUT, NOT_COMPARED, NOT_RUN, is_left_out, made_of

from fedpriv.core.arguments import checked

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Functions that write are given any path."""
    monkeypatch.chdir(tmp_path)


KINDS = {repr(kind): kind for public in KNOWN.values() for kind in public.kinds.values()}
KEPT = ("None", "function", "old key")  # no numbers
CALLS = 300


@functools.cache
def _takes(kind):
    """The odd values that are of the kind."""
    return frozenset(label for label in ODD if fits(label, kind))


@functools.cache
def telling(kind):
    """Few odd values that are not of the kind, among them one of every kind that has any."""
    left = [others for other in KINDS.values() if (others := _takes(other) - _takes(kind))]
    found = []
    while left:
        found.append(max(ODD, key=lambda label: sum(label in others for others in left)))
        left = [others for others in left if found[-1] not in others]
    return found


def traced_is_refused(name, parameter):
    """Nothing, or what is wrong with the complaint."""
    said = []
    jax.eval_shape(lambda x: said.append(is_refused(name, parameter, x)), jnp.float32(1))
    return said[0]


def test_every_number_has_a_kind():
    """No parameter of a public function is just an `int` or a `float`."""
    numbers = {
        name: [p for p, hint in public.hints.items() if bare(hint) and p != "return"]
        for name, public in everything().items()
        if not is_left_out(name, public)
    }
    assert {name: found for name, found in numbers.items() if found} == {}


def test_what_is_left_out_is_there():
    """Whoever leaves out more, by name or by rule, counts it here, too."""
    assert set(LEFT_OUT) | set(NOT_COMPARED) <= set(everything())
    asked = {n: f for n, f in everything().items() if f.kinds}
    by_rule = [n for n, f in asked.items() if is_left_out(n, f) and n not in LEFT_OUT]
    lists = LEFT_OUT, NOT_RUN, NOT_COMPARED, by_rule
    assert [len(one) for one in lists] == [32, 4, 7, 24], by_rule


def test_each_kind():
    """What is of no such kind is refused; of the others, numbers come back as Python's."""
    for kind, (label, value) in itertools.product(KINDS.values(), ODD.items()):
        if fits(label, kind):
            taken = checked("x", value, kind)
            each = taken if isinstance(taken, tuple) else (taken,)
            assert {type(one) for one in each} <= {bool, int, float} or label in KEPT
        else:
            with pytest.raises(ValueError, match=r"\Ax(\[\d\])?: [^\n]*; give [^\n]+\Z"):
                checked("x", value, kind)


def complaints(name, turn):
    """What is wrong with the complaints of one function: call -> what is said."""
    kinds = KNOWN[name].kinds
    tried = [
        (p, label)
        for p, kind in kinds.items()
        for label in {*telling(kind), list(ODD)[7 * next(turn) % len(ODD)]}
        if not fits(label, kind)
    ]
    said = {f"{p}={label}": is_refused(name, p, ODD[label]) for p, label in tried}
    known_before = [p for p, kind in kinds.items() if jax.Array not in get_args(kind)]
    said |= {f"{p} traced": traced_is_refused(name, p) for p in known_before}
    return {call: wrong for call, wrong in said.items() if wrong}


def test_every_argument_is_checked():
    """By its own kind: refused are the values that tell it from all others, one more in its turn, and a traced one."""
    found = {name: complaints(name, itertools.count(i)) for i, name in enumerate(KNOWN)}
    assert len(found) > 200
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("value", [5, "qsgd", object()], ids=["number", "text", "object"])
def test_odd_parts_are_refused(value):
    """In the place of a sampler, a mechanism, a function."""
    functions = [n for n, f in KNOWN.items() if inspect.isfunction(f.function) and not f.owner]
    parts = [(n, p) for n in functions for p in parts_of(KNOWN[n]) if p in arguments(n)]
    said = {f"{name}: {p}": is_refused(name, p, value) for name, p in parts}
    assert {call: wrong for call, wrong in said.items() if wrong} == {}


def what_it_gives(name):
    """The class of part that is made; functions that compute are of one kind, and attacks of one."""
    function = KNOWN[name].function
    if name.startswith("attacks."):
        return "attacks"
    if inspect.isclass(function):
        return function
    return type(made_of(get_type_hints(function).get("return")))


COMPARED = {name: known for name, known in KNOWN.items() if name not in NOT_COMPARED}
OF_EACH_KIND = tiers.one_of_each(COMPARED, lambda known: frozenset(map(repr, known.kinds.values())))
"""One function for each set of kinds that its arguments have."""


def compared():
    """And one for each kind of what is given."""
    gives = tiers.one_of_each({name: name for name in COMPARED}, what_it_gives)
    return [name for name in COMPARED if name in OF_EACH_KIND or name in gives]


@tiers.every("name", compared(), kind=what_it_gives)
def test_a_valid_call_gives_something_and_numbers_of_any_type_are_pythons(name):
    """Down to what the functions that come back hold."""
    given = {p: arguments(name)[p] for p in KNOWN[name].kinds}
    others = {p: as_type(value, jnp.int32, jnp.float32) for p, value in given.items()}
    found = outcome(name)
    assert not str(found).startswith("refused")
    assert outcome(name, **others) == found


def test_random_calls():
    """More by `python -m experiments.odd_calls`."""
    rng = random.Random(0)
    wrong = [said for said in (fuzzed(rng) for _ in range(CALLS)) if said]
    assert wrong == []


def test_a_signature_is_read_in_a_line_for_each_argument():
    """As `help` shows it: no default but a function itself is printed by where it lies in memory."""
    named = [p.function for name, p in everything().items() if name.count(".") < 2]
    defaults = [q.default for f in named for q in inspect.signature(f).parameters.values()]
    ours = [d for d in defaults if not type(d).__module__.startswith("flax")]
    assert len(ours) > 500
    assert [d for d in ours if len(repr(d)) > 140] == []
    assert [d for d in ours if " at 0x" in repr(d) and not inspect.isfunction(d)] == []
