"""Adapters and frozen leaves: against formulas by hand, from every library, in training and in certificates."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from small import assert_close, assert_identical, classification, filled, one_round, refused

import fedpriv as fp
from fedpriv.certification.closed_over import closed_over
from fedpriv.core.trees import dimension
from fedpriv.models.fine_tuning import PUBLIC_BASE
from fedpriv.models.named_leaves import named_leaves

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


def of_plain(shape=(5, 3)):
    """x @ w, whose parameters are one array."""
    init = lambda key: jax.random.normal(key, shape)  # noqa: E731
    return fp.models.from_apply(init, lambda w, x: x @ w, inputs="x")


class Noisy(nn.Module):
    """With dropout, and a kernel of four axes."""

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.Conv(6, (3, 3))(x)).reshape(-1)
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


def of_equinox():
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.Linear(4, 3, key=KEY)
    fixed = eqx.partition(net, eqx.is_array)[1]
    return fp.models.from_apply(
        lambda key: eqx.filter(net, eqx.is_array),
        lambda p, x: eqx.combine(p, fixed)(x),
        inputs="x",
    )


def of_lists():
    init = lambda key: [jnp.zeros((5, 3)), (jnp.zeros(3), jnp.ones(()))]  # noqa: E731
    apply = lambda p, x: x @ p[0] + p[1][0] * p[1][1]  # noqa: E731
    return fp.models.from_apply(init, apply, inputs="x")


MODELS = {
    "linen": lambda: fp.models.classifier(Noisy(), np.zeros((4, 4, 2), np.float32), inputs="x"),
    "nnx": lambda: fp.models.from_nnx(lambda rngs: nnx.Linear(4, 3, rngs=rngs), inputs="x"),
    "equinox": of_equinox,
    "a function": of_plain,
    "lists": of_lists,
}
INPUTS = {"lists": (5,), "linen": (4, 4, 2), "nnx": (4,), "equinox": (4,), "a function": (5,)}


def example(shape, seed=0):
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return {"x": x, "label": np.int32(1)}


def moved(params, seed=1):
    """Other parameters, with no zeros."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), params)


def test_loss_and_gradients_are_the_formulas():
    """z = x W + (alpha / rank) (x A) B, and the gradient of cross-entropy by hand, in double precision."""
    model, scale = of_plain(), 3.0
    base = filled(model.init)
    adapted = fp.models.adapters(model, base, rank=2, alpha=6.0)
    params = moved(adapted.init(KEY))
    of_x = example((5,))
    x, w = np.float64(of_x["x"]), np.float64(base)
    a, b = (np.float64(params[""][name]) for name in "AB")
    z = x @ w + scale * (x @ a) @ b
    e = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    (loss, grad), logits = jax.jit(
        lambda p: (jax.value_and_grad(adapted.loss)(p, of_x), adapted.apply(p, of_x["x"]))
    )(params)
    np.testing.assert_allclose(logits, z, rtol=1e-5)
    np.testing.assert_allclose(loss, -np.log(e[1]), rtol=1e-5)
    g = e - np.eye(3)[1]
    assert_close(grad[""]["A"], scale * np.outer(x, b @ g))
    assert_close(grad[""]["B"], scale * np.outer(a.T @ x, g))


@tiers.every("name", INPUTS)
def test_it_begins_at_the_base_and_merges_to_a_model_that_scores_the_same(name):
    model, one = MODELS[name](), example(INPUTS[name])
    base = filled(model.init)
    adapted = fp.models.adapters(model, base, rank=2)
    params = adapted.init(KEY)
    assert_identical(adapted.merged(params), base)
    assert_identical(adapted.score(params, one), fp.models.Score.of(model.score)(base, one))
    params = moved(params)
    whole = adapted.merged(params)
    assert jax.tree.structure(whole) == jax.tree.structure(base)
    assert_identical(adapted.score(params, one), fp.models.Score.of(model.score)(whole, one))
    inputs = np.stack([one["x"], 2 * one["x"]])
    assert_close(adapted.predict(params, inputs), model.predict(whole, inputs))
    assert not np.allclose(adapted.loss(params, one), model.loss(base, one))


@tiers.every("name", INPUTS)
def test_a_base_is_known_by_its_paths_whatever_holds_it(name):
    """Such as the nested dicts in which a kept model of a network of one's own comes back."""
    model = MODELS[name]()
    base = filled(model.init)
    nested = {}
    for path, leaf in reversed(named_leaves(base).items()):
        *outer, last = path.split(".")
        inside = nested
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = leaf
    tuned = fp.models.adapters(model, nested if path else base, rank=1)
    whole = tuned.merged(tuned.init(KEY))
    assert_identical(whole, base)  # B is 0
    assert jax.tree.structure(whole) == jax.tree.structure(base)
    example_x = example(INPUTS[name])["x"]
    assert_identical(tuned.apply(tuned.init(KEY), example_x), model.apply(base, example_x))


@pytest.mark.slow
def test_dropout_gets_its_key():
    model, one = MODELS["linen"](), example(INPUTS["linen"])
    adapted = fp.models.adapters(model, model.init(KEY), rank=1)
    params = moved(adapted.init(KEY))
    drawn = [adapted.loss(params, one, jax.random.key(i)) for i in range(3)]
    whole = adapted.merged(params)
    assert_identical(drawn, [model.loss(whole, one, jax.random.key(i)) for i in range(3)])
    assert len(set(map(float, drawn))) > 1


SIDES = {
    (5, 5, 1, 32): (25, 32),
    (3, 5): (3, 5),
    (5, 3): (5, 3),
    (3, 3, 64, 128): (576, 128),
    (64, 32, 5, 5): (64, 800),  # outputs first
    (64, 4, 16): (64, 64),  # attention: features, heads, size
}


@tiers.every("shape", list(SIDES), kind=lambda shape: len(shape) == 3)
def test_a_kernel_is_a_matrix_of_which_full_rank_reaches_everything(shape):
    sides = SIDES[shape]
    model = fp.models.from_apply(lambda key: jnp.zeros(shape), lambda w, x: x, inputs="x")
    base = moved(jnp.zeros(shape))
    one = fp.models.adapters(model, base, rank=1)
    change = one.merged(moved(one.init(KEY))) - base
    assert np.linalg.matrix_rank(np.reshape(change, sides), tol=1e-3) == 1
    rows, columns = sides
    full = fp.models.adapters(model, base, rank=min(sides))
    target = moved(base, seed=2)
    missing = (target - base).reshape(sides)
    tall = {"A": missing, "B": jnp.eye(columns)}
    reached = {"": tall if rows >= columns else {"A": jnp.eye(rows), "B": missing}}
    assert_close(full.merged(reached), target, rtol=1e-5)


def test_biases_of_two_axes_are_no_kernels():
    """Attention's are [heads, size]; adapters would have more numbers than they."""
    heads = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8)
    model = fp.models.from_apply(
        lambda key: heads.init(key, jnp.ones((3, 8))), lambda w, x: heads.apply(w, x), inputs="x"
    )
    adapted = fp.models.adapters(model, filled(model.init)).init(KEY)
    layers = ("key", "out", "query", "value")
    assert sorted(adapted) == [f"params.{layer}.kernel" for layer in layers]


def test_the_random_factor_keeps_the_inputs_size():
    """Of variance 1 / n; a chi-square of 6,000 numbers is within 10 % but for a chance below 1e-7."""
    model = fp.models.from_apply(lambda key: jnp.zeros((600, 20)), lambda w, x: x @ w, inputs="x")
    drawn = fp.models.adapters(model, jnp.zeros((600, 20)), rank=10).init(KEY)[""]
    assert abs(np.var(drawn["A"]) * 600 - 1) < 0.1
    assert not np.any(drawn["B"])


@tiers.every("dtype", [jnp.bfloat16, jnp.float32])
def test_adapters_and_leaves_keep_the_bases_type(dtype):
    base = jax.tree.map(lambda p: p.astype(dtype), BASE)
    for tuned in (
        fp.models.adapters(LOGISTIC, base, rank=2),
        fp.models.frozen(LOGISTIC, base, "kernel"),
    ):
        params = tuned.init(KEY)
        found = {leaf.dtype for leaf in jax.tree.leaves((params, tuned.merged(params)))}
        assert found == {jnp.dtype(dtype)}


def trained(algorithm, model):
    state = algorithm.init(model.init(KEY), FEDERATION)
    return one_round(algorithm)(jax.random.key(0), state, FEDERATION)[0].params


@pytest.mark.slow
def test_private_training_is_that_of_the_low_rank_parameters_by_hand():
    """The same clipping and the same noise, on A and B alone."""
    adapted = fp.models.adapters(LOGISTIC, BASE, rank=2, alpha=4.0)

    def by_hand(params, example):
        x = (example["image"] / 255).reshape(-1)
        a, b = params[KERNEL]["A"], params[KERNEL]["B"]
        dense = BASE["params"]["Dense_0"]
        z = x @ dense["kernel"] + 2.0 * (x @ a) @ b + dense["bias"]
        return -jax.nn.log_softmax(z)[example["label"]]

    ours = trained(fp.dp_fed_avg(adapted.loss, **COMMON, **PRIVATE), adapted)
    assert_close(ours, trained(fp.dp_fed_avg(by_hand, **COMMON, **PRIVATE), adapted), rtol=1e-6)
    assert not np.allclose(ours[KERNEL]["B"], 0)


@pytest.mark.slow
def test_all_leaves_but_one_train_as_if_that_one_had_no_gradient():
    model = fp.models.classifier(fp.models.MLP((4,), 3), (2, 2, 1))
    base = filled(model.init)
    tuned = fp.models.frozen(model, base, r"Dense_1|bias")
    assert list(tuned.init(KEY)) == [
        "params.Dense_0.bias",
        "params.Dense_1.bias",
        "params.Dense_1.kernel",
    ]
    ours = tuned.merged(trained(fp.fed_avg(tuned.loss, **COMMON), tuned))

    def held(params, example):
        kernel = params["params"]["Dense_0"]
        fixed = {**kernel, "kernel": jax.lax.stop_gradient(kernel["kernel"])}
        return model.loss({"params": {**params["params"], "Dense_0": fixed}}, example)

    from_base = model._replace(init=lambda key: base)
    assert_close(ours, trained(fp.fed_avg(held, **COMMON), from_base))
    assert_identical(ours["params"]["Dense_0"]["kernel"], base["params"]["Dense_0"]["kernel"])


def test_a_fine_tuned_model_may_be_fine_tuned():
    """FFA-LoRA: only B is trained, and A is as it was drawn."""
    adapted = fp.models.adapters(LOGISTIC, BASE, rank=2)
    drawn = adapted.init(KEY)
    tuned = fp.models.frozen(adapted, drawn, "B$")
    params = moved(tuned.init(KEY))
    assert list(params) == [KERNEL.replace(".", "%2E") + ".B"]
    ((b,),) = (jax.tree.leaves(params),)
    change = (
        tuned.merged(params)["params"]["Dense_0"]["kernel"] - BASE["params"]["Dense_0"]["kernel"]
    )
    assert_close(change, drawn[KERNEL]["A"] @ b)


def test_parameters_of_the_other_model_are_refused():
    """Adapters in the place of the whole network, or it in theirs: by use, certificate and training."""
    lora = fp.models.adapters(LOGISTIC, BASE, rank=1)
    adapters = filled(lora.init)
    for model, params in ((LOGISTIC, adapters), (lora, BASE)):
        private = fp.dp_fed_avg(model.loss, **COMMON, **PRIVATE)
        with refused("^params: params.Dense_0"):
            model.predict(params, TEST["image"])
        with refused("^params: params.Dense_0"):
            fp.certify(private, params, FEDERATION, rounds=2, delta=1e-3)
        with refused("^params: params.Dense_0"):
            fp.simulate(private, params, FEDERATION, TEST, score=model.score, rounds=1)


PUBLIC = "the base of the model that is fine-tuned (2 arrays, 15 numbers) is public"


def test_the_certificate_is_constructed_and_says_that_the_base_is_public():
    adapted = fp.models.adapters(LOGISTIC, BASE, rank=1)
    algorithm = fp.dp_fed_avg(adapted.loss, **COMMON, **PRIVATE)
    found = fp.certify(algorithm, adapted.init, FEDERATION, 3, 1e-3)
    whole = fp.dp_fed_avg(LOGISTIC.loss, **COMMON, **PRIVATE)
    expected = fp.certify(whole, LOGISTIC.init, FEDERATION, 3, 1e-3)
    assert found.basis == "constructed"
    assert found.epsilon == expected.epsilon
    (said,) = set(found.assumptions) - set(expected.assumptions)
    assert said.startswith(PUBLIC)


def test_the_base_of_a_later_run_may_come_from_an_earlier_one():
    """Which is what all other arrays of a later run are assumed of, too; of a first one, no data are in it."""
    tuned = fp.models.frozen(LOGISTIC, BASE, "bias")
    algorithm = fp.dp_fed_avg(tuned.loss, **COMMON, **PRIVATE)
    before = fp.dp_fed_avg(LOGISTIC.loss, **COMMON, **PRIVATE)
    first, later = (before, 2), (algorithm, 3, tuned.init)
    for runs, said in (
        ([first, later], "it depends on data only through what this view saw of earlier runs"),
        ([(algorithm, 3), (before, 2, LOGISTIC.init)], "it does not depend on data"),
    ):
        params = LOGISTIC.init if runs[0] is first else tuned.init
        found = fp.certify_together(runs, params, FEDERATION, 1e-3)
        (of_base,) = (text for text in found.assumptions if "fine-tuned" in text)
        assert of_base.endswith(f"is public: {said}")


@pytest.mark.parametrize("name", ["adapters", "frozen"])
def test_records_are_protected_alike_and_the_base_is_there_once(name):
    """Not for each client or step: the program closes over its arrays as they are."""
    tuned = {
        "adapters": lambda: fp.models.adapters(LOGISTIC, BASE, rank=1),
        "frozen": lambda: fp.models.frozen(LOGISTIC, BASE, "bias"),
    }[name]()
    local = fp.LocalSteps(
        fp.per_example(tuned.loss),
        fp.poisson(3, 0.5),
        2,
        lambda t: optax.sgd(0.1),
        fp.gaussian(1.0, 2.0),
    )
    traced = fp.trace_round(fp.dp_sgd(local, sampler=fp.everyone(4)), tuned.init, FEDERATION)
    assert traced.basis == "constructed"
    used = [each.array for each in closed_over(traced.stages[0].program) if each.is_base]
    untrained = dimension(BASE) - (0 if name == "adapters" else 3)
    assert sum(leaf.size for leaf in used) == untrained
    assert len(used) == (2 if name == "adapters" else 1)


def test_a_base_of_the_federations_records_is_refused():
    """What was computed from them is not recognised: that a base is public is the user's word."""
    records = np.asarray(FEDERATION.examples["image"]).reshape(-1, 4).astype(np.float32)
    federation = fp.Federation.from_arrays(
        {"x": records, "label": np.zeros(len(records), int)}, np.split(np.arange(len(records)), 4)
    )
    model = fp.models.from_apply(
        lambda key: jnp.zeros(records.shape), lambda w, x: w @ x, inputs="x"
    )
    adapted = fp.models.adapters(model, records, rank=1)
    with pytest.raises(fp.LeakError, match=r"closes over federation\['examples'\]\['x'\]"):
        fp.certify(
            fp.dp_fed_avg(adapted.loss, **COMMON, **PRIVATE), adapted.init, federation, 1, 1e-3
        )


def test_a_kept_model_is_the_whole_network_and_what_was_trained(tmp_path):
    adapted = fp.models.adapters(LOGISTIC, BASE, rank=2)
    params = moved(adapted.init(KEY))
    fp.models.save_model(tmp_path, "lora", 0, adapted, params)
    whole = fp.models.load_model(tmp_path, "lora")
    assert_identical(whole.params, adapted.merged(params))
    assert_identical(fp.models.load_model(tmp_path, "lora", model=LOGISTIC).params, whole.params)
    assert_close(whole.predict(TEST["image"]), adapted.predict(params, TEST["image"]))
    assert_identical(fp.models.load_model(tmp_path, "lora", model=adapted).params, params)
    other = fp.models.adapters(LOGISTIC, moved(BASE), rank=2)
    with refused("give the model with the base that it was trained on"):
        fp.models.load_model(tmp_path, "lora", model=other)
    fp.models.save_model(tmp_path, "lora", 0, LOGISTIC, BASE)
    with refused("give the model that was trained"):
        fp.models.load_model(tmp_path, "lora", model=adapted)


@pytest.mark.parametrize("base_in_condition", [True, False])
@tiers.every("leaves", [3, 1])
def test_an_array_beside_the_base_in_a_loop_is_not_taken_for_it(base_in_condition, leaves):
    """A loop's condition and its body have arrays of their own, whose places are counted apart."""
    base, other = [jnp.ones(2 + i) for i in range(leaves)], jnp.linspace(0.0, 1.0, 7)
    of_base = lambda: sum(checkpoint_name(leaf, PUBLIC_BASE).sum() for leaf in base) > 0  # noqa: E731
    of_other = lambda: other.sum() > 0  # noqa: E731
    condition, body = (of_base, of_other) if base_in_condition else (of_other, of_base)

    def program(x):
        more = lambda turns: (turns < 3) & condition()  # noqa: E731
        return x * jax.lax.while_loop(more, lambda turns: turns + 1 + body(), 0)

    found = {each.array.shape: each.is_base for each in closed_over(jax.make_jaxpr(program)(1.0))}
    assert found == {leaf.shape: True for leaf in base} | {other.shape: False}
