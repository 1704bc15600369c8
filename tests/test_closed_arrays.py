"""Large arrays that a program closes over are its arguments, wherever they stand in it, and change no result."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from small import classification, filled

import fedpriv as fp
from fedpriv.core.jaxprs import equations
from fedpriv.devices import closed_arrays
from fedpriv.devices.closed_arrays import Jitted, traced
from fedpriv.devices.layout import Strategy, spmd, use

X = np.linspace(-1, 1, 8 * 64, dtype=np.float32).reshape(8, 64)
W = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
ON_DEVICE = jnp.asarray(np.random.default_rng(1).standard_normal((64, 64)), jnp.float32) / 8

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    monkeypatch.setattr(closed_arrays, "LARGE", W.nbytes)


def plain(x):
    return x @ W @ ON_DEVICE @ W


def jitted(x):
    """An inner program holds constants of its own."""
    return jax.jit(lambda x: jnp.tanh(x @ ON_DEVICE) @ W)(x)


def control_flow(x):
    def step(x, i):
        x = lax.cond(x.sum() > 0, lambda x: jitted(x), lambda x: x @ W, x)
        return lax.fori_loop(0, i % 2 + 1, lambda _, x: jnp.sin(jitted(x)), x), x.sum()

    return lax.scan(step, x, jnp.arange(3))


def gradient(x):
    @jax.checkpoint
    def layer(x):
        return jnp.sin(jitted(x) @ W)

    return jax.grad(lambda x: lax.scan(lambda x, _: (layer(x), ()), x, length=3)[0].sum())(x)


def side_by_side(x):
    return jax.vmap(lambda row: jitted(row[None])[0] - row @ W)(x)


def given_back(x):
    return x.sum(), ON_DEVICE, W


@pytest.mark.parametrize(
    "fn",
    [plain, jitted, control_flow, gradient, side_by_side, given_back],
    ids=lambda f: f.__name__,
)
def test_results_are_those_of_a_program_that_holds_them(fn):
    program = traced(fn, (X,))
    assert len(program.arrays) == 2  # each once, wherever it stands
    compiled, expected = program.compile(), jax.jit(fn)(X)
    jax.tree.map(np.testing.assert_array_equal, compiled(X), expected)
    assert jax.tree.structure(compiled(X)) == jax.tree.structure(expected)
    about = compiled.memory_analysis()
    assert about.argument_size_in_bytes <= X.nbytes + 2 * W.nbytes + 64
    assert held(program.stage.jaxpr) == []


def held(program):
    """The large arrays that stand in a program or in one that it calls."""
    inner = [p for eqn, _ in equations(program.jaxpr) for p in jax.tree.leaves(eqn.params)]
    programs = [program, *(p for p in inner if hasattr(p, "consts"))]
    atoms = [a for eqn, _ in equations(program.jaxpr) for a in eqn.invars]
    values = [c for p in programs for c in p.consts] + [getattr(a, "val", 0) for a in atoms]
    return [value for value in values if np.size(value) * 4 >= W.nbytes]


def test_the_programs_text_does_not_grow_with_them(monkeypatch):
    monkeypatch.setattr(closed_arrays, "LARGE", 10**6)
    base = np.ones((600, 600), np.float32)
    compiled = traced(lambda x: x @ base, (jnp.ones((2, 600)),)).compile()
    assert len(compiled.executable.as_text()) < 10_000
    assert compiled.memory_analysis().argument_size_in_bytes >= base.nbytes


def test_what_is_computed_again_stays_so():
    """Not kept for the gradient instead, which a program without the mark of it would do."""
    (again,) = [
        eqn
        for eqn, _ in equations(traced(gradient, (X,)).stage.jaxpr.jaxpr)
        if eqn.primitive.name in ("checkpoint", "remat", "remat2")
    ]
    assert again.params["differentiated"]
    assert again.params["prevent_cse"]


def test_small_arrays_numbers_and_keys_stay():
    key, small = jax.random.split(jax.random.key(0), 1000), np.ones(3, np.float32)
    fn = lambda x: x[:, :3] * small * 2.5 + jax.random.normal(key[5], (3,))  # noqa: E731
    program = traced(fn, (X,))
    assert program.arrays == ()
    np.testing.assert_array_equal(program.compile()(X), jax.jit(fn)(X))


def test_what_is_written_into_an_array_of_numpy_later_changes_nothing():
    base = W.copy()
    compiled = traced(lambda x: x @ base, (X,)).compile()
    before = np.asarray(compiled(X))
    base[:] = 0
    np.testing.assert_array_equal(compiled(X), before)


def test_an_array_of_jax_is_not_copied():
    (array,) = traced(lambda x: x @ ON_DEVICE, (X,)).arrays
    assert array.unsafe_buffer_pointer() == ON_DEVICE.unsafe_buffer_pointer()


def test_donated_arguments_are_given_up_and_no_others():
    fn = lambda kept, given: (given + kept @ W, kept.sum())  # noqa: E731
    compiled = traced(fn, (X, X), [1]).compile()
    kept, given = jnp.array(X), jnp.array(X)
    found, _ = compiled(kept, given)
    np.testing.assert_array_equal(found, jax.jit(fn)(X, X)[0])
    assert given.is_deleted()
    assert not kept.is_deleted()
    assert compiled.memory_analysis().alias_size_in_bytes >= X.nbytes
    jax.block_until_ready(compiled(kept, jnp.array(X)))  # the arrays are still there


def test_on_several_devices():
    with use(Strategy(devices=2)) as strategy:
        x = fp.distributed.replicate(X, strategy.mesh)
        program = traced(spmd(control_flow), (x,))
        assert all(len(array.sharding.device_set) == 2 for array in program.arrays)
        expected = jax.jit(spmd(control_flow))(x)
        jax.tree.map(np.testing.assert_array_equal, program.compile()(x), expected)


def test_as_jit_a_function_is_compiled_for_each_shape():
    shapes = []

    def noted(x):
        shapes.append(x.shape)
        return plain(x)

    run = Jitted(noted)
    for x in (X, X[:2], X + 1, jnp.asarray(X[:2])):
        np.testing.assert_array_equal(run(x), jax.jit(plain)(x))
    assert shapes == [(8, 64), (2, 64)]


FEDERATION, TEST, MODEL = classification(clients=4)
BASE = filled(MODEL.init)


@pytest.mark.slow
def test_a_run_is_the_same_with_its_base_as_an_argument(monkeypatch):
    """A whole run, two seeds; the base is still there after it, and for the next."""
    model = fp.models.adapters(MODEL, BASE, rank=1)

    def run(large):
        monkeypatch.setattr(closed_arrays, "LARGE", large)
        algorithm = fp.dp_fed_avg(
            model.loss,
            sampler=fp.fixed_size(4, 2),
            optimizer=lambda t: optax.sgd(0.1),
            batches=fp.full_batch(),
            clip_norm=1.0,
            noise_multiplier=1.0,
        )
        return fp.simulate(
            algorithm,
            model.init,
            FEDERATION,
            TEST,
            score=model.score,
            rounds=2,
            seeds=(0, 1),
            strategy=Strategy(devices=2),
        )

    as_arguments, inside = run(1), run(10**9)
    jax.tree.map(np.testing.assert_array_equal, as_arguments.state, inside.state)
    np.testing.assert_array_equal(as_arguments.metric("loss"), inside.metric("loss"))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(BASE))
