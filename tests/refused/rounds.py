"""What only a round that is traced tells: parts that do not fit one another, or the federation."""

import jax
import jax.numpy as jnp
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, PARAMS, PER_CLIENT
from every_sampler import BY_RATE, N, by_groups
from small import regression, squared, start

import fedpriv as fp
from fedpriv.experiments.papers.dp_scaffold import local_steps
from fedpriv.papers import haar_mechanism

NOISY, FREE = fp.gaussian(0.5, 1.2), fp.FreeClients(CLIENTS, buffer=3)
LOST = fp.dropping(fp.fixed_size(CLIENTS, 4), 0.3125, "lost")
GRADIENTS, LOCAL = fp.per_example(squared), ENTRIES["dp_sgd, claimed"].make.keywords["local"]
CORRELATED = fp.correlated(NOISY, fp.noise_matrices.tree(rounds=3))
OF_FIVE = haar_mechanism(5, clip_norm=1.0, noise_multiplier=1.0)
VANISHING = fp.dropping(fp.fixed_size(PER_CLIENT, 2), 0.1)
UNEVEN, PRIVATE = regression([3, 4, 3, 3, 3, 3]), regression([PER_CLIENT] * CLIENTS)
LAPLACE = fp.laplace(1.0, 1.0)


def certifying(name, federation=FEDERATION, **changes):
    """The certificate of an entry of the registry with these options."""
    return lambda: fp.certify(ENTRIES[name].make(**changes), PARAMS, federation, 3, 1e-3)


def steps(**changes):
    given = {"records": fp.everyone(PER_CLIENT), "steps": 2, "learning_rate": 0.1} | changes
    return local_steps(GRADIENTS, **given)


def buffered(client_update, server_step):
    made = fp.buffered(client_update, server_step, sampler=FREE, delay=fp.delays.constant(1))
    return lambda: fp.certify(made, PARAMS, FEDERATION, 3, 1e-3)


def unchanged(key, params, shard):
    return params


def weighted(**how):
    """A sum of messages that carry their noise, with weights."""

    def round(key, state, cohort):
        how_ = {"mechanism": NOISY, "weighting": fp.ByExamples(3, mean=0.5)} | how
        total, metrics, _ = cohort.sum(lambda key, shard: state.params, key, **how_)
        return fp.ModelState(total, state.round + 1), metrics

    return lambda: fp.certify(
        fp.Algorithm(fp.start, round, fp.everyone(CLIENTS)), PARAMS, FEDERATION, 3, 1e-3
    )


class Unbounded(fp.types.Weighting):
    """Weights that nothing bounds."""

    def weigh(self, message, size):
        return jax.tree.map(lambda u: size * u, message), size


def mean_over_weights(of_groups):
    """Divided by what members weigh, in groups of which one counts less."""
    clipped = fp.ByExamples(cap=4, estimator="clipped")
    made = ENTRIES["dp_fed_avg"].make(sampler=of_groups, weighting=clipped)
    return lambda: fp.certify(made, start(), regression([2] * N), 3, 1e-3)


def every_other(key, t, memory):
    """A sampler by hand: the half of the clients that did not take part last time."""
    ids = 2 * jnp.arange(CLIENTS // 2, dtype=jnp.int32) + memory
    return fp.types.Draw(ids, jnp.ones(CLIENTS // 2, bool)), 1 - memory


def remembering(change):
    """The same, which remembers something else."""
    return lambda key, t, memory: (every_other(key, t, memory)[0], change(t, memory))


BY_HAND = fp.types.ScheduledSampler(
    every_other,
    CLIENTS // 2,
    CLIENTS / 2,
    fp.privacy.MinimumSeparation(CLIENTS, CLIENTS // 2, 2),
    lambda: jnp.int32(0),
)
SHORT = fp.types.Draw(jnp.zeros(2), jnp.zeros(2))
SCHEDULED = [
    ({"draw": lambda key, t: None}, "draw", "(key, t)"),
    ({"draw": lambda *given: every_other(*given)[0]}, "draw", "memory"),
    ({"draw": remembering(lambda t, memory: t + 0.5)}, "draw: memory", "float32[]"),
    ({"draw": remembering(lambda t, memory: (memory,))}, "draw: memory", "1 values"),
    ({"draw": lambda key, t, memory: (SHORT, memory)}, "draw", "of 3 slots"),
    ({"init": lambda key: jnp.int32(0)}, "init", "(key)"),
    ({"init": lambda: "none"}, "init: memory", "'none'"),
]

# An entry of the registry, what is wrong with it, the field, what is shown.
ENTRY = [
    ("dp_fed_avg", {"sampler": fp.everyone(5)}, "sampler", "5 clients"),
    ("dp_scaffold", {"local": steps(tensors=5)}, "tensors", "5"),
    ("dp_scaffold", {"local": steps(), "federation": UNEVEN}, "records", "client 1 holds 4"),
    ("dp_sgd_wav", {"local": LOCAL._replace(mechanism=OF_FIVE)}, "d", "5"),
    ("fed_smp rand_k", {"sparsifier": fp.papers.select_rand_k(0.1)}, "p", "0.1"),
    ("fed_smp top_k", {"federation": PRIVATE}, "public", "the federation has none"),
    ("error feedback", {"codec": fp.top_k(5)}, "k", "5"),
    ("fed_avg changing", {"sampler": LOST, "mechanism": CORRELATED}, "sampler", "Dropping"),
    ("fed_avg changing", {"sampler": LOST, "mechanism": LAPLACE}, "mechanism", "whole"),
    ("dp_sgd, claimed", {"local": LOCAL._replace(records=VANISHING)}, "records", "Dropping"),
    ("dp_fed_avg", {"weighting": Unbounded()}, "weighting", "Unbounded()"),
    *(("fed_avg changing", {"sampler": BY_HAND._replace(**changed)}, *told) for changed, *told in SCHEDULED),
]  # fmt: skip
OWN = [
    (weighted(mechanism=fp.ALREADY_PRIVATE), "weighting", "already carry their noise"),
    (weighted(adder="own"), "weighting", "already carry their noise"),
    (mean_over_weights(by_groups(BY_RATE, weights={"a": 0.5, "b": 1.0})), "estimator", "'clipped'"),
    (buffered(lambda key, shard: 0, lambda state, mean: state), "client_update", "(key, shard)"),
    (buffered(unchanged, lambda state: state), "server_step", "(state)"),
    (buffered(unchanged, lambda state, mean: mean), "server_step", "a field `params`"),
    (buffered(unchanged, lambda state, mean: None), "server_step", "None"),
]
ROWS = [(f"a round of one's own, {i}", *row) for i, row in enumerate(OWN)]
for i, (name, changes, field, shown) in enumerate(ENTRY):
    ROWS.append((f"{i}: {name}, {field}", certifying(name, **changes), field, shown))
