"""Kernels that are not formed: losses and gradients as with formed ones, and no kernel for each client."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from flax import nnx
from small import assert_close, filled

import fedpriv as fp
from fedpriv.core.jaxprs import equations
from fedpriv.models import dense, fine_tuning

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LENGTH, WIDTH, WORDS = 5, 4, 7
TOKENS = {
    "text": np.arange(LENGTH) % WORDS,
    "label": np.arange(LENGTH) % 3 + 1,
    "mask": np.ones(LENGTH, bool),
}
VECTOR = {"x": np.linspace(-1, 1, 6, dtype=np.float32), "label": np.int32(1)}


def transformer(**options):
    return fp.models.next_token(fp.models.Transformer(WORDS, WIDTH, 2, 3, **options), LENGTH)


class Attention(nn.Module):
    """Kernels of three axes, rows and columns of two; dropout."""

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.MultiHeadDotProductAttention(2, qkv_features=6)(x.reshape(2, 3))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x).reshape(-1))


class Own(nn.Module):
    """The kernel as the left factor, by its columns, and in another operation."""

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.normal(), (3, 6))
        return jnp.tanh(kernel) @ (kernel.T @ (kernel @ x))


class Fast(nn.Module):
    """By the product that is fast on CPU."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, dot_general=lambda x, w, *_, **__: dense.product.bind(x[None], w)[0])(x)


MODELS = {
    "own": (lambda: fp.models.classifier(Own(), VECTOR["x"], "x"), VECTOR, None),
    "scanned again": (lambda: transformer(remat=True), TOKENS, "layers"),
    "scanned": (lambda: transformer(), TOKENS, "layers"),
    "attention": (lambda: fp.models.classifier(Attention(), VECTOR["x"], "x"), VECTOR, None),
    "fast": (lambda: fp.models.classifier(Fast(), VECTOR["x"], "x"), VECTOR, None),
    "nnx": (
        lambda: fp.models.from_nnx(lambda rngs: nnx.Linear(6, 3, rngs=rngs), "x"),
        VECTOR,
        None,
    ),
}


def adapted(name, dtype=jnp.float32):
    make, example, stacked = MODELS[name]
    model = make()
    base = jax.tree.map(lambda leaf: leaf.astype(dtype), filled(model.init))
    return fp.models.adapters(model, base, 2, alpha=3.0, stacked=stacked), example


@tiers.every("name", MODELS)
def test_losses_and_gradients_are_those_of_formed_kernels(name, monkeypatch):
    """Embeddings, which are looked up and multiplied by, have adapters, too."""
    found = []
    for least in (2**18, 1):
        monkeypatch.setattr(fine_tuning, "LARGE_MATRIX", least)
        model, example = adapted(name)
        found.append(jax.jit(jax.value_and_grad(model.loss))(filled(model.init), example))
    (loss, grad), ours = found
    assert_close(ours[0], loss)
    jax.tree.map(lambda g, o: np.testing.assert_allclose(o, g, rtol=2e-4, atol=1e-6), grad, ours[1])


@pytest.mark.slow
def test_dropout_is_that_of_the_key(monkeypatch):
    monkeypatch.setattr(fine_tuning, "LARGE_MATRIX", 1)
    model, example = adapted("attention")
    params = filled(model.init)
    loss, whole = jax.jit(model.loss), jax.jit(MODELS["attention"][0]().loss)
    drawn = [float(loss(params, example, jax.random.key(i))) for i in range(3)]
    merged = model.merged(params)
    for i, of_key in enumerate(drawn):
        assert_close(of_key, whole(merged, example, jax.random.key(i)))
    assert len(set(drawn)) > 1


@tiers.every("how", [("scanned", False), ("scanned", True)])
def test_clients_side_by_side_share_the_kernels(how, monkeypatch):
    """No array [clients, ...] of a kernel's size, nor of its gradient's; where kernels are formed, there is one."""
    name, formed = how
    monkeypatch.setattr(fine_tuning, "LARGE_MATRIX", 2**18 if formed else 1)
    make, example, stacked = MODELS[name]
    base = filled(make().init)
    model = fp.models.adapters(make(), base, 1, "kernel$", stacked=stacked)
    clients = jax.tree.map(lambda leaf: jnp.stack([leaf] * 11), filled(model.init))
    program = jax.make_jaxpr(jax.vmap(jax.grad(model.loss), (0, None)))(clients, example)
    kernel = (WIDTH, 4 * WIDTH)
    shapes = {v.aval.shape for eqn, _ in equations(program.jaxpr) for v in eqn.outvars}
    of_clients = [s for s in shapes if 11 in s and {s[-2:], s[:-3:-1]} & {kernel}]
    assert bool(of_clients) == formed


@pytest.mark.slow
def test_bfloat16_products_stay_in_it(monkeypatch):
    monkeypatch.setattr(fine_tuning, "LARGE_MATRIX", 1)
    model, example = adapted("scanned", jnp.bfloat16)
    grad = jax.eval_shape(jax.grad(model.loss), filled(model.init), example)
    assert {leaf.dtype for leaf in jax.tree.leaves(grad)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.slow
def test_a_network_in_bfloat16_multiplies_in_it(monkeypatch):
    """The adapters, in float32, are rounded as the base is; their gradients are as long as they are."""
    make, example, stacked = MODELS["scanned"]
    found = []
    for least in (2**18, 1):
        monkeypatch.setattr(fine_tuning, "LARGE_MATRIX", least)
        network = fp.models.in_bfloat16(make())
        model = fp.models.adapters(network, filled(make().init), 2, "kernel$", stacked=stacked)
        params = filled(model.init)
        found.append(jax.jit(jax.grad(model.loss))(params, example))
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        assert jnp.linalg.norm(one - other) <= 0.05 * jnp.linalg.norm(one) + 1e-4
