"""Memory of a step of clipped gradients: no record's gradient of a table, no layers that are computed again."""

import factored_models as models
import jax
import jax.numpy as jnp
import pytest

from fedpriv import gaussian, per_example
from fedpriv.mechanisms.per_example import private_mean
from fedpriv.models import small_mnist_cnn

pytestmark = pytest.mark.usefixtures("quick_to_compile")  # which needs the same memory

RECORDS, PLACES, VOCABULARY, WIDTH = 16, 32, 2000, 64


@pytest.fixture(autouse=True)
def larger(monkeypatch):
    sizes = {"B": RECORDS, "T": PLACES, "VOCABULARY": VOCABULARY, "WIDTH": WIDTH}
    for name, size in sizes.items():
        monkeypatch.setattr(models, name, size)


def megabytes(fn, *args):
    """But for inputs and results."""
    return jax.jit(fn).lower(*args).compile().memory_analysis().temp_size_in_bytes / 2**20


def of_step(loss, params, batch):
    mean = private_mean(per_example(loss), gaussian(1.0, 0.0), RECORDS)
    return megabytes(
        lambda p, b: mean(jax.random.key(0), p, b, jnp.ones(RECORDS, bool)), params, batch
    )


def of_plain_gradient(loss, params, batch):
    def total(params):
        return jnp.sum(jax.vmap(loss, (None, 0))(params, batch))

    return megabytes(jax.grad(total), params)


@pytest.mark.slow
def test_a_table_is_not_formed_for_each_record():
    """A look-up alone: the records' tables would have 8 MB."""

    def loss(p, e):
        return models.square(p["table"][e["x"]] * e["v"])

    params, batch = {"table": jnp.zeros((VOCABULARY, WIDTH))}, models.batch()
    tables = RECORDS * VOCABULARY * WIDTH * 4 / 2**20
    assert of_step(loss, params, batch) < tables / 4


def tied(layers):
    shape = (layers, WIDTH, WIDTH)
    params = {"table": jnp.zeros((VOCABULARY, WIDTH)), "layers": jnp.zeros(shape)}
    return models.tied_scanned(jax.checkpoint), {**params, "biases": jnp.zeros((layers, WIDTH))}


@pytest.mark.slow
def test_layers_that_are_computed_again_are_not_kept():
    """A step of a tied model needs hardly more than its plain gradient; a layer more, no more than there."""
    batch = models.batch()
    few, many = (tied(layers) for layers in (4, 12))
    plain, step = of_plain_gradient(*few, batch), of_step(*few, batch)
    assert step < 1.25 * plain
    more = of_step(*many, batch) - step
    assert more < 1.5 * (of_plain_gradient(*many, batch) - plain) + 0.1


@pytest.mark.slow
def test_memory_of_a_transformer():
    """Layers of flax, too: beside the plain gradient at most the logits' errors, scaled, of which the records' tables
    would be twice as much.
    """
    loss, params = models.transformer(True, layers=8)
    batch = models.batch()
    errors = RECORDS * PLACES * VOCABULARY * 4 / 2**20
    assert of_step(loss, params, batch) < of_plain_gradient(loss, params, batch) + 1.1 * errors


def test_no_gradient_of_a_large_layer_is_formed():
    """DP-SGD's step of a CNN: nothing in it is as large as a batch of the dense layer's gradients."""
    model = small_mnist_cnn()
    params = jax.eval_shape(model.init, jax.random.key(0))
    batch = {
        "image": jnp.zeros((RECORDS, 28, 28, 1), jnp.uint8),
        "label": jnp.zeros(RECORDS, jnp.int32),
    }
    mean = private_mean(per_example(model.loss), gaussian(1.0, 1.0), RECORDS)
    text = jax.jit(mean).lower(jax.random.key(0), params, batch, jnp.ones(RECORDS, bool)).as_text()
    layer = params["params"]["Dense_0"]["kernel"]
    assert f"<{RECORDS}x{layer.shape[0]}x{layer.shape[1]}xf32>" not in text
    assert f"<{layer.shape[0]}x{layer.shape[1]}xf32>" in text
