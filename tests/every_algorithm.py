"""Every algorithm, for one small federation: a new one gets one line in MAKERS, and is held to all that others are."""

from functools import cache, partial

import jax
import optax
from own_algorithms import error_feedback
from small import regression, squared, start

import fedpriv as fp
from experiments.papers.dp_scaffold import local_steps
from fedpriv.mechanisms.clipping import coefficients, flat, per_level
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.rounds.one_round import Carried, round_in_run
from fedpriv.rounds.scheduled_samplers import first_memories
from fedpriv.testing.compiled import compiled

CLIENTS, PER_CLIENT, D = 6, 3, 4
FEDERATION, PARAMS = regression([PER_CLIENT] * CLIENTS, public=2), start()
TRAINING = {
    "optimizer": lambda t: optax.sgd(0.1 * 0.9**t, momentum=0.5),
    "batches": fp.full_batch(),
}
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
FIXED, POISSON = fp.fixed_size(CLIENTS, 3), fp.poisson(CLIENTS, 0.5, 4)
COMMON = {"sampler": FIXED, **TRAINING}
RAND_K, TOP_K = fp.select_rand_k(0.5), fp.select_top_k(0.5, fp.full_batch())
HAAR = fp.mechanism(flat(), haar_noise(D), **PRIVATE)
LEVELS = fp.mechanism(per_level(D), haar_noise(D), **PRIVATE)
COEFFICIENTS = fp.mechanism(coefficients(2), haar_noise(2), calibrated=True, **PRIVATE)
NOISY = fp.gaussian(**PRIVATE)
CHANGING = fp.dynamic(NOISY, rounds=9, clip_decay=2.0)
GRADIENTS = fp.per_example(squared, 1e-2)
TWO = fp.fixed_size(PER_CLIENT, 2)
PUBLIC = fp.PublicSizes([PER_CLIENT] * CLIENTS, batch=2)
WEIGHTS = fp.ByPublicSizes([PER_CLIENT] * CLIENTS)
LOCAL = local_steps(GRADIENTS, TWO, 2, 0.1)
NOISY_LOCAL = local_steps(GRADIENTS, TWO, 2, 0.1, **PRIVATE)
ADAM = fp.LocalSteps(
    GRADIENTS, fp.poisson(PER_CLIENT, 0.5, 3), 2, lambda t: optax.adam(0.1), fp.gaussian(0.5, 1.2)
)
SPLIT = {
    "sampler": fp.with_replacement([1, 1, 1, 1, 1, 2], 4),
    "splitting": fp.splitting.uniform(0.3),
    "coupling": fp.consensus.coupling(0.4, 0.1),
    "exchanges": fp.consensus.constant(3),
    "submodels": (1, 2),
}

MAKERS = {
    "fed_avg": partial(fp.fed_avg, squared, **COMMON | {"batches": fp.epochs(1, 2)}),
    "fed_sgd": partial(fp.fed_sgd, squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1),
    "dp_fed_avg": partial(fp.dp_fed_avg, squared, sampler=POISSON, **TRAINING, **PRIVATE),
    "dp_fed_avg, fed_adam, weighted": partial(
        fp.dp_fed_avg,
        squared,
        server=fp.fed_opt.adam(0.1),
        weighting=fp.ByExamples(cap=4),
        **COMMON,
        **PRIVATE,
    ),
    "dp_fed_avg qsgd": partial(fp.dp_fed_avg, squared, codec=fp.qsgd(8), **COMMON, **PRIVATE),
    "dp_fed_avg_wav": partial(
        fp.dp_fed_avg_wav, squared, d=D, bounded="update", **COMMON, **PRIVATE
    ),
    "fed_avg changing": partial(fp.fed_avg, squared, mechanism=CHANGING, **COMMON),
    "fed_avg levels": partial(fp.fed_avg, squared, mechanism=LEVELS, **COMMON),
    "fed_smp rand_k": partial(fp.fed_smp, squared, sparsifier=RAND_K, **COMMON, **PRIVATE),
    "fed_smp top_k": partial(
        fp.fed_smp,
        squared,
        sparsifier=TOP_K,
        sampler=fp.everyone(CLIENTS),
        **TRAINING,
        **PRIVATE,
    ),
    "fed_avg_sparse haar": partial(
        fp.fed_avg_sparse, squared, sparsifier=RAND_K, mechanism=COEFFICIENTS, **COMMON
    ),
    "adaptive_fed_avg": partial(
        fp.adaptive_fed_avg,
        squared,
        sampler=POISSON,
        quantile=0.5,
        count_noise=1.0,
        **TRAINING,
        **PRIVATE,
    ),
    "fed_per": partial(fp.fed_per, squared, head=("b",), mechanism=NOISY, **COMMON),
    "fed_rep": partial(
        fp.fed_rep,
        squared,
        head=("b",),
        head_batches=fp.epochs(1, 2),
        mechanism=NOISY,
        sampler=POISSON,
        **TRAINING,
    ),
    "ditto": partial(fp.ditto, squared, lam=0.3, mechanism=NOISY, **COMMON),
    "error feedback": partial(
        error_feedback, squared, sampler=POISSON, mechanism=NOISY, codec=fp.top_k(2)
    ),
    "dp_scaffold": partial(fp.dp_scaffold, NOISY_LOCAL, sampler=POISSON),
    "dp_scaffold qsgd": partial(fp.dp_scaffold, LOCAL, sampler=FIXED, codec=fp.qsgd(8)),
    "dp_sgd, claimed": partial(fp.dp_sgd, NOISY_LOCAL, sampler=FIXED, claim="dp_scaffold"),
    "dp_adam": partial(fp.dp_sgd, ADAM, sampler=FIXED),
    "dp_sgd, together": partial(
        fp.dp_sgd, ADAM._replace(steps=1, records=TWO), sampler=FIXED, together=True
    ),
    "dp_sgd, public sizes": partial(
        fp.dp_sgd, ADAM._replace(records=PUBLIC), sampler=FIXED, weighting=WEIGHTS
    ),
    "dp_sgd_wav": partial(fp.dp_sgd_wav, NOISY_LOCAL._replace(mechanism=HAAR), sampler=POISSON),
    "msp_fl": partial(fp.msp_fl, squared, **SPLIT, **TRAINING),
    "mspdq_fl": partial(fp.mspdq_fl, squared, bits=8, **SPLIT, **TRAINING),
    "ldp_fed_avg": partial(fp.ldp_fed_avg, squared, mechanism=fp.laplace(0.5, 1.2), **COMMON),
    "jopeq": partial(fp.jopeq, squared, bits=8, bound=0.1, epsilon=2.0, **COMMON),
}
"""Name -> what makes the algorithm; it takes other options, such as `server`."""

ALGORITHMS = {name: make() for name, make in MAKERS.items()}


@cache
def traced(name: str):
    """Its `TracedRound`."""
    return fp.trace_round(ALGORITHMS[name], PARAMS, FEDERATION)


@cache
def first_round(name: str):
    """(the state before, root key -> (state, metrics)) of the first round; `check_algorithm` compiles the same."""
    algorithm, root = ALGORITHMS[name], jax.random.key(1)
    state = algorithm.init(PARAMS, FEDERATION)
    memories = traced(name).first_memory(1), first_memories(algorithm.sampler)
    given = Carried(state, *memories), FEDERATION, state.round
    run = compiled(round_in_run(algorithm), root, *given)

    def once(root):
        (after, *_), metrics = run(root, *given)
        return after, metrics

    return state, once
