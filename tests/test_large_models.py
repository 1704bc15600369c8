"""What the page about large models counts is what XLA's compiler says of a round."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import filled

import fedpriv as fp
from fedpriv.core.jaxprs import equations
from fedpriv.devices.layout import sum_over, use

pytestmark = pytest.mark.usefixtures("quick_to_compile")  # memory is the same to the byte

PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "large_models.md"
LENGTH, TEXTS, SIZES = 80, 2, {"layers": 4, "width": 256, "vocabulary": 128}


@pytest.fixture(scope="module")
def page():
    """Names of the page's blocks, without the training that one of them does."""
    names: dict = {}
    define, _, count = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(define, names)
    exec(count, names)
    return names


def needed(model, clients):
    """Bytes of a round of DP-FedAvg of so many clients side by side, but for a base."""
    texts = np.zeros((12, LENGTH), np.int32)
    examples = {"text": texts, "label": texts, "mask": np.ones((12, LENGTH), bool)}
    federation = fp.Federation.from_arrays(examples, np.arange(12).reshape(3, 4))
    algorithm = fp.dp_fed_avg(
        model.loss,
        sampler=fp.everyone(3),
        batches=fp.epochs(1, 2 * TEXTS, micro=TEXTS),
        optimizer=lambda t: optax.sgd(0.1),
        clip_norm=1.0,
        noise_multiplier=2.0,
    )
    params = jax.eval_shape(model.init, jax.random.key(0))
    state = jax.eval_shape(lambda p: algorithm.init(p, federation), params)
    with use(fp.Strategy(clients=clients)):
        round = jax.jit(fp.one_round(algorithm), donate_argnums=1)
        analysis = round.lower(jax.random.key(0), state, federation).compile().memory_analysis()
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["adapters", "all"])
def test_the_count_is_near(page, trained):
    """Of three clients side by side."""
    clients = 3
    model = fp.models.in_bfloat16(fp.models.next_character(page["Network"](**SIZES)))
    base = filled(model.init)
    shared, each = (9, 1) if trained == "adapters" else (12, 16 + 4)  # of micro-batches
    assert f'"{trained}": ({shared}, {each - 4 * (trained == "all")})' in PAGE.read_text()
    activations = page["activations"](**SIZES, texts=TEXTS, length=LENGTH)
    count = page["gigabytes"](fp.dimension(base) / 1e9, activations, shared, each, clients) * 1e9
    if trained == "adapters":
        model = fp.models.adapters(model, base, rank=4, where="kernel", stacked="Block")
        count -= 2 * fp.dimension(base)  # which the program closes over
    there = needed(model, clients)
    assert there < 1.1 * count < 2 * there, (there, count)


def test_clients_side_by_side_share_what_they_close_over():
    base = jnp.ones(1000)

    def total(xs):
        return sum_over(lambda x: (x * base.sum(), x), jnp.arange(4) < 3, xs)

    with use(fp.Strategy(clients=2)):
        program = jax.make_jaxpr(total)(jnp.ones(4))
        sums, kept = total(jnp.arange(4.0))
    made = [v.aval.size for eqn, _ in equations(program.jaxpr) for v in eqn.outvars]
    assert max(made) <= base.size
    assert (float(sums), kept.tolist()) == (3000.0, [0.0, 1.0, 2.0, 0.0])
