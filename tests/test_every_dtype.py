"""Leaves of every type that JAX has: the noise of what runs is the noise that is counted, or the call is refused.

Statistical tests have a fixed seed and fail for a correct mechanism with the probability that each states.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_mechanism import ENTRIES, Size, changing, that
from scipy import stats
from small import refused, regression

import fedpriv as fp
from fedpriv.mechanisms.noise import isotropic
from fedpriv.mechanisms.per_example import PerExample, private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")

PER_CLIENT = 3
SAMPLER = fp.fixed_size(6, 3)

# Every type that JAX has: what is clipped and perturbed is real, and the noise that which is counted.
REALS = [
    jnp.bool_,
    jnp.int2,
    jnp.uint2,
    jnp.int4,
    jnp.int8,
    jnp.int16,
    jnp.int32,
    jnp.uint4,
    jnp.uint8,
    jnp.uint16,
]
REALS += [jnp.uint32, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, jnp.float16, jnp.float32]
WIDE = [jnp.int64, jnp.uint64, jnp.float64]
SCALE = 2.0  # C sigma


def of_every_type(kinds):
    return {f"{i:02}": jnp.asarray(np.ones(2, kind)) for i, kind in enumerate(kinds)}


TREE = of_every_type(REALS)
SIZE = Size(2 * len(REALS), len(REALS))
FLAT = fp.gaussian(4.0, 0.5)
CALLS = {
    "weighted": {"weighting": fp.ByExamples(cap=PER_CLIENT)},
    "weighted, clipped": {"weighting": fp.ByExamples(PER_CLIENT, estimator="clipped")},
    "rounded": {"codec": fp.qsgd(16)},
    "clients' own": {"adder": "own"},
}
ALL_CALLS = {"the sum": {}, **CALLS}


def noisy(name):
    return ENTRIES[name].make(SIZE, 4.0, 0.5)


def noise_of(mechanism, tree, call=None, keys=2000, joint=False):
    """f64[keys, d]: the totals of compiled sums of one client who sends `tree`, less their mean."""

    def round(key, state, cohort):
        message = ((lambda: (tree, 1)) if joint else (lambda: tree))()
        summed = cohort.sum(lambda k, shard: message, key, mechanism=mechanism, **(call or {}))
        total = summed.total[0] if joint else summed.total
        return state._replace(params=total, round=state.round + 1), summed.metrics

    algorithm = fp.Algorithm(fp.start, round, fp.everyone(1))
    alone = regression([PER_CLIENT])
    assert fp.certify(algorithm, tree, alone, 1, 1e-3).basis == "constructed"
    after = jax.eval_shape(lambda: tree)
    state = fp.ModelState(jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), after), np.int32(0))
    once = lambda key: fp.one_round(algorithm)(key, state, alone)[0].params  # noqa: E731
    totals = jax.jit(lambda ks: jax.lax.map(once, ks))(jax.random.split(jax.random.key(0), keys))
    assert {leaf.dtype for leaf in jax.tree.leaves(totals)} <= {
        np.dtype("float32"),
        np.dtype("float64"),
    }
    flat = np.concatenate(
        [np.asarray(x, float).reshape(keys, -1) for x in jax.tree.leaves(totals)], 1
    )
    return flat - flat.mean(0)


def assert_scale(noise, scale=SCALE):
    """Of each coordinate, by a chi-square test of each: all together are wrong once in 1e6."""
    tail = 1e-6 / noise.shape[1]
    n = len(noise) - 1
    low, high = (stats.chi2.ppf(q, n) for q in (tail / 2, 1 - tail / 2))
    measured = (noise**2).sum(0) / scale**2
    assert (measured > low).all()
    assert (measured < high).all()


@tiers.every("call", CALLS, kind=tuple)
def test_noise_on_leaves_of_every_type(call):
    """As it is counted: the deviation of each coordinate is C sigma, whatever its type."""
    noise = noise_of(FLAT, TREE, CALLS[call])
    assert_scale(noise, SCALE * (2 if call == "weighted, clipped" else 1))


ISOTROPIC = that(lambda entry: entry.noise is isotropic and not entry.joint)
OTHERS = that(lambda entry: entry.white and not entry.joint and entry is not ENTRIES["laplace"])
OF_EACH_NOISE = tiers.one_of_each(OTHERS, lambda entry: (entry.noise, entry.whole))


@tiers.every("name", OF_EACH_NOISE, lambda entry: "any")
def test_every_mechanism_s_noise_on_leaves_of_every_type(name):
    assert_scale(noise_of(noisy(name), TREE))


def test_laplace_noise_on_leaves_of_every_type():
    """The mean of |z| over b is 1, and its square's is 1: 8 deviations of a mean of 2000 x 30 are 1 in 1e15."""
    noise, b = noise_of(noisy("laplace"), TREE), SCALE
    assert np.abs(np.abs(noise).mean() / b - 1) < 8 / np.sqrt(noise.size)
    assert (np.abs(np.abs(noise).mean(0) / b - 1) < 8 / np.sqrt(len(noise))).all()


@pytest.mark.slow
def test_joint_noise_on_leaves_of_every_type():
    used = fp.joint(fp.gaussian(4.0, 0.5), fp.gaussian(1.0, 1.0))
    assert_scale(noise_of(used, TREE, joint=True))


@pytest.mark.slow
def test_noise_on_leaves_of_64_bits():
    with jax.enable_x64(True):
        tree = of_every_type([*REALS, *WIDE])
        noise = noise_of(FLAT, tree)
        assert_scale(noise)
        bounded, _ = jax.jit(FLAT.clip)(tree)
        for name, leaf in bounded.items():
            own = tree[name].dtype
            small = jnp.issubdtype(own, jnp.floating) and own != np.float64
            assert leaf.dtype == (np.float32 if small else np.float64)  # integers and booleans, too


@tiers.every("name", ISOTROPIC, kind=lambda entry: entry.clips)
def test_bounds_hold_for_every_type(name):
    """Without wrapping: the largest and the least numbers of each type."""
    clip = jax.jit(lambda u: noisy(name).in_round(0).clip(u)[0])
    for ends in (lambda info: info.min, lambda info: info.max):
        extreme = {
            key: np.full(2, True if leaf.dtype == bool else ends(_info(leaf.dtype)), leaf.dtype)
            for key, leaf in TREE.items()
        }
        bounded = clip(extreme)
        u = np.concatenate(jax.tree.leaves(bounded)).astype(float)
        order = 1 if name == "laplace" else 2
        assert np.linalg.norm(u, order) <= 4.0 * ENTRIES[name].longest(SIZE) * (1 + 1e-3)
        assert np.isfinite(u).all()


def _info(kind):
    return jnp.finfo(kind) if jnp.issubdtype(kind, jnp.floating) else jnp.iinfo(kind)


NO_REALS = {
    "complex64": (jnp.ones(SIZE.d, jnp.complex64), r"jnp\.stack\(\[z\.real, z\.imag\]\)"),
    "key<fry>": (jax.random.split(jax.random.key(0), SIZE.d), "leave it out"),
}


@pytest.mark.parametrize("kind", NO_REALS)
@tiers.every("call", ALL_CALLS, kind=tuple)
def test_what_holds_no_real_numbers_is_refused(kind, call):
    value, remedy = NO_REALS[kind]
    with refused(rf"message\['x'\]: {kind} holds no real .*{remedy}"):
        noise_of(FLAT, {"w": jnp.ones(2), "x": value}, ALL_CALLS[call], keys=1)


@pytest.mark.parametrize("kind", NO_REALS)
@tiers.every(
    "name",
    that(lambda entry: not entry.joint and entry.whole is not changing),
    lambda entry: entry.clips,
)
def test_no_mechanism_takes_what_holds_no_real_numbers(kind, name):
    value = {"x": NO_REALS[kind][0]}
    for call in (
        lambda x: noisy(name).clip(x),
        lambda x: noisy(name).perturb(jax.random.key(0), x),
    ):
        with refused(f"{kind} holds no real numbers"):
            jax.eval_shape(call, value)


def test_complex_parameters_are_refused():
    """By every algorithm that trains on them; by private means of records before gradients are clipped."""
    params = {"w": jnp.ones(3, jnp.complex64), "b": jnp.float32(0)}

    def loss(params, example):
        return jnp.abs(example["x"] @ params["w"] + params["b"] - example["y"]) ** 2

    steps = fp.LocalSteps(
        fp.per_example(loss),
        fp.fixed_size(PER_CLIENT, 2),
        2,
        lambda t: optax.sgd(0.1),
        fp.gaussian(0.5, 1.0),
    )
    for made in (
        fp.dp_fed_avg(
            loss,
            sampler=SAMPLER,
            optimizer=lambda t: optax.sgd(0.1),
            batches=fp.full_batch(),
            clip_norm=0.5,
            noise_multiplier=0.3,
        ),
        fp.dp_sgd(steps, sampler=SAMPLER),
    ):
        with pytest.raises(ValueError, match=r"^params\['w'\]: complex64"):
            fp.certify(made, params, regression([PER_CLIENT] * 6), 1, 1e-3)


@pytest.mark.slow
def test_a_private_mean_of_parameters_of_every_type():
    """Gradients by hand, of integers too: the mean has the noise that is counted, and is not rounded to integers."""
    kinds = [k for k in REALS if not jnp.issubdtype(k, jnp.floating) or k == jnp.float32]
    params = of_every_type(kinds)

    def gradients(params, batch):
        each = jax.tree.map(lambda p: jnp.ones((4, *p.shape), p.dtype), params)
        norms = jax.tree.map(lambda p: jnp.full(4, np.sqrt(2.0), jnp.float32), params)
        total = lambda w: jax.tree.map(lambda g, w: jnp.tensordot(w, g.astype(float), 1), each, w)  # noqa: E731
        return PerExample(norms, total, lambda: each)

    mean = private_mean(gradients, FLAT, 1.0)
    once = lambda k: mean(k, params, jnp.ones(4), jnp.ones(4, bool))  # noqa: E731
    keys = jax.random.split(jax.random.key(0), 2000)
    totals = jax.tree.leaves(jax.jit(lambda ks: jax.lax.map(once, ks))(keys))
    assert {x.dtype for x in totals} == {np.dtype("float32")}
    noise = np.concatenate([np.asarray(x, float).reshape(2000, -1) for x in totals], 1)
    assert_scale(noise - noise.mean(0))
