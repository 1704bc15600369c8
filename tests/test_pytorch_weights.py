"""Models with PyTorch's weights give PyTorch's logits: as its documentation says in NumPy, and its own if installed."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from torch_networks import NETWORKS

import fedpriv as fp
from fedpriv import models
from fedpriv.models import pytorch_weights

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def random_state(network):
    rng = np.random.default_rng(0)
    return {n: rng.normal(0, 0.3, shape).astype(np.float32) for n, shape in network.entries.items()}


def close(found, expected):
    """To 2e-6, of logits between 0.1 and 100."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max()))
    assert 0.1 < np.abs(expected).max() < 100


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_those_of_numpy(name):
    network = NETWORKS[name]
    state = random_state(network)
    params = pytorch_weights(network.model, state, network.layers, **network.options)
    expected = np.stack([network.documented(state, x) for x in network.inputs])
    close(network.model.predict(params, network.as_ours), expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_those_of_torch(name):
    """Whose own names and shapes those of the state are."""
    torch = pytest.importorskip("torch")
    network = NETWORKS[name]
    module = network.torch(torch)
    state = random_state(network)
    module.load_state_dict({n: torch.from_numpy(array) for n, array in state.items()}, strict=True)
    module.eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(network.inputs)).numpy()
    given = module.state_dict()
    params = pytorch_weights(network.model, given, network.layers, **network.options)
    close(network.model.predict(params, network.as_ours), expected)
    short = {n: tensor.to(torch.bfloat16) for n, tensor in given.items()}
    rounded = pytorch_weights(network.model, short, network.layers, **network.options)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2**-8), rounded, params)


ORDERS = {
    "sorted, as safetensors": sorted,
    "the other way": reversed,
    "sorted back": lambda n: sorted(n)[::-1],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_order_of_entries_decides_nothing(name, order):
    """Neither the parameters, nor that something has to be told of each layer that reads a flattened image."""
    network = NETWORKS[name]
    state = random_state(network)
    ordered = {n: state[n] for n in ORDERS[order](list(state))}
    made = [
        pytorch_weights(network.model, s, network.layers, **network.options)
        for s in (state, ordered)
    ]
    jax.tree.map(np.testing.assert_array_equal, *made)
    told = network.options.get("flattened", {})
    for layer in told:
        others = {n: channels for n, channels in told.items() if n != layer}
        with pytest.raises(ValueError, match=rf"^flattened.*'{layer}': N"):
            pytorch_weights(network.model, ordered, network.layers, flattened=others)


class Branches(nn.Module):
    """Two convolutions side by side, and colours as they are: what reads which is not in any order."""

    @nn.compact
    def __call__(self, x):
        few, many = (nn.Conv(n, (1, 1), name=f"conv{n}")(x[None]) for n in (2, 5))
        side = nn.Dense(4, name="side")(x.reshape(-1))
        joined = jnp.concatenate([few, many], -1).reshape(-1)
        return nn.Dense(3, name="both")(joined) + nn.Dense(3, name="top")(side)


@pytest.mark.parametrize("backwards", [False, True])
def test_branches_are_asked_for(backwards):
    """Also where no convolution has the channels, as those of two are joined, and where theirs are in no entry."""
    model = models.classifier(Branches(), np.zeros((1, 2, 3), np.float32))
    start = model.init(jax.random.key(0))
    shapes = {"side": (4, 6), "both": (3, 14), "top": (3, 4)}
    state = {f"{n}.weight": np.ones(shape) for n, shape in shapes.items()}
    ordered = dict(sorted(state.items(), reverse=backwards))
    told = {"side": 3, "both": 7, "top": 1}
    pytorch_weights(model, ordered, flattened=told, rest=start)
    for layer in told:
        others = {n: channels for n, channels in told.items() if n != layer}
        with pytest.raises(ValueError, match=rf"^flattened.*'{layer}': N"):
            pytorch_weights(model, ordered, flattened=others, rest=start)


def test_a_norm_as_wide_as_a_convolution_may_read_what_is_flattened():
    """It is asked for where a Linear as wide does; a norm of channels is not."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.GroupNorm(2, name="norm1")(nn.Conv(8, (1, 1), name="conv1")(x[None]))
            x = nn.Conv(2, (1, 1), name="conv2")(x).reshape(-1)
            return nn.Dense(3, name="head")(nn.LayerNorm(name="norm2")(x))

    model = models.classifier(Net(), np.zeros((2, 2, 1), np.float32))
    state = {
        "norm1.weight": np.ones(8), "norm2.weight": np.arange(8.0), "head.weight": np.ones((3, 8)),
    }  # fmt: skip
    start = model.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"^flattened.*'norm1': N, 'norm2': N"):
        pytorch_weights(model, state, flattened={"head": 2}, rest=start)
    told = {"head": 2, "norm1": 1, "norm2": 2}
    params = pytorch_weights(model, state, flattened=told, rest=start)["params"]
    np.testing.assert_array_equal(params["norm2"]["scale"], np.arange(8).reshape(2, 4).T.ravel())
    np.testing.assert_array_equal(params["norm1"]["scale"], np.ones(8))


def test_a_new_head_begins_as_it_is_given():
    network = NETWORKS["mlp"]
    state = {n: a for n, a in random_state(network).items() if not n.startswith("3.")}
    start = network.model.init(jax.random.key(1))
    params = pytorch_weights(network.model, state, {"1": "Dense_0"}, rest=start)
    np.testing.assert_array_equal(params["params"]["Dense_0"]["kernel"], state["1.weight"].T)
    np.testing.assert_array_equal(
        params["params"]["Dense_1"]["kernel"], start["params"]["Dense_1"]["kernel"]
    )


def test_fine_tuning_begins_at_them():
    network = NETWORKS["mlp"]
    base = pytorch_weights(network.model, random_state(network), network.layers)
    lora = fp.models.adapters(network.model, base, rank=1, where="kernel")
    close(
        lora.predict(lora.init(jax.random.key(0)), network.as_ours),
        network.model.predict(base, network.as_ours),
    )
