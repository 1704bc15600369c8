"""Ranks by leaf, and adapters of the layers of a scanned network: against single adapters and an unrolled network."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import assert_close, assert_identical, filled

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(3)
MODEL = fp.models.classifier(fp.models.MLP((6,), 3), (2, 2, 1))
BASE = filled(MODEL.init)
FIRST, SECOND = "params.Dense_0.kernel", "params.Dense_1.kernel"
LAYERS, WIDTH = 3, 4


class Layer(nn.Module):
    """Normalised, dense, with a bias."""

    @nn.compact
    def __call__(self, x, _):
        return x + nn.Dense(WIDTH, name="dense")(nn.LayerNorm(name="norm")(x)), None


class Network(nn.Module):
    """Layers that are scanned, or one after another."""

    scanned: bool

    @nn.compact
    def __call__(self, x):
        if self.scanned:
            axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            x, _ = nn.scan(Layer, length=LAYERS, **axes)(name="layers")(x, None)
            return x
        for i in range(LAYERS):
            x, _ = Layer(name=f"layer_{i}")(x, None)
        return x


SCANNED, UNROLLED = (
    fp.models.classifier(Network(scanned), np.zeros(WIDTH, np.float32), inputs="x")
    for scanned in (True, False)
)
STACKED = filled(SCANNED.init)
KERNEL = "params.layers.dense.kernel"


def shapes(params):
    return {path: [leaf.shape for leaf in (its["A"], its["B"])] for path, its in params.items()}


def test_each_leaf_has_the_rank_of_the_first_pattern_that_fits():
    made = fp.models.adapters(MODEL, BASE, {"Dense_1": 1, "kernel": 3})
    begin = jax.eval_shape(made.init, KEY)
    assert shapes(begin) == {FIRST: [(4, 3), (3, 6)], SECOND: [(6, 1), (1, 3)]}
    for ranks in ({"Dense_0": 2}, {"Dense_1": 0, "": 2}):
        made = fp.models.adapters(MODEL, BASE, ranks)
        assert shapes(jax.eval_shape(made.init, KEY)) == {FIRST: [(4, 2), (2, 6)]}
        second = made.merged(filled(made.init))["params"]["Dense_1"]
        assert_identical(second, BASE["params"]["Dense_1"])


def test_alpha_is_divided_by_the_rank_of_the_leaf():
    made = fp.models.adapters(MODEL, BASE, {"Dense_0": 3, "Dense_1": 1}, alpha=6.0)
    params = filled(made.init)
    whole = jax.jit(made.merged)(params)["params"]
    for path, name, factor in ((FIRST, "Dense_0", 2.0), (SECOND, "Dense_1", 6.0)):
        change = np.subtract(whole[name]["kernel"], BASE["params"][name]["kernel"])
        assert_close(change, factor * np.matmul(params[path]["A"], params[path]["B"]))


def test_every_layer_of_a_scan_has_an_adapter_of_its_own():
    """The same logits as from the unrolled network whose layers have these adapters."""
    made = fp.models.adapters(SCANNED, STACKED, 2, stacked="layers")
    assert shapes(jax.eval_shape(made.init, KEY)) == {
        KERNEL: [(LAYERS, WIDTH, 2), (LAYERS, 2, WIDTH)]
    }
    layer = lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree)  # noqa: E731
    base = {f"layer_{i}": layer(STACKED["params"]["layers"], i) for i in range(LAYERS)}
    other = fp.models.adapters(UNROLLED, {"params": base}, 2)
    params = filled(made.init)
    apart = {f"params.layer_{i}.dense.kernel": layer(params[KERNEL], i) for i in range(LAYERS)}
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    ours, unrolled, base = jax.jit(
        lambda: (made.apply(params, x), other.apply(apart, x), SCANNED.apply(STACKED, x))
    )()
    assert_close(ours, unrolled)
    assert not np.allclose(ours, base)


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("in_half", [False, True])
@pytest.mark.parametrize("where", ["", "kernel"])
def test_a_model_knows_which_of_its_layers_are_scanned(where, in_half, remat):
    """As many numbers are trained as in the unrolled network, and the embedding has its adapter as there."""

    def sizes(scanned):
        net = fp.models.Transformer(9, 8, 2, LAYERS, scan_layers=scanned, remat=remat)
        model = fp.models.next_token(net, 4)
        model = fp.models.in_bfloat16(model) if in_half else model
        made = fp.models.adapters(model, filled(model.init), 1, where)
        return {path: of["A"].size + of["B"].size for path, of in filled(made.init).items()}

    ours, unrolled = sizes(True), sizes(False)
    assert sum(ours.values()) == sum(unrolled.values())
    for path, size in ours.items():
        each = [path.replace("layers", f"layer_{i}") for i in range(LAYERS)]
        assert size == sum(unrolled[one] for one in dict.fromkeys(each))


@pytest.mark.parametrize("stacked", [None, "layers"])
def test_of_a_network_of_ones_own_too(stacked):
    made = fp.models.adapters(SCANNED, STACKED, 2, stacked=stacked)
    assert [*jax.eval_shape(made.init, KEY)] == [KERNEL]


@pytest.mark.slow
def test_the_random_factors_of_the_layers_differ():
    a = fp.models.adapters(SCANNED, STACKED, 2, stacked="layers").init(KEY)[KERNEL]["A"]
    assert len(np.unique(a)) == a.size


@pytest.mark.slow
def test_a_network_of_nnx_has_ranks_and_stacked_layers_alike():
    class Net(nnx.Module):
        def __init__(self, *, rngs):
            @nnx.split_rngs(splits=LAYERS)
            @nnx.vmap(in_axes=(0,), out_axes=0)
            def make(rngs):
                return nnx.Linear(WIDTH, WIDTH, rngs=rngs)

            self.layers, self.head = make(rngs), nnx.Linear(WIDTH, 3, rngs=rngs)

        def __call__(self, x):
            @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            def through(x, layer):
                return nnx.relu(layer(x))

            return self.head(through(x, self.layers))

    model = fp.models.from_nnx(lambda rngs: Net(rngs=rngs), inputs="x")
    made = fp.models.adapters(model, model.init(KEY), {"layers": 2, "head": 1}, stacked="layers")
    params = filled(made.init)
    assert shapes(params) == {
        "head.kernel": [(WIDTH, 1), (1, 3)],
        "layers.kernel": [(LAYERS, WIDTH, 2), (LAYERS, 2, WIDTH)],
    }
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    assert_close(made.apply(params, x), model.apply(made.merged(params), x))
    federation = fp.Federation.from_arrays(
        {"x": np.eye(WIDTH, dtype=np.float32), "label": np.arange(WIDTH) % 3}, np.arange(4)[:, None]
    )
    algorithm = fp.fed_avg_alternating(
        made.loss,
        sampler=fp.poisson(4, 0.5),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=fp.gaussian(0.3, 1.0),
    )
    assert fp.certify(algorithm, made.init, federation, 2, 1e-3).basis == "constructed"


@pytest.mark.slow
def test_bfloat16_adapters_are_factored_anew_in_their_type():
    made = fp.models.adapters(SCANNED, STACKED, 2, stacked="layers")
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), filled(made.init))
    new = fp.models.refactored(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype(jnp.bfloat16)}
    products = [np.float32(p[KERNEL]["A"]) @ np.float32(p[KERNEL]["B"]) for p in (new, params)]
    np.testing.assert_allclose(*products, atol=0.02)
