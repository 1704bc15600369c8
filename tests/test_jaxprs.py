"""What is read off traced programs, whichever version of JAX has traced them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp

from fedpriv.core.jaxprs import scan_operands


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
