"""The keys that `check_algorithm` compares are those that the noises of a round are drawn from."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.certification.information_flow import mark
from fedpriv.certification.noise_keys import noise_keys

ROOT = jax.random.key(3)


def noise(key):
    """Marks a release whose noise is drawn from `key`."""
    mark(0, jnp.float32(0), key)


def keys_of(round, *state, times=1):
    """Those of a round (key, state, rounds done) -> state, as split and fold_in make them."""
    program = jax.make_jaxpr(round)(ROOT, *state, jnp.int32(0))
    (found,) = noise_keys([program], ROOT, state, times)
    return found


def words(*keys):
    return [np.asarray(jax.random.key_data(key)).tobytes() for key in keys]


def of_time(t):
    return jax.random.fold_in(ROOT, t)


def test_each_turn_of_a_loop_and_of_a_jitted_function_has_its_key():
    @jax.jit
    def turn(carry, key):
        noise(key)
        noise(carry)
        return jax.random.fold_in(carry, 1), None

    def round(key, t):
        lax.scan(turn, key, jax.random.split(key, 3), reverse=True)

    carried = [of_time(0)]
    carried += [jax.random.fold_in(carried[-1], 1)]
    carried += [jax.random.fold_in(carried[-1], 1)]
    expected = words(*jax.random.split(of_time(0), 3), *carried)
    assert sorted(keys_of(round)) == sorted(expected)


def test_a_branch_that_is_not_taken_draws_nothing():
    def many(key):
        noise(key)
        noise(jax.random.fold_in(key, 1))

    def round(key, t):
        lax.cond(t < 1, many, noise, key)

    first, second = of_time(0), of_time(1)
    expected = words(first, jax.random.fold_in(first, 1), second)
    assert keys_of(round, times=2) == expected


def test_keys_are_computed_from_the_state_as_rounds_leave_it():
    def round(key, count, total, model, t):
        noise(jax.random.fold_in(ROOT, total))
        return count + 1, total + count, model * 2.0

    state = jnp.int32(5), jnp.int32(0), jnp.ones(3)
    expected = words(*(jax.random.fold_in(ROOT, n) for n in (0, 5, 11)))
    assert keys_of(round, *state, times=3) == expected


def test_a_round_goes_on_with_the_state_of_the_one_before():
    def opening(key, count, t):
        noise(key)
        return count + 1

    def usual(key, count, t):
        noise(jax.random.fold_in(key, count))
        return count + 1

    state = (jnp.int32(0),)
    programs = [jax.make_jaxpr(f)(ROOT, *state, jnp.int32(0)) for f in (opening, usual)]
    first, then = noise_keys(programs, ROOT, state, 2)
    assert first == words(of_time(0), of_time(1))
    assert then == words(*(jax.random.fold_in(of_time(t), 2 + t) for t in range(2)))
