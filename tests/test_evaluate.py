"""Scores of all test examples, in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import tiers

from fedpriv.engine.compiled_rounds import evaluate


@tiers.every("sizes", [(7, 3), (7, 7), (7, 50), (501, 250), (1, 1)])
def test_evaluation_of_any_number_of_examples(sizes):
    """The padding of the last batch counts nothing, not even where the score of zeros is NaN."""
    count, batch_size = sizes
    x = np.random.default_rng(0).uniform(1, 2, (count, 3)).astype(np.float32)

    def score(params, example):
        s = jnp.sum(example["x"]) * params
        return {"accuracy": s > 4.5, "loss": jnp.log(s), "weight": s / s}

    found = jax.jit(lambda x: evaluate(score, 1.0, {"x": x}, batch_size).metrics)(x)
    s = x.astype(np.float64).sum(1)
    assert set(found) == {"accuracy", "loss"}
    np.testing.assert_allclose(found["accuracy"], np.mean(s > 4.5), rtol=1e-6)
    np.testing.assert_allclose(found["loss"], np.log(s).mean(), rtol=1e-5)
