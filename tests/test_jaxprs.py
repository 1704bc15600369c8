"""What is read off traced programs, whichever version of JAX has traced them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.jaxprs import (
    equations,
    evaluate,
    inlined,
    is_call,
    producers,
    programs_in,
    scan_operands,
)


def test_the_operands_of_a_scan_are_told_apart():
    def scanned(scale, carry, xs):
        return jax.lax.scan(lambda c, x: (c + jnp.outer(x, scale), x.sum()), carry, xs)

    given = jnp.ones(5), jnp.zeros((3, 5)), jnp.ones((4, 3))
    program = jax.make_jaxpr(scanned)(*given)
    (eqn,) = (e for e in program.eqns if e.primitive.name == "scan")
    parts = scan_operands(eqn, eqn.invars)
    shapes = [[v.aval.shape for v in part] for part in parts]
    assert [*parts[0], *parts[1], *parts[2]] == list(eqn.invars)
    assert shapes == [[(5,)], [(3, 5)], [(4, 3)]]
    old = SimpleNamespace(params={"num_consts": 2, "num_carry": 1})
    new = SimpleNamespace(params={"ft_in": SimpleNamespace(unpack=lambda: [(0, 0), (0,), (0, 0)])})
    assert [scan_operands(e, "abcde") for e in (old, new)] == [(["a", "b"], ["c"], ["d", "e"])] * 2


def test_an_open_program_with_constants_is_walked_through():
    whole = jax.make_jaxpr(lambda c, x: x + jnp.arange(3.0) * c)(jnp.ones(3), 1.0).jaxpr
    constant, x = whole.invars
    (program,) = programs_in({"body": [whole.replace(constvars=[constant], invars=[x])]})
    assert [e for e, _ in equations(program.jaxpr)] == whole.eqns
    assert program.jaxpr.invars == [constant, x]
    assert not program.consts


def test_a_program_is_evaluated_with_the_constants_that_its_function_closes_over():
    """Beside it or as literals, as settings of JAX have it; also in functions that are jitted in it."""
    value = np.array([3.0, 1.0, 2.0], np.float32)
    program = jax.make_jaxpr(jax.jit(lambda x: (x * value, value)))(jnp.ones(3))

    def rule(eqn, values):
        return inlined(eqn, values, rule) if is_call(eqn) else NotImplemented

    for how in (rule, lambda eqn, values: NotImplemented):
        product, itself = evaluate(program, [2 * jnp.ones(3)], how)
        np.testing.assert_array_equal(product, 2 * value)
        np.testing.assert_array_equal(itself, value)


def test_results_are_traced_back_to_equations_but_inputs_and_constants_are_not():
    value = np.arange(3.0, dtype=np.float32)
    program = jax.make_jaxpr(lambda x: (x * value, x, value))(jnp.ones(3)).jaxpr
    made_by = producers(program)
    assert [made_by(v) for v in program.outvars] == [program.eqns[0], None, None]
