"""Places with a name in a program: nothing comes of them where it runs, and rules find them in loops and calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedpriv.attacks.places import Places
from fedpriv.core.jaxprs import bind, evaluate
from fedpriv.core.places import region, tap

TREE = {"a": jnp.arange(3.0), "b": (jnp.float32(2.0), None)}


def squares(x):
    """Of 6 numbers, with places within a call, and in a loop over pairs of them."""

    def turn(total, pair):
        both = tap("pair", (pair, total))
        return total + both[0].sum(), both[0] ** 2

    def whole(x):
        total, pairs = lax.scan(turn, 0.0, x.reshape(3, 2))
        return tap("total", total), pairs

    total, pairs = jax.jit(whole)(x)
    return total + region("scaled", lambda y: 2.0 * y + x[0], pairs.sum())


X = jnp.arange(1.0, 7.0)
PLAIN = 21.0 + 2 * 91.0 + 1.0


@pytest.mark.parametrize(
    "run",
    [
        squares,
        jax.jit(squares),
        lambda x: jax.vmap(squares)(jnp.stack([x, x]))[1],
        lambda x: jax.jvp(squares, (x,), (x,))[0],
        lambda x: jax.value_and_grad(squares)(x)[0],
    ],
    ids=["eager", "jit", "vmap", "jvp", "grad"],
)
def test_nothing_comes_of_them_where_a_program_runs(run):
    assert run(X) == PLAIN


def test_a_tap_is_the_identity_of_any_tree():
    found = jax.jit(lambda tree: tap("here", tree))(TREE)
    jax.tree.map(np.testing.assert_array_equal, found, TREE)
    assert tap("nothing", (None, ())) == (None, ())
    slope = jax.grad(lambda x: tap("here", {"x": x**3})["x"])(2.0)
    assert slope == 12.0


def test_rules_find_them_in_calls_and_loops():
    """Pairs are doubled, the total is left out; what a region closes over is among its first operands."""
    seen = []

    def of_region(eqn, values):
        seen.append([leaf.shape for leaf in values])
        return [out + 1000 for out in bind(eqn, values)]

    rule = Places(
        {"pair": lambda both: (2 * both[0], both[1]), "total": jnp.zeros_like},
        {"scaled": of_region},
    )
    (found,) = evaluate(jax.make_jaxpr(squares)(X), [X], rule)
    assert found == 2 * 4 * 91.0 + 1.0 + 1000
    assert seen == [[(6,), ()]]


def test_a_rule_without_places_changes_nothing():
    (found,) = evaluate(jax.make_jaxpr(squares)(X), [X], Places())
    assert found == PLAIN


def test_other_jitted_functions_are_no_regions():
    def scaled(x):
        return 2 * x

    program = jax.make_jaxpr(jax.jit(scaled))(X)
    (found,) = evaluate(program, [X], Places(regions={"scaled": lambda eqn, values: [0 * X]}))
    np.testing.assert_array_equal(found, 2 * X)
