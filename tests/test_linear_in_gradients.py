"""Optimisers run on coefficients against the same optimisers of optax run on the tensors themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_close

from fedpriv.core.interpreted import NotInterpretedError
from fedpriv.rounds.linear_in_gradients import on_coefficients

pytestmark = pytest.mark.usefixtures("quick_to_compile")

STEPS = 4
W = 2  # of the leaves "b", "v", "w"


def of_matrices(tree):
    return jax.tree.map(lambda x: x.ndim == 2, tree)


LINEAR = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.5),
    "Nesterov, weight decay": optax.chain(
        optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9, nesterov=True)
    ),
    "a schedule": optax.sgd(lambda count: 0.1 / (1 + count), momentum=0.9),
    "decay of matrices only": optax.chain(
        optax.add_decayed_weights(0.1, mask=of_matrices), optax.sgd(0.1)
    ),
    "a moving average": optax.chain(optax.ema(0.9), optax.scale(-0.1)),
    "hyperparameters in the state": optax.inject_hyperparams(optax.sgd)(0.1, momentum=0.3),
    "a rate for each tensor": optax.partition(
        {"all": optax.sgd(0.1), "w": optax.sgd(0.3)}, {"b": "all", "v": "all", "w": "w"}
    ),
}


@jax.jit
def halves(tree):
    """In one call, as newer versions of optax have it."""
    return jax.tree.map(lambda x: 0.5 * x, tree)


@jax.jit
def mixed(tree):
    return {**tree, "v": tree["v"] + tree["w"]}


LINEAR["one call for all tensors"] = optax.chain(
    optax.stateless(lambda g, p: halves(g)), optax.sgd(0.1, momentum=0.5)
)

OTHERS = {
    "one call that mixes tensors": optax.chain(
        optax.stateless(lambda g, p: mixed(g)), optax.sgd(0.1)
    ),
    "adam": optax.adam(0.1),
    "a clip of all": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    "a clip of each entry": optax.chain(optax.clip(1.0), optax.sgd(0.1)),
    "signs": optax.sign_sgd(0.1),
    "a rate by layer": optax.lars(0.1),
    "less the mean": optax.chain(optax.centralize(), optax.sgd(0.1)),
    "a step as long as the gradient": optax.stateless(
        lambda g, p: jax.tree.map(lambda x: x * jnp.sum(x), g)
    ),
}


@pytest.fixture(scope="module")
def run():
    """The parameters, and the gradients of the steps."""
    rng = np.random.default_rng(0)

    def drawn():
        return {
            "b": rng.normal(size=4).astype(np.float32),
            "v": rng.normal(size=(3, 4)).astype(np.float32),
            "w": rng.normal(size=(3, 4)).astype(np.float32),
        }

    return drawn(), [drawn() for _ in range(STEPS)]


@pytest.mark.parametrize("name", LINEAR)
def test_coefficients_give_what_the_optimiser_gives(name, run):
    params, gradients = run
    init, step = on_coefficients(LINEAR[name], params, W)

    def unit(s):
        return jnp.zeros((1 + STEPS, 1, 1)).at[s].set(1.0)

    values = [params["b"], params["v"], unit(0)]
    states = init(values)
    expected, state = params, LINEAR[name].init(params)
    for s, gradient in enumerate(gradients):
        values, states = step([gradient["b"], gradient["v"], unit(s + 1)], states, values)
        updates, state = LINEAR[name].update(gradient, state, expected)
        expected = optax.apply_updates(expected, updates)
    basis = jnp.stack([params["w"], *(g["w"] for g in gradients)])
    got = {"b": values[0], "v": values[1], "w": jnp.sum(values[2] * basis, 0)}
    assert_close(got, expected, rtol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_are_refused(name, run):
    with pytest.raises(NotInterpretedError):
        on_coefficients(OTHERS[name], run[0], W)


@pytest.mark.parametrize("tensor", [1, W])
def test_a_tensor_that_moves_another_is_refused(tensor, run):
    def update(gradient, state, params=None):
        return {**gradient, "w": gradient["w"] + gradient["v"]}, state

    mixing = optax.GradientTransformation(lambda params: (), update)
    with pytest.raises(NotInterpretedError):
        on_coefficients(mixing, run[0], tensor)


@pytest.mark.parametrize("ones", [jnp.ones_like, lambda x: np.ones(x.shape, np.float32)])
def test_a_start_that_is_not_zero_is_refused(ones, run):
    def init(params):
        return jax.tree.map(ones, params)

    def update(gradient, state, params=None):
        state = jax.tree.map(lambda s, g: 0.5 * s + g, state, gradient)
        return state, state

    with pytest.raises(NotInterpretedError):
        on_coefficients(optax.GradientTransformation(init, update), run[0], W)
