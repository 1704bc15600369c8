"""The benchmark's baselines compute what our rounds compute: compared without noise, where both are deterministic."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedpriv
from experiments.speed.attention_speed import Characters
from experiments.speed.haar_speed import Transform
from experiments.speed.workloads import Images, Records
from fedpriv.mechanisms.haar import haar, inverse_haar
from fedpriv.mechanisms.mechanisms import gaussian
from fedpriv.mechanisms.per_example import per_example, private_mean

pytestmark = pytest.mark.slow  # PyTorch's networks beside ours, where it is installed
torch = pytest.importorskip("torch")

from experiments.speed.rivals import torch as rival  # noqa: E402
from experiments.speed.rivals import torch_vmap  # noqa: E402
from experiments.speed.rivals.runner import Settings  # noqa: E402

IMAGES = Images(2, side=8, filters=(2, 3), hidden=(5,), examples=3, epochs=3, clip_norm=0.3)
STEP = Transform(3, 8, lot=4, side=8, filters=(2, 3), hidden=(5,), clip_norm=0.7)
TEXTS = Characters(4, length=5, vocabulary=6, width=8, heads=2, layers=2, clip_norm=0.05)
RECORDS = Records(2, records=6, batch=6, steps=3, features=4, classes=3, clip_norm=0.4)


def in_torch(params, side):
    """Flax's parameters of a CNN of two convolutions, or of an MLP, as PyTorch's, in PyTorch's order.

    Kernels [h, w, in, out] become [out, in, h, w]; the first dense layer's inputs [h, w, c] become [c, h, w].
    """
    layers = params["params"]
    arrays = []
    for name in sorted(layers):
        kernel, bias = np.asarray(layers[name]["kernel"]), np.asarray(layers[name]["bias"])
        if kernel.ndim == 4:
            kernel = kernel.transpose(3, 2, 0, 1)
        elif name == "Dense_0":
            side = side if len(layers) == 2 else side // 4  # without convolutions
            kernel = kernel.reshape(side, side, -1, len(bias)).transpose(3, 2, 0, 1)
            kernel = kernel.reshape(len(bias), -1)
        else:
            kernel = kernel.T
        arrays += [kernel, bias]
    return [torch.tensor(array.copy()) for array in arrays]


def network(params, workload):
    model = rival.cnn(workload)
    with torch.no_grad():
        for p, value in zip(model.parameters(), in_torch(params, workload.side), strict=True):
            p.copy_(value)
    return model


def random_images(count, side):
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (count, side, side, 1), np.uint8)
    return {"image": images, "label": rng.integers(0, 10, count, np.int32)}


def nchw(images):
    return torch.tensor(images.transpose(0, 3, 1, 2).copy())


ROUNDS = {
    name: partial(rival.round_of_images, layout=layout) for name, layout in rival.LAYOUTS.items()
}
ROUNDS |= {"vmap": torch_vmap.round_side_by_side}


@pytest.mark.parametrize("filters", [IMAGES.filters, ()])
@pytest.mark.parametrize("run", ROUNDS)
def test_a_round_of_images_is_ours(run, filters):
    workload = replace(IMAGES, noise_multiplier=0.0, filters=filters)
    examples = random_images(6, 8)
    federation = fedpriv.Federation.from_arrays(
        examples, list(np.arange(6).reshape(2, 3)), num_classes=10
    )
    algorithm = workload.algorithm(2)
    params = workload.model().init(jax.random.key(0))
    state, _ = fedpriv.one_round(algorithm)(
        jax.random.key(1), algorithm.init(params, federation), federation
    )
    moved = in_torch(jax.tree.map(jnp.subtract, params, state.params), 8)
    model = network(params, workload)
    images = nchw(examples["image"]).reshape(2, 3, 1, 8, 8)
    labels = torch.tensor(examples["label"]).long().reshape(2, 3)
    found = ROUNDS[run](model, images, labels, workload)
    for ours, theirs in zip(moved, found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)
    clipped = torch.cat([m.flatten() for m in found])
    unclipped = replace(workload, clip_norm=1e6)
    free = ROUNDS[run](model, images, labels, unclipped)
    assert clipped.norm() < 0.9 * torch.cat([m.flatten() for m in free]).norm()


def test_rounds_of_records_are_ours():
    """Two rounds, so that the second one is corrected by control variates; every step takes all records."""
    workload = replace(RECORDS, noise_multiplier=0.0)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((18, 4, 1, 1), np.float32)
    examples = {"image": x, "label": rng.integers(0, 3, 18, np.int32)}
    federation = fedpriv.Federation.from_arrays(
        examples, list(np.arange(18).reshape(3, 6)), num_classes=3
    )
    local = fedpriv.LocalSteps(
        fedpriv.per_example(workload.model().loss, workload.l2, closed_form=True),
        fedpriv.fixed_size(6, 6),
        workload.steps,
        lambda t: optax.sgd(workload.rate),
        fedpriv.gaussian(workload.clip_norm, 0.0),
    )
    algorithm = fedpriv.dp_scaffold(local, sampler=fedpriv.everyone(3))
    zeros = jax.tree.map(jnp.zeros_like, workload.model().init(jax.random.key(0)))
    state = algorithm.init(zeros, federation)
    labels = torch.tensor(examples["label"]).long().reshape(3, 6)
    theirs = rival.DPScaffold(torch.tensor(x).reshape(3, 6, 4), labels, workload)
    for turn in range(2):
        state, _ = fedpriv.one_round(algorithm)(jax.random.key(turn), state, federation)
        theta = theirs.round([0, 1, 2])
        layer = state.params["params"]["Dense_0"]
        ours = np.concatenate([layer["kernel"], layer["bias"][None]])
        np.testing.assert_allclose(theta, ours, atol=2e-6)
    assert np.abs(theirs.controls.numpy()).max() > 0.01


def test_records_not_in_the_cohort_keep_their_control_variate():
    x = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    scaffold = rival.DPScaffold(x, torch.zeros(3, 6, dtype=torch.long), RECORDS)
    scaffold.round([2, 0])
    assert not scaffold.controls[1].any()
    np.testing.assert_allclose(scaffold.control, scaffold.controls.mean(0), rtol=1e-5)


def noise_of_a_local_step():
    """One step, so that a control variate is one noisy gradient of norm <= 0.4 + noise of 2 C sigma_g / (s R)."""
    workload = replace(RECORDS, steps=1, features=99, classes=10, noise_multiplier=300.0)
    x = torch.nn.functional.normalize(torch.randn(6, 6, 99), dim=2)
    scaffold = rival.DPScaffold(x, torch.zeros(6, 6, dtype=torch.long), workload)
    scaffold.round(list(range(6)))
    return scaffold.controls.flatten(), 2 * 0.4 * 300 / 6


def noise_of_a_round_of_images(run):
    workload = replace(IMAGES, hidden=(420,), noise_multiplier=50.0)
    model = rival.cnn(workload)
    images = torch.zeros(2, 3, 1, 8, 8, dtype=torch.uint8)
    labels = torch.zeros(2, 3, dtype=torch.long)
    found = run(model, images, labels, workload)
    return torch.cat([f.flatten() for f in found]), 0.3 * 50 / 2


def noise_of_a_step():
    workload = replace(STEP, hidden=(420,), noise_multiplier=50.0)
    model = rival.cnn(workload)
    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    step = rival.private_step(model, images, torch.zeros(4, dtype=torch.long), workload)
    return torch.cat([g.flatten() for g in step().values()]), 0.7 * 50 / 4


@pytest.mark.parametrize(
    "drawn",
    [
        noise_of_a_local_step,
        partial(noise_of_a_round_of_images, ROUNDS["nchw"]),
        partial(noise_of_a_round_of_images, ROUNDS["vmap"]),
        noise_of_a_step,
    ],
)
def test_noise_has_the_standard_deviation_of_ours(drawn):
    """Of 6,000 values the estimate has a relative error of 0.9%: 6% are passed by chance in fewer than one in 10^9."""
    torch.manual_seed(0)
    values, expected = drawn()
    assert len(values) >= 6000
    assert float(values.std()) == pytest.approx(expected, rel=0.06)


def our_step(examples, params):
    mean = private_mean(per_example(STEP.model().loss), gaussian(STEP.clip_norm, 0.0), STEP.lot)
    return mean(jax.random.key(0), params, examples, jnp.ones(STEP.lot, bool))


def test_a_step_is_ours():
    examples = random_images(4, 8)
    params = STEP.model().init(jax.random.key(0))
    ours = in_torch(our_step(examples, params), 8)
    labels = torch.tensor(examples["label"]).long()
    noiseless = replace(STEP, noise_multiplier=0.0)
    step = rival.private_step(network(params, STEP), nchw(examples["image"]), labels, noiseless)
    for theirs, mean in zip(step().values(), ours, strict=True):
        np.testing.assert_allclose(theirs, mean, atol=1e-6)
    norms = [float(m.square().sum()) for m in ours]
    assert sum(norms) ** 0.5 <= STEP.clip_norm


def transformer_in_torch(params):
    """Flax's parameters in the order of `rival.Transformer`'s."""
    layers = params["params"]

    def dense(layer, inputs):
        kernel = np.asarray(layer["kernel"])
        return [kernel.reshape(inputs, -1).T, np.asarray(layer["bias"]).reshape(-1)]

    def norm(i):
        return [np.asarray(layers[f"LayerNorm_{i}"][part]) for part in ("scale", "bias")]

    found = [np.asarray(layers["Embed_0"]["embedding"]), np.asarray(layers["places"])]
    for i in range(TEXTS.layers):
        attention = layers[f"MultiHeadDotProductAttention_{i}"]
        found += norm(2 * i)
        for part in ("query", "key", "value", "out"):
            found += dense(attention[part], TEXTS.width)
        found += norm(2 * i + 1)
        found += dense(layers[f"Dense_{2 * i}"], TEXTS.width)
        found += dense(layers[f"Dense_{2 * i + 1}"], 4 * TEXTS.width)
    found += norm(2 * TEXTS.layers)
    found += dense(layers[f"Dense_{2 * TEXTS.layers}"], TEXTS.width)
    return [torch.tensor(array.copy()) for array in found]


@pytest.fixture(scope="module")
def step_of_texts():
    """Parameters, a batch for PyTorch, and our private mean without noise, as PyTorch has them."""
    params, batch = TEXTS.init(jax.random.key(0)), TEXTS.lot_of_texts()
    mean = private_mean(per_example(TEXTS.loss), gaussian(TEXTS.clip_norm, 0.0), TEXTS.lot)
    ours = mean(jax.random.key(0), params, batch, jnp.ones(TEXTS.lot, bool))
    text, labels = (torch.tensor(np.asarray(batch[k])).long() for k in ("text", "label"))
    return transformer_in_torch(params), (text, labels), transformer_in_torch(ours)


def transformer(values):
    model = rival.Transformer(TEXTS)
    with torch.no_grad():
        for p, value in zip(model.parameters(), values, strict=True):
            p.copy_(value)
    return model


def test_a_step_of_the_transformer_is_ours(step_of_texts):
    params, given, ours = step_of_texts
    step = rival.unfused_step(transformer(params), *given, replace(TEXTS, noise_multiplier=0.0))
    for theirs, mine in zip(step().values(), ours, strict=True):
        np.testing.assert_allclose(theirs, mine, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # Opacus of itself and of PyTorch
@pytest.mark.parametrize("way", ["step_by_records", "step_by_ghost_clipping"])
def test_the_steps_of_opacus_are_ours(way, step_of_texts):
    pytest.importorskip("opacus")
    from experiments.speed.rivals import opacus

    params, given, ours = step_of_texts
    model = transformer(params)
    noiseless = replace(TEXTS, noise_multiplier=0.0)
    getattr(opacus, way)(model, *given, Settings("G", noiseless, 1, 1, "cpu"))()
    for theirs, mine in zip(model.parameters(), ours, strict=True):
        np.testing.assert_allclose(theirs.grad, mine, atol=1e-6)


def test_the_transforms_are_ours():
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    coefficients = rival.haar(x, torch.empty(3, 16))
    np.testing.assert_allclose(coefficients, haar(jnp.asarray(x.numpy())), atol=1e-6)
    back = rival.inverse_haar(x, torch.empty(3, 16))
    np.testing.assert_allclose(back, inverse_haar(jnp.asarray(x.numpy()), 16), atol=1e-6)
