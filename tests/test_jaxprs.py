"""What is read off traced programs, whichever version of JAX has traced them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

from fedpriv.certification.information_flow import follow
from fedpriv.certification.key_labels import ROUNDS_KEY
from fedpriv.certification.leaks import Rules
from fedpriv.core.jaxprs import equations, programs_in, scan_operands


def test_the_operands_of_a_scan_are_told_apart():
    def body(carry, x):
        return carry + jnp.outer(x, scale), x.sum()

    scale, carry = jnp.ones(5), jnp.zeros((3, 5))
    program = jax.make_jaxpr(lambda c, x: jax.lax.scan(body, c, x))(carry, jnp.ones((4, 3)))
    (eqn,) = (e for e in program.eqns if e.primitive.name == "scan")
    parts = scan_operands(eqn, eqn.invars)
    shapes = [[v.aval.shape for v in part] for part in parts]
    assert [*parts[0], *parts[1], *parts[2]] == list(eqn.invars)
    assert shapes == [[(5,)], [(3, 5)], [(4, 3)]]
    old = SimpleNamespace(params={"num_consts": 2, "num_carry": 1})
    new = SimpleNamespace(params={"ft_in": SimpleNamespace(unpack=lambda: [(0, 0), (0,), (0, 0)])})
    assert [scan_operands(e, "abcde") for e in (old, new)] == [(["a", "b"], ["c"], ["d", "e"])] * 2


def test_an_open_program_with_constants_is_walked_through():
    closed = jax.make_jaxpr(lambda x: x + jnp.arange(3.0) * np.arange(3.0))(jnp.ones(3))
    assert closed.consts
    (program,) = programs_in({"body": [closed.jaxpr]})
    assert [e.primitive for e, _ in equations(program.jaxpr)] == [
        e.primitive for e in closed.jaxpr.eqns
    ]
    assert len(program.jaxpr.invars) == 1 + len(closed.consts)


def primitive(name, shapes):
    """An operation of JAX 0.11 and later, by its name, with the shapes of its results."""
    made = Primitive(name)
    made.multiple_results = True
    made.def_abstract_eval(lambda x, *more, axis: [x.update(shape=shape) for shape in shapes])
    return lambda *arrays: made.bind(*arrays, axis=0)


UNSTACK, STACK = primitive("unstack", [(), ()]), primitive("stack", [(2,)])


def halves(key):
    return jax.random.split(key, 2)


@pytest.mark.parametrize(
    ("at_once", "one_by_one"),
    [
        (lambda key: UNSTACK(halves(key)), lambda key: [halves(key)[0], halves(key)[1]]),
        (
            lambda key: UNSTACK(*STACK(*UNSTACK(halves(key)))),
            lambda key: list(jnp.stack([halves(key)[0], halves(key)[1]])),
        ),
    ],
)
def test_keys_are_followed_through_operations_of_newer_versions(at_once, one_by_one):
    def labels(fn):
        program = jax.make_jaxpr(fn)(jax.random.key(0))
        return follow(program.jaxpr, [frozenset({ROUNDS_KEY})], Rules([], "client", False))

    assert labels(at_once) == labels(one_by_one)


def test_the_keys_of_a_split_that_is_unstacked_are_told_apart():
    program = jax.make_jaxpr(lambda key: UNSTACK(halves(key)))(jax.random.key(0))
    first, second = follow(program.jaxpr, [frozenset({ROUNDS_KEY})], Rules([], "client", False))
    assert first != second
