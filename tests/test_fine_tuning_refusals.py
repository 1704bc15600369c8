"""Fine-tuning: bases, models, patterns and parameters that do not fit are refused in a line."""

import jax
import jax.numpy as jnp
import optax
import pytest
from small import classification, filled, refused

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(3)
FEDERATION, TEST, LOGISTIC = classification(clients=4)
BASE = filled(LOGISTIC.init)
TWO_LAYERS = fp.models.classifier(fp.models.MLP((4,), 3), (2, 2, 1))
KERNEL = "params.Dense_0.kernel"
COMMON = {
    "sampler": fp.fixed_size(4, 2),
    "optimizer": lambda t: optax.sgd(0.5),
    "batches": fp.epochs(2, 2),
}
PRIVATE = {"clip_norm": 0.3, "noise_multiplier": 1.0}
OTHER = filled(fp.models.classifier(fp.models.LogisticRegression(2), (2, 2, 1)).init)
SEEDS = jax.tree.map(lambda p: jnp.stack([p, p]), BASE)
SHAPES = jax.eval_shape(LOGISTIC.init, KEY)
REFUSED = {
    "no model": (lambda f: f(LOGISTIC.loss, BASE), "model: the function loss"),
    "a base of other shapes": (
        lambda f: f(LOGISTIC, OTHER),
        r"base: params.Dense_0.bias has the shape \[2\], but \[3\] in the model; give",
    ),
    "a base of two seeds": (
        lambda f: f(LOGISTIC, SEEDS),
        "base: an axis of seeds, of length 2; give",
    ),
    "no base": (lambda f: f(LOGISTIC, None), "base: params.Dense_0.bias is missing; give"),
    "shapes": (lambda f: f(LOGISTIC, SHAPES), "base: .*; give arrays"),
}
PATTERNS = {
    "no leaf": ("Dense_7", r"'Dense_7' matches none of the possible leaves \(params.Dense_0"),
    "no regular expression": ("(", r"'\(' \(.*\); give a regular expression"),
    "no text": (3, "3; give a regular expression"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    "tune", [fp.models.adapters, lambda m, b: fp.models.frozen(m, b, "kernel")]
)
def test_a_model_or_base_that_does_not_fit_is_refused_in_a_line(name, tune):
    call, said = REFUSED[name]
    with refused(f"^{said}"):
        call(tune)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_that_chooses_nothing_is_refused_in_a_line(name):
    pattern, said = PATTERNS[name]
    with refused(f"^where: {said}"):
        fp.models.adapters(LOGISTIC, BASE, rank=1, where=pattern)
    with refused(f"^trainable: {said}"):
        fp.models.frozen(LOGISTIC, BASE, trainable=pattern)


def test_other_arguments_that_do_not_fit_are_refused_in_a_line():
    with refused("^where: 'bias' matches none of the possible leaves"):
        fp.models.adapters(LOGISTIC, BASE, where="bias")
    with refused("^rank: 0; give a whole number from 1"):
        fp.models.adapters(LOGISTIC, BASE, rank=0)
    with refused("^rank: 4 exceeds the smaller side of params.Dense_0.kernel, a matrix of 4 x 3"):
        fp.models.adapters(LOGISTIC, BASE)
    with refused("^trainable: '' matches every leaf; leave some out"):
        fp.models.frozen(LOGISTIC, BASE, "")
    adapted = fp.models.adapters(LOGISTIC, BASE, rank=1)
    with refused("^params: params.Dense_0.kernel.A is missing, params.Dense_0.bias is not of the"):
        adapted.merged(BASE)
    with refused(
        r"a matrix of 4 x 3; give at most 3, or .*, as where='params.Dense_0.kernel' does"
    ):
        fp.models.adapters(TWO_LAYERS, filled(TWO_LAYERS.init), rank=4)


def test_parameters_of_the_other_model_are_refused_in_a_line():
    """Adapters in the place of the whole network, or it in theirs: by use, loss and training."""
    lora = fp.models.adapters(LOGISTIC, BASE, rank=1)
    images, adapters = TEST["image"], filled(lora.init)
    whole_wanted = f"^params: params.Dense_0.bias is missing, {KERNEL}.A is not of the model; give"
    lora_wanted = f"^params: {KERNEL}.A is missing, params.Dense_0.bias is not of the model; give"
    for model, params, said in (
        (LOGISTIC, adapters, whole_wanted),
        (lora, BASE, lora_wanted),
        (fp.models.frozen(lora, adapters, "A$"), BASE, f"^params: {KERNEL}.A is missing"),
    ):
        private = fp.dp_fed_avg(model.loss, **COMMON, **PRIVATE)
        with refused(said):
            model.predict(params, images)
        with refused(said):
            fp.certify(private, params, FEDERATION, rounds=2, delta=1e-3)
        with refused(said):
            fp.simulate(private, params, FEDERATION, TEST, score=model.score, rounds=1)
