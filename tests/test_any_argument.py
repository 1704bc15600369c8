"""Whatever is given for a number, a choice, a flag or a part: a result, or one line that names the argument."""

import inspect
import random
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from odd_arguments import (
    ODD,
    arguments,
    as_type,
    bare,
    everything,
    fits,
    fuzzed,
    is_refused,
    outcome,
    parts_of,
)
from valid_calls import FUNCTIONS, LEFT_OUT, METHODS, NOT_COMPARED

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Functions that write are given any path."""
    monkeypatch.chdir(tmp_path)


KNOWN = {name: everything()[name] for name in (*FUNCTIONS, *METHODS)}
CALLS = 300


def test_every_number_has_a_kind():
    """No parameter of a public function is just an `int` or a `float`."""
    numbers = {
        name: [p for p, hint in public.hints.items() if bare(hint) and p != "return"]
        for name, public in everything().items()
        if name not in LEFT_OUT
    }
    assert {name: found for name, found in numbers.items() if found} == {}


def test_every_function_with_kinds_is_tried():
    with_kinds = {name for name, public in everything().items() if public.kinds}
    assert with_kinds - set(KNOWN) - set(LEFT_OUT) == set()
    lacking = {name: set(p.kinds) - set(arguments(name)) for name, p in KNOWN.items()}
    assert {name: missing for name, missing in lacking.items() if missing} == {}


@pytest.mark.parametrize("name", KNOWN)
def test_odd_values_are_refused(name):
    kinds = KNOWN[name].kinds
    tried = [(p, v) for p, kind in kinds.items() for v in ODD if not fits(v, kind)]
    said = {f"{p}={v}": is_refused(name, p, ODD[v]) for p, v in tried}
    assert {call: wrong for call, wrong in said.items() if wrong} == {}


@pytest.mark.parametrize("name", KNOWN)
def test_traced_numbers_are_refused(name):
    """But for those that a program may compute."""
    kinds = KNOWN[name].kinds
    known_before = [p for p, kind in kinds.items() if jax.Array not in get_args(kind)]
    for parameter in known_before:
        said = []

        def tried(x, parameter=parameter, said=said):
            said.append(is_refused(name, parameter, x))

        jax.eval_shape(tried, jnp.float32(1))
        assert said == [""]


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if inspect.isfunction(KNOWN[n].function)])
def test_odd_parts_are_refused(name):
    """A number or a text in the place of a sampler, a mechanism, a function."""
    tried = [(p, value) for p in parts_of(KNOWN[name]) for value in (5, "qsgd", object())]
    tried = [(p, value) for p, value in tried if p in arguments(name)]
    said = {f"{p}={value!r:.9}": is_refused(name, p, value) for p, value in tried}
    assert {call: wrong for call, wrong in said.items() if wrong} == {}


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in NOT_COMPARED])
def test_numbers_of_any_type_are_pythons(name):
    """Down to what the functions that come back hold."""
    given = {p: arguments(name)[p] for p in KNOWN[name].kinds}
    expected = outcome(name)
    for of_whole, of_real in ((np.int64, np.float32), (jnp.int32, jnp.float32)):
        others = {p: as_type(value, of_whole, of_real) for p, value in given.items()}
        assert outcome(name, **others) == expected


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
    assert [d for d in ours if len(repr(d)) > 120] == []
    assert [d for d in ours if " at 0x" in repr(d) and not inspect.isfunction(d)] == []
