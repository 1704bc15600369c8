"""Models with PyTorch's weights give PyTorch's logits: as its documentation says in NumPy, and its own if installed."""

import jax
import numpy as np
import pytest
from torch_networks import NETWORKS

import fedpriv as fp
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
