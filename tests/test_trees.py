"""A model as one vector, against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from small import assert_identical

from fedpriv.core.coordinates import gather, scatter
from fedpriv.core.trees import dimension, flatten, unflatten

TREE = {
    "b": jnp.float32(7),
    "a": [jnp.arange(6.0).reshape(2, 3), jnp.arange(4.0)[None, None]],
    "empty": jnp.zeros((0, 3)),
}


def test_flatten_is_ravel_pytree():
    vector, restore = ravel_pytree(TREE)
    assert dimension(TREE) == 11
    np.testing.assert_array_equal(flatten(TREE), vector)
    assert_identical(unflatten(vector, TREE), restore(vector))
    assert jax.tree.map(jnp.shape, unflatten(vector, TREE)) == jax.tree.map(jnp.shape, TREE)


def test_scatter_and_gather_are_inverse():
    kept, values = np.int32([0, 3, 9, 10]), np.float32([5, -1, 2, 8])

    @jax.jit
    def there_and_back(values, kept):
        tree = scatter(values, kept, TREE)
        return tree, gather(tree, kept), flatten(tree), gather(TREE, kept)

    _, back, vector, taken = there_and_back(values, kept)
    np.testing.assert_array_equal(back, values)
    others = np.setdiff1d(np.arange(11), kept)
    np.testing.assert_array_equal(vector[others], 0)
    whole = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(TREE)])
    np.testing.assert_array_equal(taken, whole[kept])
    everything = np.arange(11, dtype=np.int32)
    assert_identical(there_and_back(whole, everything)[0], TREE)
