"""Models of tokens: losses, perplexities and a transformer are NumPy's; a packed row is worth its texts apart."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from flax import nnx
from small import assert_close, assert_identical, filled, refused

import fedpriv as fp
from fedpriv.data.datasets import from_tokens
from fedpriv.models import Transformer, next_token

pytestmark = pytest.mark.usefixtures("quick_to_compile")

RNG = np.random.default_rng(0)
V, LENGTH = 11, 8
TEXTS = [RNG.integers(0, V, n).tolist() for n in (4, 9, 20, 3, 2, 6, 7, 5, 12)]
CLIENTS = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])
ROWS = from_tokens(TEXTS, CLIENTS, length=LENGTH, vocabulary=V)
PACKED = from_tokens(TEXTS, CLIENTS, length=LENGTH, vocabulary=V, packed=True)
MODULE = Transformer(V, width=8, heads=2, layers=2)
MODEL = next_token(MODULE, LENGTH)
PARAMS = filled(MODEL.init)


def row(data, r):
    return {name: leaf[r] for name, leaf in data.items()}


def of_bigrams():
    """Logits w[token], so that NumPy has the loss without a network."""
    init = lambda key: jax.random.normal(key, (V, V))  # noqa: E731
    return next_token(fp.models.from_apply(init, lambda w, text, segment=None: w[text], "text"))


def nats(w, data):
    """f64[rows], what the rows' tokens lose in all, by NumPy."""
    w = np.asarray(w, np.float64)
    lost = np.log(np.exp(w).sum(-1))[data["text"]] - w[data["text"], data["label"]]
    return (lost * data["mask"]).sum(-1)


@tiers.every("packed", [True, False])
def test_losses_and_sums_are_numpys(packed):
    data = PACKED if packed else ROWS
    model = of_bigrams()
    w = model.init(jax.random.key(0))
    examples = {name: leaf for name, leaf in data.items() if name != "client"}
    loss = jax.jit(jax.vmap(model.loss, in_axes=(None, 0)))(w, examples)
    np.testing.assert_allclose(loss, nats(w, data) / data["mask"].sum(-1), rtol=1e-5)
    sums = jax.jit(jax.vmap(model.score, in_axes=(None, 0)))(w, examples)
    np.testing.assert_allclose(sums["loss"], nats(w, data), rtol=1e-5)
    np.testing.assert_array_equal(sums["weight"], data["mask"].sum(-1))
    right = np.asarray(w).argmax(-1)[data["text"]] == data["label"]
    np.testing.assert_array_equal(sums["accuracy"], (right & data["mask"]).sum(-1))


@pytest.mark.slow
def test_a_row_of_padding_counts_nothing():
    example = row(PACKED, 0) | {"mask": np.zeros(LENGTH, bool), "segment": np.zeros(LENGTH, int)}
    loss, gradient = jax.jit(jax.value_and_grad(MODEL.loss))(PARAMS, example)
    sums = jax.jit(MODEL.score)(PARAMS, example)
    assert {float(loss), *map(float, sums.values())} == {0.0}
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("ignored", [-100, V + 5])
def test_a_label_that_the_mask_leaves_out_may_be_anything(ignored):
    """Such as -100, of Hugging Face: losses, gradients and sums are those without, known to the program or not."""
    told = ROWS | {"label": np.where(ROWS["mask"], ROWS["label"], ignored)}
    r = int(np.argmin(ROWS["mask"].all(1)))
    ours, theirs = (
        {n: leaf for n, leaf in row(data, r).items() if n != "client"} for data in (ROWS, told)
    )
    assert (theirs["label"] == ignored).any()
    model = of_bigrams()
    w = model.init(jax.random.key(0))
    for call in (model.score, jax.value_and_grad(model.loss)):
        assert_identical(call(w, theirs), call(w, ours))
        assert_identical(jax.jit(call)(w, theirs), jax.jit(call)(w, ours))
        assert_identical(jax.jit(lambda w, c=call: c(w, theirs))(w), jax.jit(call)(w, ours))
    with refused(f"label: {ignored} is outside"):
        model.loss(w, theirs | {"mask": np.ones(LENGTH, bool)})
    fp.Federation.from_arrays(told, "client", num_classes=V)
    test = {name: leaf for name, leaf in told.items() if name != "client"}
    algorithm = fp.fed_sgd(model.loss, sampler=fp.everyone(3), learning_rate=0.1)

    def trained(data):
        federation = fp.Federation.from_arrays(data, "client")
        return fp.simulate(algorithm, lambda key: w, federation, test, score=model.score, rounds=1)

    assert np.isfinite(trained(told).metric("loss")).all()
    with refused(f"federation: label: {ignored} is outside"):
        trained(told | {"mask": np.ones_like(told["mask"])})


@pytest.mark.slow
def test_perplexity_is_per_token_of_the_test_set_and_of_each_client():
    model = of_bigrams()
    federation = fp.Federation.from_arrays(PACKED, "client")
    test = from_tokens(TEXTS[::-1] + TEXTS[:2], length=5, vocabulary=V)  # rows of unequal weight
    algorithm = fp.fed_sgd(model.loss, sampler=fp.everyone(3), learning_rate=0.1)
    history = fp.simulate(
        algorithm, model.init, federation, test, score=model.score, rounds=1,
        measure=fp.measures.per_client(model.score),
    )  # fmt: skip
    w = history.params()
    expected = np.exp(nats(w, test).sum() / test["mask"].sum())
    np.testing.assert_allclose(history.metric("perplexity")[-1], expected, rtol=1e-5)
    lost = np.bincount(PACKED["client"], nats(w, PACKED))
    tokens = np.bincount(PACKED["client"], PACKED["mask"].sum(-1))
    np.testing.assert_array_equal(tokens, [11, 22, 26])  # of all texts, but the first of each
    own = history.evaluations[-1].clients["per_client"].metrics["perplexity"][0]
    np.testing.assert_allclose(own, np.exp(lost / tokens), rtol=1e-5)
    pooled = history.metric("per_client_perplexity_pooled")[-1]
    np.testing.assert_allclose(pooled, np.exp(lost.sum() / tokens.sum()), rtol=1e-5)
    mean = history.metric("per_client_perplexity_mean")[-1]
    np.testing.assert_allclose(mean, np.exp(lost / tokens).mean(), rtol=1e-5)


@pytest.mark.slow
def test_a_packed_row_is_worth_its_texts_apart():
    """In nats, and in their gradient."""
    assert PACKED["segment"].max() > 2

    def total(params, data):
        each = jax.vmap(MODEL.score, in_axes=(None, 0))(params, data)
        return jnp.sum(each["loss"])

    both = jax.jit(jax.value_and_grad(total))
    apart, together = (
        both(
            PARAMS,
            {name: leaf for name, leaf in data.items() if name not in ("client", "document")},
        )
        for data in (ROWS, PACKED)
    )
    assert_close(together, apart, 1e-4)


def test_a_token_sees_its_own_text_up_to_itself():
    r = int(PACKED["segment"].max(1).argmax())
    text, segment = PACKED["text"][r], PACKED["segment"][r]

    @jax.jit
    def seen(text):
        """bool[n, n], which logits each token has a part in."""
        one_hot = jax.nn.one_hot(text, V)
        vectors = PARAMS["params"]["Embed_0"]["embedding"]

        def logits(one_hot):
            given = nn.intercept_methods(
                lambda call, args, kwargs, context: (
                    one_hot @ vectors
                    if context.module.name == "Embed_0" and context.method_name == "__call__"
                    else call(*args, **kwargs)
                )
            )
            with given:
                return MODULE.apply(PARAMS, text, segment)

        return jnp.any(jax.jacobian(logits)(one_hot) != 0, axis=(1, 3))

    own = segment[:, None] == segment[None, :]
    np.testing.assert_array_equal(seen(text), own & np.tri(LENGTH, dtype=bool))


def test_the_transformer_is_numpys():
    """Two layers of two heads, with turned queries and keys, of parameters that are no zeros."""
    text = np.array([0, 3, 4, 1, 1, 2])
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), PARAMS["params"])

    def normal(x, layer):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return unit * layer["scale"] + layer["bias"]

    def dense(x, layer):
        return x @ layer["kernel"] + layer["bias"]

    def turned(x):
        """By complex numbers: of 4, the pairs are (0, 2) and (1, 3), the second turned 100 times slower."""
        z = (x[:, :2] + 1j * x[:, 2:]) * np.exp(1j * np.arange(6)[:, None] * [1, 0.01])
        return np.concatenate([z.real, z.imag], 1)

    x = p["Embed_0"]["embedding"][text] * np.sqrt(8)
    for i in range(2):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], p["layers"])
        y = normal(x, own["norm_1"])
        q, k, v = (dense(y, own[name]) for name in ("query", "key", "value"))
        means = []
        for of_head in (np.s_[:, :4], np.s_[:, 4:]):
            weights = np.tril(np.exp(turned(q[of_head]) @ turned(k[of_head]).T / 2))
            means.append(weights / weights.sum(-1, keepdims=True) @ v[of_head])
        x = x + dense(np.concatenate(means, 1), own["out"])
        y = dense(normal(x, own["norm_2"]), own["up"])
        y = y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))) / 2
        x = x + dense(y, own["down"])
    logits = normal(x, p["norm"]) @ p["Embed_0"]["embedding"].T
    assert_close(jax.jit(MODULE.apply)(PARAMS, text), logits, 1e-5)


@pytest.mark.slow
def test_scanned_layers_and_those_computed_again_are_the_same():
    stacked = PARAMS["params"]["layers"]
    own = dict(PARAMS["params"])
    del own["layers"]
    own |= {f"layer_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(2)}
    other = next_token(Transformer(V, 8, 2, 2, scan_layers=False, remat=True), LENGTH)
    loss, gradient = jax.jit(jax.value_and_grad(other.loss))({"params": own}, row(PACKED, 1))
    expected, theirs = jax.jit(jax.value_and_grad(MODEL.loss))(PARAMS, row(PACKED, 1))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    found = gradient["params"]
    layers = [found.pop(f"layer_{i}") for i in range(2)]
    found["layers"] = jax.tree.map(lambda *each: jnp.stack(each), *layers)
    assert_close(found, theirs["params"], 1e-4)


@pytest.mark.slow
def test_every_layer_begins_otherwise():
    kernels = np.asarray(MODEL.init(jax.random.key(0))["params"]["layers"]["up"]["kernel"])
    assert kernels.shape == (2, 8, 32)
    assert not np.any(kernels[0] == kernels[1])
    np.testing.assert_allclose(kernels.var((1, 2)), 1 / 8, rtol=0.4)


@pytest.mark.slow
def test_short_parameters_lose_no_more_than_their_precision():
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    assert jax.eval_shape(MODULE.apply, short, PACKED["text"][0]).dtype == jnp.bfloat16
    loss, exact = (jax.jit(MODEL.loss)(p, row(PACKED, 0)) for p in (short, PARAMS))
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, exact, rtol=0.05)


@pytest.mark.slow
def test_ids_above_16_bits_are_tokens_of_their_own():
    vocabulary = 2**17 + 2
    model = next_token(Transformer(vocabulary, 4, 1, 1), 2)
    data = from_tokens([[2**17 + 1, 2**16 + 1, 1]], length=2, vocabulary=vocabulary)
    params = jax.jit(model.init)(jax.random.key(0))
    gradient = jax.jit(jax.grad(model.loss))(params, row(data, 0))
    rows = np.asarray(gradient["params"]["Embed_0"]["embedding"])
    norms = np.abs(rows).max(1)  # of all others next to nothing, a softmax's share
    assert set(np.argsort(norms)[-3:]) == {1, 2**16 + 1, 2**17 + 1}
    assert norms[[1, 2**16 + 1, 2**17 + 1]].min() > 1e3 * np.median(norms)


class Own(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(V, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(4, V, rngs=rngs)

    def __call__(self, text):
        return self.head(self.dropout(self.embed(text)))


@pytest.mark.slow
def test_networks_of_nnx_with_dropout():
    model = next_token(fp.models.from_nnx(lambda rngs: Own(rngs), inputs="text"))
    params = model.init(jax.random.key(0))
    example = row(ROWS, 1)
    losses = [float(model.loss(params, example, jax.random.key(i))) for i in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    sums = model.score(params, example)
    assert_identical(model.loss(params, example), sums["loss"] / sums["weight"])
    with refused("packed row.*takes no `segment`"):
        model.loss(params, row(PACKED, 0))


@pytest.mark.slow
def test_the_characters_networks_take_tokens():
    model = next_token(fp.models.CharacterLSTM(V, 2, 3), LENGTH)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(model.loss, params, row(ROWS, 0)).shape == ()
