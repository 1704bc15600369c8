"""What only a round that is traced tells: parts that do not fit one another, or the federation."""

import jax
import jax.numpy as jnp
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, PARAMS, PER_CLIENT
from every_sampler import BY_RATE, N, by_groups
from own_algorithms import error_feedback
from small import regression, squared, start

import fedpriv as fp
from experiments.papers.dp_scaffold import local_steps
from fedpriv.papers import haar_mechanism
from refused.row import Refusal

NOISY, FREE = fp.gaussian(0.5, 1.2), fp.FreeClients(CLIENTS, buffer=3)
LOST = fp.dropping(fp.fixed_size(CLIENTS, 4), 0.3125, "lost")
GRADIENTS, LOCAL = fp.per_example(squared), ENTRIES["dp_sgd, claimed"].make.keywords["local"]
OTHERS = fp.everyone(CLIENTS - 1)


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


BY_HAND = fp.types.ScheduledSampler(
    every_other,
    CLIENTS // 2,
    CLIENTS / 2,
    fp.privacy.MinimumSeparation(CLIENTS, CLIENTS // 2, 2),
    lambda: jnp.int32(0),
)
SHORT = fp.types.Draw(jnp.zeros(2), jnp.zeros(2))
SCHEDULED = [
    ("without memory", {"draw": lambda key, t: None}, "draw", "(key, t)"),
    ("that gives no pair", {"draw": lambda *given: every_other(*given)[0]}, "draw", "memory"),
    (
        "whose memory changes its type",
        {"draw": lambda key, t, memory: (every_other(key, t, memory)[0], t + 0.5)},
        "draw: memory",
        "float32[]",
    ),
    (
        "whose memory changes its structure",
        {"draw": lambda key, t, memory: (every_other(key, t, memory)[0], (memory,))},
        "draw: memory",
        "1 values",
    ),
    ("of fewer slots", {"draw": lambda key, t, memory: (SHORT, memory)}, "draw", "of 3 slots"),
    ("that begins by a key", {"init": lambda key: jnp.int32(0)}, "init", "(key)"),
    ("that remembers a text", {"init": lambda: "none"}, "init: memory", "'none'"),
]

ROWS = [
    *(
        Refusal(
            f"a schedule by hand {name}",
            certifying("fed_avg changing", sampler=BY_HAND._replace(**changed)),
            *told,
        )
        for name, changed, *told in SCHEDULED
    ),
    Refusal("a sampler of other clients", certifying("dp_fed_avg", sampler=OTHERS), "sampler"),
    Refusal(
        "more tensors than the model has",
        certifying("dp_scaffold", local=steps(tensors=5)),
        "tensors",
        "5",
    ),
    Refusal(
        "a client with more records than are drawn among",
        certifying("dp_scaffold", regression([3, 4, 3, 3, 3, 3]), local=steps()),
        "records",
        "4",
    ),
    Refusal(
        "a Haar transform of other numbers",
        certifying(
            "dp_sgd_wav",
            local=LOCAL._replace(mechanism=haar_mechanism(5, clip_norm=1.0, noise_multiplier=1.0)),
        ),
        "d",
        "5",
    ),
    Refusal(
        "a sparsifier that keeps nothing",
        certifying("fed_smp rand_k", sparsifier=fp.papers.select_rand_k(0.1)),
        "p",
        "0.1",
    ),
    Refusal(
        "top_k without public examples",
        certifying("fed_smp top_k", regression([PER_CLIENT] * CLIENTS)),
        "public",
    ),
    Refusal(
        "more coordinates than a message has",
        lambda: fp.certify(error_feedback(codec=fp.top_k(5)), PARAMS, FEDERATION, 3, 1e-3),
        "k",
        "5",
    ),
    Refusal(
        "correlated noise of cohorts that lose some",
        certifying(
            "fed_avg changing",
            sampler=LOST,
            mechanism=fp.correlated(NOISY, fp.noise_matrices.banded_toeplitz(3, bands=2)),
        ),
        "sampler",
        "Dropping",
    ),
    Refusal(
        "Laplace noise of which some is lost",
        certifying("fed_avg changing", sampler=LOST, mechanism=fp.laplace(1.0, 1.0)),
        "mechanism",
        "whole",
    ),
    Refusal(
        "records that vanish",
        certifying(
            "dp_sgd, claimed",
            local=LOCAL._replace(records=fp.dropping(fp.fixed_size(PER_CLIENT, 2), 0.1)),
        ),
        "records",
    ),
    *(
        Refusal(f"weights {shown}", certifying("dp_fed_avg", weighting=weighting), "weighting", "")
        for shown, weighting in (
            ("without a bound", Unbounded()),
            ("that are a number", 20),
            ("that are a class", fp.ByExamples),
        )
    ),
    Refusal("weights of messages with noise", weighted(mechanism=fp.ALREADY_PRIVATE), "weighting"),
    Refusal("weights of messages that get noise", weighted(adder="own"), "weighting"),
    Refusal(
        "weights of groups, divided by what members weigh",
        mean_over_weights(by_groups(BY_RATE, weights={"a": 0.5, "b": 1.0})),
        "estimator",
    ),
    Refusal(
        "a client's update without the model",
        buffered(lambda key, shard: 0, lambda state, mean: state),
        "client_update",
        "(key, shard)",
    ),
    Refusal(
        "a server's step without the mean",
        buffered(unchanged, lambda state: state),
        "server_step",
        "(state)",
    ),
    Refusal(
        "a server's step that gives back the mean",
        buffered(unchanged, lambda state, mean: mean),
        "server_step",
        "params",
    ),
    Refusal(
        "a server's step that gives back nothing",
        buffered(unchanged, lambda state, mean: None),
        "server_step",
        "None",
    ),
]
