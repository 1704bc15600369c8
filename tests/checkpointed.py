"""Runs that take checkpoints and are killed, for tests."""

from functools import cache, partial

import jax
import numpy as np
import optax
import pytest
from odd_state import odd
from small import assert_identical, compiler_of_one_program, regression, sgd, squared, start

import fedpriv as fp
from fedpriv.experiments.papers.dp_scaffold import local_steps

CLIENTS, PER_CLIENT = 6, 3
FEDERATION = regression([PER_CLIENT] * CLIENTS)
OTHER = regression([PER_CLIENT] * CLIENTS, seed=1)
TEST = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
COMMON = {"optimizer": sgd, "batches": fp.full_batch()}
FIXED, POISSON = fp.fixed_size(CLIENTS, 3), fp.poisson(CLIENTS, 0.5, 4)
STEPS = local_steps(fp.per_example(squared), fp.fixed_size(PER_CLIENT, 2), 2, 0.1, **PRIVATE)
ROUNDS, EVERY, SEEDS = 7, 2, (3, 8)  # evaluated after 2, 4, 6 and 7
FED_AVG = fp.fed_avg(squared, sampler=FIXED, **COMMON)
YOGI = fp.fed_opt.yogi(optax.exponential_decay(0.1, 1, 0.9))
ODD, SCAFFOLD = odd(FED_AVG), fp.dp_scaffold(STEPS, sampler=POISSON, server=YOGI)


def score(params, example):
    return {"accuracy": 0.0, "loss": squared(params, example), "weight": 1.0}


compiler_of = cache(lambda *of_program: compiler_of_one_program())


def run(algorithm=FED_AVG, folder=None, federation=FEDERATION, *, stop=None, **options):
    """A run, and the rounds at which it called back; `stop` is the evaluation after which it is killed."""
    called = []

    def on_evaluation(e):
        called.append(e.round)
        if stop and called[-1] > stop:
            raise RuntimeError("killed")

    given = {"rounds": ROUNDS, "every": EVERY, "seeds": SEEDS, "strategy": fp.Strategy()}
    given |= {"on_evaluation": on_evaluation} | options
    if folder:
        given = {"checkpoints": fp.Checkpoints(folder, rounds=1)} | given
    if algorithm in (FED_AVG, ODD) and given["strategy"] == fp.Strategy():
        given.setdefault("compiler", compiler_of(algorithm, given["every"], given["seeds"]))
    train = partial(fp.simulate, algorithm, start(), federation, TEST, score=score)
    if stop:
        with pytest.raises(RuntimeError, match="killed"):
            train(**given)
        return None, called
    return train(**given), called


def rounds_in(folder):
    return sorted(int(f.stem) for f in folder.iterdir())


def assert_same(history, expected):
    """All but times, to the bit, and of the same types."""
    assert history.seeds == expected.seeds
    assert len(history.evaluations) == len(expected.evaluations)
    for e, f in zip(history.evaluations, expected.evaluations, strict=True):
        e, f = (
            x._replace(seconds=0.0, measures=dict(x.measures), clients=dict(x.clients))
            for x in (e, f)
        )
        assert [*e.diagnostics] == [*f.diagnostics]
        assert [*e.clients] == [*f.clients]
        assert_identical(e, f)
        for a, b in zip(jax.tree.leaves(e), jax.tree.leaves(f), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
    states = [jax.tree.map(raw, h.state) for h in (history, expected)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    assert_identical(*states)


def raw(leaf):
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
