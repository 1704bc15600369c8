"""Mistakes that people make in functions of their own, each with what is said of it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from small import regression, squared, start

import fedpriv as fp

CLIENTS, RECORDS = 3, 2
FEDERATION, PARAMS = regression([RECORDS] * CLIENTS), start()
EVERYONE, GAUSSIAN, KEY = fp.everyone(CLIENTS), fp.gaussian(0.5, 1.2), jax.random.key(0)
TEST = jax.tree.map(lambda leaf: leaf[:3], FEDERATION.examples)
COMMON = {
    "sampler": EVERYONE,
    "mechanism": GAUSSIAN,
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.full_batch(),
}
OWN = {"c": jnp.zeros((CLIENTS, 2))}
TOO_LONG = jnp.ones(5)


def score(params, example):
    return {"loss": squared(params, example)}


def message(key, shard):
    return PARAMS


def kept(own):
    """A client that keeps this for itself."""
    return lambda key, shard, mine: fp.Sent(PARAMS, own=own)


def noted(diagnostics):
    return lambda key, shard: fp.Sent(PARAMS, diagnostics)


def of(round=None, init=fp.start, sampler=EVERYONE):
    return fp.Algorithm(init, round, sampler)


def sums(client=message, **options):
    """An algorithm whose round is one sum."""

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(client, key, **{"mechanism": GAUSSIAN} | options)
        return fp.ModelState(total, state.round + 1), metrics

    return of(round)


def after(change):
    """An algorithm whose round gives back what `change` makes of (state, metrics)."""

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(message, key, mechanism=GAUSSIAN)
        return change(fp.ModelState(total, state.round + 1), metrics)

    return of(round)


def look(algorithm, params=PARAMS):
    fp.certify(algorithm, params, FEDERATION, 1, 1e-3)


def launch(algorithm, **options):
    fp.simulate(algorithm, PARAMS, FEDERATION, TEST, **{"score": score, "rounds": 1} | options)


def agreeing(protocol):
    def round(key, state, cohort):
        total, metrics, _ = cohort.unprotected(message, key, protocol, reason="a test")
        return fp.ModelState(total, state.round + 1), metrics

    return of(round)


def training(**options):
    """A client that trains."""
    how = {"grad": fp.mean_grad(squared), "batches": fp.full_batch()}
    how |= {"optimizer": optax.sgd(0.1)} | options
    return sums(lambda key, shard: fp.train_locally(key, PARAMS, shard, **how))


def turned(key, state, cohort):
    return cohort.sum(key, message, mechanism=GAUSSIAN)


def trains_turned(key, shard):
    how = {"grad": fp.mean_grad(squared), "optimizer": optax.sgd(0.1)}
    return fp.train_locally(PARAMS, key, shard, batches=fp.full_batch(), **how)


def long_dot(*given):
    """Raises TypeError of JAX."""
    return jnp.zeros(2) @ TOO_LONG


class Long(nn.Module):
    """A network of one's own."""

    @nn.compact
    def __call__(self, x):
        return long_dot()


def branches(key, shard):
    if shard.examples["y"][0] > 0:
        return PARAMS
    return jax.tree.map(jnp.zeros_like, PARAMS)


def reads(key, shard):
    return np.asarray(shard.examples["x"])


def selects(key, shard):
    return shard.examples["x"][shard.examples["y"] > 0]


TABLE = np.arange(4.0, dtype=np.float32)
KEPT: list = []


def of_label(read):
    """What reads something by a record's label, in whichever function of the user's."""

    def reading(params, example):
        label = jnp.asarray(example["y"] > 0, jnp.int32)
        return squared(params, example) * (1 + read(label))

    return {
        "loss": lambda: look(fp.fed_avg(reading, **COMMON)),
        "loss of records": lambda: look(of_records(reading)),
        "mean gradient": lambda: fp.mean_grad(reading)(PARAMS, TEST, jnp.ones(3, bool)),
        "losses": lambda: fp.attacks.losses(reading, PARAMS, TEST),
        "score": lambda: launch(sums(), score=lambda p, e: {"loss": reading(p, e)}),
        "measure": lambda: launch(sums(), measure=lambda s, f: {"m": read(s.round)}),
        "client": lambda: look(sums(lambda key, shard: {"m": 1.0 * read(shard.size)})),
        "round": lambda: look(after(lambda s, m: (s, m | {"diagnostics": {"m": read(s.round)}}))),
    }


TRACED = {
    "a table": (lambda i: TABLE[i], r"jnp\.asarray\(table\)\[label\]"),
    "numpy": (lambda i: np.exp(i), r"jnp\.exp"),
    "a list": (lambda i: [1.0, 2.0][i], r"jnp\.asarray\(values\)\[i\]"),
    "a range": (lambda i: float(len(range(i))), r"jax\.lax\.fori_loop"),
    "if": (lambda i: 1.0 if i > 0 else 2.0, r"jnp\.where\(condition, a, b\)"),
    "float": (float, r"without float\(\)"),
    "item": (lambda i: i.item() * 1.0, r"\.item\(\)"),
    "a mask": (lambda i: jnp.ones(3)[jnp.arange(3) > i].sum(), r"jnp\.where\(mask, x, 0\)"),
}
"""How people read by a value that is not known while a function is traced, and what they are told to do."""


def keeps(key, shard):
    KEPT.append(shard.examples["y"].sum())
    return jax.tree.map(lambda leaf: leaf * KEPT[0], PARAMS)


def grows(key, shard):
    return jax.lax.scan(lambda c, x: (jnp.append(c, c), x), jnp.zeros(2), jnp.ones(3))[0]


def mapped(key, shard):
    return jax.vmap(jnp.add)(shard.examples["y"], TOO_LONG)


DOT = r"dot_general requires contracting dimensions .* got \(2,\) and \(5,\)\.$"
HAND = fp.Mechanism(lambda m: (m, jnp.float32(1)), lambda key, total: total, 1.0)
CODEC = fp.types.Codec(long_dot, lambda d: fp.types.Wire(d), False)

JAXS = {
    "round": (lambda: look(after(long_dot)), DOT),
    "round, run at once": (lambda: run_at_once(after(long_dot)), DOT),
    "client": (lambda: look(sums(long_dot)), DOT),
    "loss": (lambda: look(fp.fed_avg(long_loss, **COMMON)), DOT),
    "loss of single records": (lambda: look(of_records(long_loss)), DOT),
    "init": (lambda: look(of(sums().round, long_dot)), DOT),
    "params": (lambda: look(sums(), long_dot), DOT),
    "score": (lambda: launch(sums(), score=long_dot), DOT),
    "draw": (lambda: run_at_once(of(sums().round, sampler=EVERYONE._replace(draw=long_dot))), DOT),
    "protocol": (lambda: look(agreeing(long_dot)), DOT),
    "codec": (lambda: look(sums(codec=CODEC)), DOT),
    "optimizer": (lambda: look(fp.fed_avg(squared, **COMMON | {"optimizer": long_dot})), DOT),
    "make": (lambda: calibrated(long_dot), DOT),
    "own training": (lambda: fp.train_locally(KEY, PARAMS, SHARD, **LONG), DOT),
    "membership": (lambda: fp.attacks.losses(long_loss, PARAMS, TEST), DOT),
    "minimum": (lambda: fp.measures.minimum_of(long_loss, PARAMS, FEDERATION), DOT),
    "decay": (lambda: fp.attacks.least_squares(jnp.ones((6, 2, 4)), 0.25, long_dot, 1), DOT),
    "network": (lambda: fp.models.classifier(Long(), (3,)).init(KEY), DOT),
    "outputs": (lambda: fp.models.Model(None, None, None, long_dot).predict(PARAMS, TEST), DOT),
    "if": (lambda: look(sums(branches)), r"Attempted boolean conversion .* See https:.*"),
    "numpy": (lambda: look(sums(reads)), r"The numpy\.ndarray conversion .* See https:.*"),
    "a mask": (lambda: look(sums(selects)), r"Array boolean indices .* See https:.*"),
    "scan": (lambda: look(sums(grows)), r"scan body .* differ: .* do not match\. Revise .*"),
    "vmap": (lambda: look(sums(mapped)), r"vmap got inconsistent sizes .* size 2.* size 5.*"),
    "field": (lambda: look(sums(lambda key, shard: shard.examples["z"])), "'z'"),
    "attribute": (lambda: look(sums(lambda key, shard: shard.data)), ".* no attribute 'data'"),
    "name": (lambda: look(sums(lambda key, shard: no_such_name)), ".* 'no_such_name' .*"),  # noqa: F821
    "no mechanism": (lambda: look(of(lambda k, s, c: c.sum(message, k))), ".*'mechanism'"),
    "option": (lambda: look(sums(noise=3)), ".* unexpected keyword argument 'noise'"),
}
"""What JAX and Python say of mistakes in the user's own code."""

OURS = {
    "turned sum": (lambda: look(of(turned)), "key: .*; give the client first"),
    "turned train": (
        lambda: look(sums(trains_turned)),
        r"key: .*; give fp\.train_locally\(key, params",
    ),
    "turned certify": (lambda: look(PARAMS, sums()), "algorithm: "),
    "turned simulate": (
        lambda: fp.simulate(sums(), FEDERATION, PARAMS, TEST, score=score, rounds=1),
        "federation: ",
    ),
    "a number for a mechanism": (lambda: look(sums(mechanism=1.0)), "mechanism: 1.0; give"),
    "a round of two": (lambda: look(of(lambda k, s: s)), r"round: it takes \(k, s\) \(mistakes"),
    "an init of one": (lambda: look(of(sums().round, lambda p: p)), r"init: it takes \(p\)"),
    "a client of one": (lambda: look(sums(lambda key: PARAMS)), r"client: it takes \(key\)"),
    "a client that keeps nothing": (
        lambda: look(sums(message, own=OWN)),
        r"client: .*shard, own\)",
    ),
    "a protocol of one": (lambda: look(agreeing(lambda key: key)), "protocol: it takes"),
    "a protocol of one result": (lambda: look(agreeing(lambda k, m: m)), "protocol: .* came back"),
    "params of none": (lambda: look(sums(), lambda: PARAMS), r"params: it takes \(\)"),
    "no optimizer": (lambda: look(training(optimizer=0.1)), "optimizer: 0.1; give an optimiser"),
    "no plan": (lambda: look(training(batches=lambda k, s, c: 3)), "batches: 3 came back"),
    "no draw": (lambda: look_at_draw(lambda key: 3), "draw: 3 came back"),
    "a short draw": (
        lambda: look_at_draw(lambda key: fp.types.Draw(jnp.zeros(1), jnp.ones(1))),
        "draw: .*3 slots",
    ),
    "three results": (lambda: look(after(lambda s, m: (s, m, 3))), "round: 3 values came back"),
    "no result": (lambda: look(after(lambda s, m: None)), "round: None came back"),
    "no metrics": (
        lambda: look(after(lambda s, m: (s, jnp.ones(2)))),
        r"metrics: float32\[2\] came",
    ),
    "another structure": (
        lambda: look(after(lambda s, m: (s._replace(params={}), m))),
        "round: the state's structure",
    ),
    "a state with text": (
        lambda: look(after(lambda s, m: (s._replace(params=PARAMS | {"w": "x"}), m))),
        r"state\.params\['w'\]: 'x'",
    ),
    "no message": (lambda: look(sums(lambda key, shard: None)), "client: None came back"),
    "a message with text": (
        lambda: look(sums(lambda key, shard: {"w": "x"})),
        r"message\['w'\]: 'x'",
    ),
    "too few rows of a store": (
        lambda: look(sums(own={"c": jnp.zeros((5, 2))})),
        r"own: a leaf \[5, 2\]",
    ),
    "a store with text": (lambda: look(sums(own={"c": "x"})), r"own\['c'\]: 'x'"),
    "another row": (
        lambda: look(sums(kept({"c": jnp.zeros(7)}), own=OWN)),
        r"own: \{'c': float32\[7\]\} came",
    ),
    "another tree in a store": (lambda: look(sums(kept({"d": jnp.zeros(2)}), own=OWN)), "own: "),
    "nothing for a store": (lambda: look(sums(kept(()), own=OWN)), r"own: \(\) came"),
    "a row and no store": (lambda: look(sums(lambda k, s: fp.Sent(PARAMS, own=OWN))), "own: "),
    "text for a number": (lambda: look(sums(noted({"a": "x"}))), r"diagnostics\['a'\]: 'x'"),
    "None for a number": (lambda: look(sums(noted({"a": None}))), r"diagnostics\['a'\]: None"),
    "numbers in a dict": (lambda: look(sums(noted({"a": {"b": 1.0}}))), r"diagnostics\['a'\]"),
    "no dict of numbers": (lambda: look(sums(noted(None))), "diagnostics: None; give a dict"),
    "numbers by number": (lambda: look(sums(noted({1: 2.0, "a": 3.0}))), "diagnostics: .*by name"),
    "a vector for a number": (
        lambda: launch(sums(noted({"a": jnp.ones(3)}))),
        "'a' is not a scalar",
    ),
    "text in metrics": (
        lambda: look(after(lambda s, m: (s, m | {"diagnostics": {"a": "x"}}))),
        r"\['a'\]: 'x'",
    ),
    "None in metrics": (
        lambda: look(after(lambda s, m: (s, m | {"diagnostics": None}))),
        r"\['diagnostics'\]: None",
    ),
    "text in the model": (lambda: look(sums(), PARAMS | {"w": "x"}), r"params\['w'\]: 'x'"),
    "a huge number": (lambda: look(sums(), PARAMS | {"w": 2**40}), r"params\['w'\]: 1099511627776"),
    "no state": (lambda: look(of(sums().round, lambda p, f: None)), "init: None came back"),
    "one part of two": (
        lambda: look(sums(mechanism=fp.joint(GAUSSIAN, GAUSSIAN))),
        "message: .* 2 mech",
    ),
    "a value kept outside": (lambda: look(sums(keeps)), "an earlier trace .*; return it instead"),
    "no algorithm to calibrate": (lambda: calibrated(lambda sigma: None), "make: None came back"),
    "a clip of one result": (
        lambda: look(sums(mechanism=HAND._replace(clip=lambda m: m))),
        "clip: ",
    ),
    "a perturb of one": (
        lambda: look(sums(mechanism=HAND._replace(perturb=lambda k: k))),
        "perturb: it takes",
    ),
    "a code of one result": (
        lambda: look(sums(codec=CODEC._replace(code=lambda k, m: m))),
        "code: ",
    ),
    "a score of one": (lambda: launch(sums(), score=lambda p: {"loss": 0.0}), "score: it takes"),
    "an answer to nothing": (
        lambda: launch(sums(), on_evaluation=lambda: 3),
        "on_evaluation: it takes",
    ),
    "no steps": (
        lambda: look(sums(lambda key, shard: shard.private_steps(max, PARAMS, steps=0))),
        "steps: 0; give a whole number from 1",
    ),
    "text of a measure": (
        lambda: launch(sums(), measure=lambda s, f: {"a": "x"}),
        r"measure\['a'\]",
    ),
    "no dict of a measure": (
        lambda: launch(sums(), measure=lambda s, f: 3.0),
        "measure: 3.0; give",
    ),
}
"""What fedpriv says of mistakes that it sees itself."""


def long_loss(params, example):
    return jnp.zeros(2) @ TOO_LONG


LONG = {"grad": fp.mean_grad(long_loss), "optimizer": optax.sgd(0.1), "batches": fp.full_batch()}
SHARD = fp.Shard(jax.tree.map(lambda leaf: leaf[:2], FEDERATION.examples), jnp.int32(2), 0)


def of_records(loss):
    fixed = fp.fixed_size(RECORDS, 1)
    local = fp.LocalSteps(fp.per_example(loss), fixed, 1, lambda t: optax.sgd(0.1), GAUSSIAN)
    return fp.dp_sgd(local, sampler=EVERYONE)


def run_at_once(algorithm):
    jax.eval_shape(fp.one_round(algorithm), KEY, fp.start(PARAMS, FEDERATION), FEDERATION)


def look_at_draw(draw):
    run_at_once(of(sums().round, sampler=EVERYONE._replace(draw=draw)))


def calibrated(make):
    fp.calibrate_noise(make, PARAMS, FEDERATION, epsilon=1.0, rounds=2, delta=1e-3)
