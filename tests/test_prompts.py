"""A prompt before a text: against the same network on a text whose first tokens have these embeddings."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_close, assert_identical, filled

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

VOCABULARY, WIDTH, VECTORS = 7, 4, 3
KEY = jax.random.key(0)
TEXT = np.arange(80, dtype=np.uint8) % 5
EXAMPLE = {"text": TEXT, "label": np.int32(TEXT), "mask": np.ones(80, bool)}


class Means(nn.Module):
    """Embeddings, causal means, and a head; positions are embedded by another layer."""

    @nn.compact
    def __call__(self, text):
        x = nn.Embed(VOCABULARY, WIDTH, name="tokens")(text.astype(jnp.int32))
        x = x + nn.Embed(90, WIDTH, name="places")(jnp.arange(len(text)))
        mean = jnp.cumsum(x, 0) / (1 + jnp.arange(len(text)))[:, None]
        return nn.Dense(VOCABULARY, name="head")(nn.tanh(mean))


PROMPTED = fp.models.Prompted(Means(), VECTORS, WIDTH, "tokens")
MODEL, PLAIN = fp.models.next_character(PROMPTED), fp.models.next_character(Means())


def test_outputs_are_those_after_tokens_with_these_embeddings():
    """A token of its own for each vector: its embedding is the vector."""
    params = filled(MODEL.init)
    its, prompt = params["params"]["module"], params["params"]["prompt"]
    longer = {**its, "tokens": {"embedding": its["tokens"]["embedding"].at[5:7].set(prompt[:2])}}
    two = {"module": its, "prompt": prompt[:2]}
    module = fp.models.Prompted(Means(), 2, WIDTH, "tokens")
    ours = jax.jit(module.apply)({"params": two}, jnp.asarray(TEXT))
    tokens = np.concatenate([[5, 6], TEXT])
    assert_close(ours, jax.jit(Means().apply)({"params": longer}, tokens)[2:])
    assert ours.shape == (80, VOCABULARY)


@pytest.mark.slow
def test_only_the_prompt_is_trained_privately():
    base = {"params": {"module": filled(PLAIN.init)["params"], "prompt": np.ones((VECTORS, WIDTH))}}
    tuned = fp.models.frozen(MODEL, jax.tree.map(jnp.float32, base), "prompt$")
    start = tuned.init(KEY)
    assert {path: leaf.shape for path, leaf in start.items()} == {"params.prompt": (3, 4)}
    federation = fp.Federation.from_arrays(
        {name: np.stack([leaf] * 4) for name, leaf in EXAMPLE.items()}, np.arange(4)[:, None]
    )
    algorithm = fp.dp_fed_avg(
        tuned.loss,
        sampler=fp.everyone(4),
        optimizer=lambda t: optax.sgd(0.5),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=0.0,
    )
    history = fp.simulate(
        algorithm, tuned.init, federation, federation.examples, score=tuned.score, rounds=3
    )
    loss = history.metric("loss")[:, 0]
    assert loss[-1] < loss[0]
    whole = tuned.merged(history.params())
    assert_identical(whole["params"]["module"], jax.tree.map(jnp.float32, base["params"]["module"]))
    assert fp.certify(algorithm, tuned.init, federation, 1, 1e-3).basis == "constructed"
