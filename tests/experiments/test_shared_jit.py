"""Programs that share an executable: they must compute what `jax.jit` computes for each, and be compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from experiments.program_numbers import numbers
from experiments.shared_jit import SharedJit
from fedpriv.devices.layout import Strategy, spmd, sum_over, use
from fedpriv.models.conv import conv_general_dilated
from fedpriv.models.dense import dot_general

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)


def flat(a, b):
    return lambda x: {"y": jnp.where(x > a, jnp.tanh(x * b), jnp.int32(3)), "a": jnp.float32(a)}


def loops(a, b):
    """Scan in while in cond, with numbers at every depth, carried and stacked."""

    def inside(carry, row):
        return carry * b + row, jnp.sum(row) - a

    def step(state):
        i, total = state
        total, rows = lax.scan(inside, total, X, reverse=True)
        return i + 1, total + rows.sum() * b

    def long(x):
        return lax.while_loop(lambda s: s[0] < jnp.int32(10 * a), step, (jnp.int32(0), x[0]))[1]

    return lambda x: lax.cond(x.sum() > a, long, lambda x: x[1] * b, x)


def switches(a, b):
    branches = [lambda x: x + a, lambda x: x * b, lambda x: x - 1]
    return lambda x: jnp.stack([lax.switch(jnp.int32(i), branches, x) for i in (0, 1, 2)])


def constants(a, b):
    """Arrays that are closed over, one of them inside a loop."""
    grid, fixed = jnp.linspace(a, b, 3), np.arange(3, dtype=np.float32)
    return lambda x: lax.scan(lambda c, row: (c + row * grid, fixed @ row), x[0], x)


@jax.custom_jvp
def doubled(x, factor):
    return 2 * x * factor


@doubled.defjvp
def _(primals, tangents):
    return doubled(*primals), 7 * tangents[0]


@jax.custom_vjp
def halved(x, factor):
    return x * factor / 2


halved.defvjp(lambda x, factor: (x * factor / 2, ()), lambda kept, dy: (7 * dy, dy.sum()))


def derivatives(a, b):
    """Functions with derivatives of their own, run and differentiated; and functions jitted inside."""

    def loss(x):
        return jnp.sum(doubled(x, a) + halved(x, b) + jax.jit(lambda y: jnp.sin(y * b))(x))

    return lambda x: (doubled(x, a), halved(x, b), jax.value_and_grad(loss)(x), jax.nn.relu(x - a))


def randomness(a, b):
    """The key is closed over and the same for all."""
    key = jax.random.key(3)
    return lambda x: a * jax.random.normal(key, x.shape) + jax.random.bernoulli(key, b / 10)


def primitives(a, b):
    """Those of this package, for one example in a loop and for a batch."""
    kernel, matrix = jnp.ones((3, 3, 1, 2)), jnp.ones((600, 500))

    def layer(x):
        image = jnp.broadcast_to(x.sum() * a, (1, 6, 6, 1))
        out = conv_general_dilated(
            image,
            kernel * b,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        product = dot_general(jnp.full(600, x[0] * b), matrix, (((0,), (0,)), ((), ())))
        return out.sum() + product.sum() * a

    def both(x):
        return lax.map(layer, x), jax.vmap(jax.grad(layer))(x)

    names = str(jax.make_jaxpr(both)(X))
    assert "_forward" in names
    assert "_dense" in names
    return both


ALL = [flat, loops, switches, constants, derivatives, randomness, primitives]
POINTS = [(0.3, 1.25), (0.7, 0.8), (0.3, 1.7)]


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_points_share_one_compilation_and_compute_what_jit_computes(make):
    shared = SharedJit()
    programs = [shared.trace(make(*point), (X,)) for point in POINTS]
    assert shared.compilations == 0
    for point, program in zip(POINTS, programs, strict=True):
        found, expected = program.compile()(X), jax.jit(make(*point))(X)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (f.dtype, f.shape, f.weak_type) == (e.dtype, e.shape, e.weak_type)
            # XLA may fold or fuse constants in another order: a few units in the last place.
            np.testing.assert_allclose(f, e, rtol=1e-6, atol=1e-6)
    assert shared.compilations == 1
    assert len({program.identity for program in programs}) == len(POINTS)


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_a_program_without_relatives_is_left_as_it_is(make):
    """To the bit, and so are several that are the same, numbers included."""
    shared = SharedJit()
    first, again = (shared.trace(make(0.3, 1.25), (X,)) for _ in range(2))
    expected = jax.jit(make(0.3, 1.25))(X)
    jax.tree.map(np.testing.assert_array_equal, first.compile()(X), expected)
    jax.tree.map(np.testing.assert_array_equal, again.compile()(X), expected)
    assert first.identity == again.identity
    assert shared.compilations == 1


def test_numbers_that_are_the_same_in_all_stay_constants():
    shared = SharedJit()
    programs = [shared.trace(lambda x, a=a: (x * a + 3.5) / 7.0, (X,)) for a in (1.5, 2.5)]
    values = numbers(jax.make_jaxpr(lambda x: (x * 1.5 + 3.5) / 7.0)(X))
    assert sorted(float(v) for v in values.values()) == [1.5, 3.5, 7.0]
    compiled = programs[0].compile()
    assert [float(x) for x in compiled.args[0]] == [1.5]


def noisy(seed):
    key = jax.random.key(seed)
    return lambda x: x * jax.random.normal(key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x + 2.0),  # another primitive
        (lambda x: x**2, lambda x: x**3),  # a parameter
        (lambda x: x[:2] * 2.0, lambda x: x[:3] * 2.0),  # a shape
        (lambda x: jnp.full(2, 3.0), lambda x: jnp.full(2, 3)),  # a type
        (lambda x: x * 2.0 - x[0], lambda x: x[0] - x * 2.0),  # the wiring
        (lambda x: (x, x * 2.0), lambda x: (x * 2.0, x)),  # the order of the results
        (lambda x: {"a": x * 2.0}, lambda x: {"b": x * 2.0}),  # their names
        (
            lambda x: lax.scan(lambda c, _: (c * 2.0, ()), x, None, 3)[0],
            lambda x: lax.scan(lambda c, _: (c * 2.0, ()), x, None, 4)[0],
        ),
        (noisy(1), noisy(2)),  # a closed-over key
        (
            lambda x: jax.pure_callback(lambda y: np.asarray(y) * 2, x, x),  # foreign code
            lambda x: jax.pure_callback(lambda y: np.asarray(y) * 3, x, x),
        ),
        (
            lambda x: jax.checkpoint(lambda y: y * 2.0)(x),  # inner programs of unknown kind
            lambda x: jax.checkpoint(lambda y: y * 3.0)(x),
        ),
        (
            # a loop until every example is done
            jax.vmap(lambda x: lax.while_loop(lambda y: y.sum() < 9.0, lambda y: y + 2.0, x)),
            jax.vmap(lambda x: lax.while_loop(lambda y: y.sum() < 8.0, lambda y: y + 2.0, x)),
        ),
    ],
)
def test_what_differs_in_more_than_numbers_is_compiled_on_its_own(one, other):
    shared = SharedJit()
    programs = [shared.trace(fn, (X,)) for fn in (one, other)]
    for fn, program in zip((one, other), programs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, program.compile()(X), jax.jit(fn)(X))
    assert shared.compilations == 2


def test_shapes_of_arguments_and_where_they_are_make_programs_of_their_own():
    shared = SharedJit()
    given = [X, X[:2], X.astype(jnp.bfloat16), jax.device_put(X, jax.devices()[1]), np.asarray(X)]
    programs = [shared.trace(lambda x: x * 2, (x,)) for x in given]
    for x, program in zip(given, programs, strict=True):
        np.testing.assert_array_equal(program.compile()(x), jax.jit(lambda x: x * 2)(x))
    assert shared.compilations == len(given)


def test_a_point_that_was_not_announced_costs_one_more_compilation():
    shared = SharedJit()
    early = [shared.trace(flat(a, 1.25), (X,)) for a in (0.3, 0.7)]
    first = early[0].compile()
    late = shared.trace(flat(0.3, 2.5), (X,))
    for program, point in ((late, (0.3, 2.5)), (early[1], (0.7, 1.25))):
        jax.tree.map(np.testing.assert_array_equal, program.compile()(X), jax.jit(flat(*point))(X))
    assert shared.compilations == 2
    jax.tree.map(np.testing.assert_array_equal, first(X), jax.jit(flat(0.3, 1.25))(X))


def test_python_numbers_and_keys_among_the_arguments_need_no_other_compilation():
    def make(a):
        return lambda x, i, key: x[i] * a + jax.random.randint(key, (), 0, 100)

    shared, key = SharedJit(), jax.random.key(0)
    programs = [shared.trace(make(a), (X, 0, key)) for a in (2.0, 3.0)]
    for a, program in zip((2.0, 3.0), programs, strict=True):
        for i in (0, 2):
            other = jax.random.key(i)
            expected = jax.jit(make(a))(X, i, other)
            np.testing.assert_array_equal(program.compile()(X, i, other), expected)
    assert shared.compilations == 1


def test_donated_arguments_are_given_up():
    shared = SharedJit()
    programs = [shared.trace(lambda x, y, a=a: x * a + y, (X, X), (0,)) for a in (2.0, 3.0)]
    for a, program in zip((2.0, 3.0), programs, strict=True):
        mine, kept = jnp.array(X), jnp.array(X)
        expected = np.asarray(X) * np.float32(a) + np.asarray(X)
        np.testing.assert_allclose(program.compile()(mine, kept), expected, rtol=1e-6)
        assert mine.is_deleted()
        assert not kept.is_deleted()


@pytest.mark.parametrize("clients", ["map", "vmap"])
def test_several_devices(clients):
    """The numbers are inside `shard_map`, in its scan's cond, and beside it."""

    def make(a, b):
        def one(row):
            return {"sum": row * a}, row.sum() + b

        return lambda x: sum_over(one, jnp.ones(len(x), bool), x * b)

    with use(Strategy(clients, devices=2)) as strategy:
        place = jax.sharding.NamedSharding(strategy.mesh, PartitionSpec())
        x = jax.device_put(X, place)
        shared = SharedJit()
        programs = [shared.trace(spmd(make(*point)), (x,), (0,)) for point in POINTS]
        for point, program in zip(POINTS, programs, strict=True):
            found = program.compile()(jax.device_put(np.asarray(X), place))
            expected = jax.jit(spmd(make(*point)))(x)
            jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, rtol=1e-6), found, expected)
            assert found[1].sharding.is_equivalent_to(expected[1].sharding, 1)
    assert shared.compilations == 1


def test_numbers_are_told_apart_by_their_bits():
    shared = SharedJit()
    programs = [shared.trace(lambda x, a=a: x * a, (X,)) for a in (0.0, -0.0, np.nan, np.nan)]
    identities = [program.identity for program in programs]
    assert len(set(identities)) == 3
    assert identities[2] == identities[3]
    assert np.all(np.signbit(programs[1].compile()(jnp.ones_like(X))))
