"""What is read off traced programs, and programs of sequences that are rewritten over one axis."""

from functools import partial
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from jax import lax
from small import filled

import fedpriv as fp
from fedpriv.core import over_one_axis as forms
from fedpriv.core.interpreted import inlined, producers
from fedpriv.core.jaxprs import equations, evaluate, is_call, programs_in, scan_operands

pytestmark = pytest.mark.usefixtures("quick_to_compile")


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


# Rewritten over one axis, beside themselves as they were traced

B, T, D, VOCABULARY = 3, 5, 8, 11


class Texts(nn.Module):
    """An embedding, attention, a norm and dense layers."""

    @nn.compact
    def __call__(self, text):
        x = nn.Embed(VOCABULARY, D)(text)
        x += nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x), mask=nn.make_causal_mask(text))
        return nn.Dense(VOCABULARY)(nn.gelu(nn.Dense(2 * D)(x)))


def loss(params, example):
    logits = Texts().apply(params, example["text"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, example["label"]).mean()


def texts():
    text = np.random.default_rng(0).integers(0, VOCABULARY, (B, T + 1), np.int32)
    return {"text": jnp.asarray(text[:, :-1]), "label": jnp.asarray(text[:, 1:])}


PARAMS = filled(lambda key: Texts().init(key, jnp.zeros(T, jnp.int32)))


def shapes_of_products(program):
    products = [e for e, _ in equations(program.jaxpr) if e.primitive is lax.dot_general_p]
    return [
        [v.aval.ndim for v in e.invars] for e in products if not e.params["dimension_numbers"][1][0]
    ]


def close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_texts_are_the_sums_of_gradients_of_single_texts():
    mask = jnp.asarray([True, False, True])
    ours = jax.jit(fp.mean_grad(loss))(PARAMS, texts(), mask)
    gradient = jax.jit(jax.grad(loss))
    each = [gradient(PARAMS, jax.tree.map(lambda x, i=i: x[i], texts())) for i in (0, 2)]
    close(ours, jax.tree.map(lambda a, b: (a + b) / 2, *each))


def test_its_products_are_of_matrices():
    program = jax.make_jaxpr(fp.mean_grad(loss))(PARAMS, texts(), jnp.ones(B, bool))
    assert shapes_of_products(program)
    assert all(ndims == [2, 2] for ndims in shapes_of_products(program))


@pytest.mark.slow
def test_a_program_without_sequences_stays_as_it_is():
    model = fp.models.small_mnist_cnn()
    params = jax.eval_shape(model.init, jax.random.key(0))
    shape = jax.ShapeDtypeStruct
    batch = {"image": shape((4, 28, 28, 1), jnp.uint8), "label": shape((4,), jnp.int32)}
    ours = jax.make_jaxpr(fp.mean_grad(model.loss))(params, batch, shape((4,), bool))

    def plain(params, batch, mask):
        losses = jax.vmap(model.loss, (None, 0))(params, batch)
        most = jnp.maximum(jnp.sum(mask), 1)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / most.astype(losses.dtype)

    theirs = jax.make_jaxpr(jax.grad(plain))(params, batch, shape((4,), bool))
    assert str(ours) == str(theirs)


WRAPPED = {"scan": None, "checkpoint": jax.checkpoint, "jit": jax.jit}


@tiers.every("name", WRAPPED, kind=lambda wrapped: "layers")
def test_layers_in_loops_and_calls_are_rewritten_too(name):
    wrapped = WRAPPED[name]

    def layer(w, x):
        return jnp.tanh(x @ w)

    def repeated(ws, x):
        if wrapped is not None:
            return wrapped(layer)(ws[1], wrapped(layer)(ws[0], x))
        return lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]

    def mean(ws, x):
        return jax.vmap(partial(repeated, ws))(x).mean()

    ws, x = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate([(2, D, D), (B, T, D)]))
    ours = forms.over_one_axis(jax.grad(mean))
    close(jax.jit(ours)(ws, x), jax.jit(jax.grad(mean))(ws, x))
    assert all(ndims == [2, 2] for ndims in shapes_of_products(jax.make_jaxpr(ours)(ws, x)))


@pytest.mark.parametrize(
    "numbers",
    [(((1, 2), (0, 1)), ((), ())), (((2, 1), (1, 0)), ((), ())), (((0,), (2,)), ((), ()))],
)
def test_products_over_any_axes(numbers):
    shapes = {1: [(4, 2, 3), (2, 3, 5)], 2: [(4, 2, 3), (2, 3, 5)], 0: [(4, 2, 3), (5, 2, 4)]}
    arrays = [
        jax.random.normal(jax.random.key(i), s) for i, s in enumerate(shapes[numbers[0][0][0]])
    ]
    product = partial(lax.dot_general, dimension_numbers=numbers)
    close(jax.jit(forms.over_one_axis(product))(*arrays), product(*arrays))


def test_sums_and_products_of_nothing():
    def both(x, w):
        return x.sum((0, 1)), jnp.einsum("btd,de->bte", x, w)

    x, w = jnp.zeros((0, 2, 3), jnp.int8), jnp.zeros((3, 4), jnp.int8)
    ours, theirs = jax.jit(lambda *given: (forms.over_one_axis(both)(*given), both(*given)))(x, w)
    assert [(o.shape, o.dtype) for o in ours] == [(o.shape, o.dtype) for o in theirs]


@pytest.mark.slow
def test_it_is_differentiated_and_mapped():
    def length(x):
        gradient = fp.mean_grad(loss)(x, texts(), jnp.ones(B, bool))
        return sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient))

    def plain(x):
        gradient = jax.grad(lambda p: jax.vmap(loss, (None, 0))(p, texts()).mean())(x)
        return sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient))

    two = jax.tree.map(lambda p: jnp.stack([p, p / 2]), PARAMS)
    ours, theirs = (jax.jit(jax.vmap(jax.grad(of)))(two) for of in (length, plain))
    close(ours, theirs)
