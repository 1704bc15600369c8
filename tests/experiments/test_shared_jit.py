"""Programs that share an executable: they must compute what `jax.jit` computes for each, and be compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax import lax
from jax.sharding import PartitionSpec

from fedpriv.devices.layout import Strategy, spmd, sum_over, use
from fedpriv.experiments.search.shared_jit import trace
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

    def each(row):
        """Batched, a loop until all rows are done."""
        return lax.while_loop(
            lambda s: s[0].sum() < 9 * a, lambda s: (s[0] + b, s[1] * b), (row, row[0])
        )

    return lambda x: (lax.cond(x.sum() > a, long, lambda x: x[1] * b, x), jax.vmap(each)(x))


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


def computed_again(a, b):
    """For a derivative, and in a loop."""
    layer = jax.checkpoint(lambda x: jnp.sin(x * a) * b)

    def loss(x):
        return lax.scan(lambda x, _: (layer(x), ()), layer(x), length=2)[0].sum()

    return lambda x: (layer(x), jax.grad(loss)(x))


def randomness(a, b):
    """The key is closed over and the same for all."""
    key = jax.random.key(3)
    return lambda x: a * jax.random.normal(key, x.shape) + jax.random.bernoulli(key, b / 10)


def primitives(a, b):
    """Those of this package, for one example in a loop and for a batch."""
    kernel = jnp.ones((3, 3, 1, 2))

    def layer(x):
        image = jnp.broadcast_to(x.sum() * a, (1, 6, 6, 1))
        out = conv_general_dilated(
            image,
            kernel * b,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        product = dot_general(
            jnp.full(600, x[0] * b), jnp.ones((600, 500)), (((0,), (0,)), ((), ()))
        )
        return out.sum() + product.sum() * a

    def both(x):
        return lax.map(layer, x), jax.vmap(jax.grad(layer))(x)

    names = str(jax.make_jaxpr(both)(X))
    assert "_forward" in names
    assert "_dense" in names
    return both


MAKERS = (flat, loops, switches, derivatives, constants, computed_again, randomness, primitives)
POINTS = [(0.3, 1.25), (0.7, 0.8)]


def together(makers, a, b):
    made = [make(a, b) for make in makers]
    return lambda x: [each(x) for each in made]


def traced(*functions, args=(X,), donated=()):
    """Their programs, and the families they are of."""
    families = []
    return [trace(families, fn, args, donated) for fn in functions], families


PARTS = {"control flow and derivatives": MAKERS[:4], "others": MAKERS[4:]}


@tiers.every("part", PARTS)
def test_points_share_one_compilation_and_compute_what_jit_computes(part):
    makers = PARTS[part]
    programs, [family] = traced(*(together(makers, *point) for point in POINTS))
    for point, program in zip(POINTS, programs, strict=True):
        found, expected = program.compile((X,))(X), jax.jit(together(makers, *point))(X)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (f.dtype, f.shape) == (e.dtype, e.shape)
            # XLA may fold or fuse constants in another order: a few units in the last place.
            np.testing.assert_allclose(f, e, rtol=1e-6, atol=1e-6)
    assert family.compilations == 1
    assert len({program.identity for program in programs}) == len(POINTS)


def test_a_program_without_relatives_is_left_as_it_is():
    """To the bit, and so are several that are the same, numbers included."""
    (first, again), [family] = traced(loops(0.3, 1.25), loops(0.3, 1.25))
    expected = jax.jit(loops(0.3, 1.25))(X)
    jax.tree.map(np.testing.assert_array_equal, again.compile((X,))(X), expected)
    assert first.identity == again.identity
    assert (family.varying, family.compilations) == ([], 1)


def test_numbers_that_are_the_same_in_all_stay_constants():
    programs, [family] = traced(*(lambda x, a=a: (x * a + 3.5) / 7.0 for a in (1.5, 2.5)))
    assert sorted(map(float, programs[1].numbers.values())) == [2.5, 3.5, 7.0]
    assert [float(programs[1].numbers[i]) for i in family.varying] == [2.5]


def solved(a, x):
    return lax.custom_linear_solve(lambda y: y * a, x, lambda _, x: x / a, symmetric=True)


@pytest.mark.slow
def test_a_large_array_is_an_input_from_the_start():
    """Of a family of one, too: neither the program's text nor its entry in a cache hold it."""
    base = np.linspace(0, 1, 250_000, dtype=np.float32)

    def make(base):
        return lambda x: jnp.sin(x[:, :1] * base).sum(1)

    programs, [family] = traced(make(base), make(base + 1))
    for given, program in zip((base, base + 1), programs, strict=True):
        np.testing.assert_allclose(program.compile((X,))(X), jax.jit(make(given))(X), rtol=1e-4)
    assert family.compilations == 1
    alone, [family] = traced(make(base))
    assert len(family.lowered((X,)).as_text()) < 5000
    np.testing.assert_allclose(alone[0].compile((X,))(X), jax.jit(make(base))(X), rtol=1e-4)


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
            lambda x: solved(2.0, x),  # inner programs of unknown kind
            lambda x: solved(3.0, x),
        ),
    ],
)
def test_what_differs_in_more_than_numbers_is_compiled_on_its_own(one, other):
    programs, families = traced(one, other)
    assert [program.family for program in programs] == families
    assert len(families) == 2


def test_shapes_of_arguments_and_where_they_are_make_programs_of_their_own():
    families = []
    given = [X, X[:2], X.astype(jnp.bfloat16), jax.device_put(X, jax.devices()[1])]
    for x in given:
        program = trace(families, lambda x: x * 2, (x,), ())
        np.testing.assert_array_equal(program.compile((x,))(x), x * 2)
    assert len(families) == len(given)


def test_a_point_that_was_not_announced_costs_one_more_compilation():
    (one, other), families = traced(flat(0.3, 1.25), flat(0.7, 1.25))
    first = one.compile((X,))
    late = trace(families, flat(0.3, 2.5), (X,), ())
    for program, point in ((late, (0.3, 2.5)), (other, (0.7, 1.25))):
        expected = jax.jit(flat(*point))(X)
        jax.tree.map(np.testing.assert_array_equal, program.compile((X,))(X), expected)
    assert families[0].compilations == 2
    jax.tree.map(np.testing.assert_array_equal, first(X), jax.jit(flat(0.3, 1.25))(X))


def test_arguments_may_be_python_numbers_and_keys():
    def make(a):
        return lambda x, i, key: x[i] * a + jax.random.randint(key, (3,), 0, 100)

    args = X, 0, jax.random.key(0)
    programs, [family] = traced(make(2.0), make(3.0), args=args)
    for a, program in zip((2.0, 3.0), programs, strict=True):
        compiled = program.compile(args)
        for i in (0, 2):
            key = jax.random.key(i)
            np.testing.assert_allclose(compiled(X, i, key), make(a)(X, i, key), rtol=1e-6)
    assert family.compilations == 1


def test_donated_arguments_are_given_up():
    programs, _ = traced(*(lambda x, y, a=a: x * a + y for a in (2, 3)), args=(X, X), donated=(0,))
    mine, kept = jnp.array(X), jnp.array(X)
    found = programs[1].compile((X, X))(mine, kept)
    np.testing.assert_allclose(found, 3 * np.asarray(X) + np.asarray(X), rtol=1e-6)
    assert mine.is_deleted()
    assert not kept.is_deleted()


@tiers.every("clients", ["map", "vmap"])
def test_several_devices(clients):
    """The numbers are inside `shard_map`, in its scan's cond, and beside it."""

    def make(a, b):
        def one(row):
            return {"sum": row * a}, row.sum() + b

        return spmd(lambda x: sum_over(one, jnp.ones(len(x), bool), x * b))

    with use(Strategy(clients, devices=2)) as strategy:
        x = jax.device_put(X, jax.sharding.NamedSharding(strategy.mesh, PartitionSpec()))
        programs, [family] = traced(*(make(*point) for point in POINTS), args=(x,))
        for point, program in zip(POINTS, programs, strict=True):
            found, expected = program.compile((x,))(x), jax.jit(make(*point))(x)
            jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, rtol=1e-6), found, expected)
            assert found[1].sharding.is_equivalent_to(expected[1].sharding, 1)
    assert family.compilations == 1


def test_numbers_are_told_apart_by_their_bits():
    values = (0.0, -0.0, np.nan, np.nan)
    programs, _ = traced(*(lambda x, a=a: x * a for a in values))
    identities = [program.identity for program in programs]
    assert len(set(identities)) == 3
    assert identities[2] == identities[3]
    assert np.all(np.signbit(programs[1].compile((X,))(jnp.ones_like(X))))
