"""Small algorithms with canaries, and runs of them, for the tests of canaries."""

import jax
import numpy as np
import optax
from small import one_round, regression, squared, start
from small import records as records_of

import fedpriv as fp
from fedpriv.attacks.canaries import with_canaries as attacked
from fedpriv.experiments.papers.dp_scaffold import local_steps

CLIENTS, RECORDS, CLIP, RATE = 40, 4, 0.5, 0.2
FEDERATION, WIDE = (regression([RECORDS] * CLIENTS, features=f) for f in (3, 770))
WHOLE = regression([60], features=3)
COMMON = {"optimizer": lambda t: optax.sgd(RATE), "batches": fp.full_batch()}


def clients(noise, sampler=None, loss=squared, **how):
    sampler = sampler or fp.everyone(CLIENTS)
    private = {"clip_norm": CLIP, "noise_multiplier": noise}
    return fp.dp_fed_avg(loss, sampler=sampler, **private, **COMMON, **how)


def records(noise, steps=3, sampler=None):
    local = fp.LocalSteps(
        fp.per_example(squared),
        fp.everyone(RECORDS),
        steps,
        COMMON["optimizer"],
        fp.gaussian(CLIP, noise),
    )
    return fp.dp_sgd(local, sampler=sampler or fp.everyone(CLIENTS))


def seen_of(algorithm, federation=FEDERATION, features=3, rounds=1):
    traced = fp.trace_round(algorithm, start(features), federation)
    return next(each for each in traced.seen(rounds) if each.view == "third_party")


def of_one_client(used, steps, loss=squared):
    """DP-SGD on records in one place, with a schedule or so much noise."""
    local = fp.LocalSteps(
        fp.per_example(loss),
        fp.everyone(60),
        steps,
        COMMON["optimizer"],
        used if isinstance(used, fp.types.Dynamic) else fp.gaussian(CLIP, used),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(1))


def sparse(noise, sampler=None):
    """Messages are coordinates, other ones in every round."""
    return fp.fed_smp(
        squared,
        sampler=sampler or fp.everyone(CLIENTS),
        sparsifier=fp.papers.select_rand_k(0.5),
        clip_norm=CLIP,
        noise_multiplier=noise,
        **COMMON,
    )


def warm(sampler, noise):
    """DP-SCAFFOLD whose control variates are first set by everyone."""
    local = local_steps(
        fp.per_example(squared),
        fp.everyone(RECORDS),
        1,
        RATE,
        clip_norm=CLIP,
        noise_multiplier=noise,
    )
    return fp.dp_scaffold(local, sampler=sampler, warm_start=1, everyone_first=True)


def with_canaries(algorithm, count, federation=FEDERATION, features=3, **how):
    return attacked(algorithm, count, seen_of(algorithm, federation, features), **how)


def a_round(algorithm, key=1):
    return one_round(algorithm)(
        jax.random.key(key), algorithm.init(start(), FEDERATION), FEDERATION
    )[0]


def traced(algorithm):
    """A round, not computed."""
    state = algorithm.init(start(), FEDERATION)
    return jax.eval_shape(fp.one_round(algorithm), jax.random.key(1), state, FEDERATION)


def certified_of(algorithm, view="third_party"):
    return fp.certify(algorithm, start(770), WIDE, 4, 1e-9, view=view).epsilon


def clipped(vectors):
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * np.minimum(1, CLIP / lengths)


def gradients(i, theta):
    """f64[RECORDS, 4], of a client's records, by hand."""
    x, y = records_of(FEDERATION, i)
    x = np.concatenate([np.ones((RECORDS, 1)), x], 1)
    return x * (x @ theta - y)[:, None]


def trained(algorithm, *, seeds=20, per_client=0):
    """(present, scores) of a canary per client in 771 dimensions, after four rounds."""
    audited = with_canaries(algorithm, CLIENTS, WIDE, 770, per_client=per_client)
    state = audited.init(start(770), WIDE)

    def run(key):
        def step(state, key):
            return fp.one_round(audited)(key, state, WIDE)[0], None

        return jax.lax.scan(step, state, jax.random.split(key, 4))[0]

    after = jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(0), seeds))
    return np.asarray(after.present), np.asarray(after.scores)


def runs(algorithm, seeds, rounds, federation=FEDERATION, **how):
    """(present [seeds], scores [seeds, 3]) of a single canary."""
    seen = seen_of(algorithm, federation, rounds=rounds)
    audited = attacked(algorithm, 1, seen, **how)
    test = jax.tree.map(lambda leaf: leaf[:1], federation.examples)
    state = fp.simulate(
        audited,
        start(),
        federation,
        test,
        score=lambda params, example: {"loss": squared(params, example)},
        rounds=rounds,
        every=rounds,
        seeds=range(seeds),
    ).state
    return np.asarray(state.present)[:, 0], np.asarray(state.scores, np.float64)[:, :, 0]
