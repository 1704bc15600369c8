"""Every algorithm, for one small federation: a new one gets one entry, and is held to all laws that it fits."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, NamedTuple

import jax
import optax
from own_algorithms import error_feedback
from small import regression, squared, start

import fedpriv as fp
from fedpriv import algorithms
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
LOCAL = fp.dp_scaffold_steps(GRADIENTS, TWO, 2, 0.1)
NOISY_LOCAL = fp.dp_scaffold_steps(GRADIENTS, TWO, 2, 0.1, **PRIVATE)
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


class Entry(NamedTuple):
    """An algorithm, and what laws ask of it.

    Attributes:
      make: other options -> the algorithm.
      noise: who adds it: clients their shares, each client its own, or the server.
      claim: of what its paper says: an epsilon, or what is not proved; "" if nothing.
      rounds: whether numbers are rounded to one of two levels by chance.
      draws: whether a round draws anything.
      sends: how many numbers a message has.
    """

    make: Callable[..., fp.Algorithm]
    noise: Literal["", "shares", "own", "server"] = ""
    claim: Literal["", "epsilon", "not proved"] = ""
    rounds: bool = False
    draws: bool = True
    sends: int = D

    @property
    def shipped(self) -> bool:
        """Whether it is the library's, and not one of a user's own."""
        return self.make.func.__module__.startswith("fedpriv.")

    def takes(self, option: str) -> bool:
        """Whether it has an argument of that name, if only to refuse some values of it."""
        try:
            self.make(**{option: None})
        except TypeError:
            return False
        except ValueError:  # no value of it
            pass
        return True

    def of_loss(self, loss) -> fp.Algorithm:
        """In the place of `squared`."""
        if self.takes("loss"):
            return self.make(loss=loss)
        local = self.make.keywords["local"]
        return self.make(local=local._replace(gradients=fp.per_example(loss, 1e-2)))


ENTRIES = {
    "fed_avg": Entry(partial(fp.fed_avg, loss=squared, **COMMON | {"batches": fp.epochs(1, 2)})),
    "fed_sgd": Entry(
        partial(fp.fed_sgd, loss=squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1),
        draws=False,
    ),
    "dp_fed_avg": Entry(
        partial(fp.dp_fed_avg, loss=squared, sampler=POISSON, **TRAINING, **PRIVATE),
        "shares",
        "epsilon",
    ),
    "dp_fed_avg, fed_adam, weighted": Entry(
        partial(
            fp.dp_fed_avg,
            loss=squared,
            server=fp.fed_opt.adam(0.1),
            weighting=fp.ByExamples(cap=4),
            **COMMON,
            **PRIVATE,
        ),
        "shares",
        "epsilon",
    ),
    "dp_fed_avg qsgd": Entry(
        partial(fp.dp_fed_avg, loss=squared, codec=fp.qsgd(8), **COMMON, **PRIVATE),
        "server",
        "epsilon",
        rounds=True,
    ),
    "dp_fed_avg_wav": Entry(
        partial(fp.dp_fed_avg_wav, loss=squared, d=D, bounded="update", **COMMON, **PRIVATE),
        "shares",
        "not proved",
    ),
    "fed_avg changing": Entry(
        partial(fp.fed_avg, loss=squared, mechanism=CHANGING, **COMMON), "shares"
    ),
    "fed_avg levels": Entry(
        partial(fp.fed_avg, loss=squared, mechanism=LEVELS, **COMMON), "shares"
    ),
    "fed_smp rand_k": Entry(
        partial(fp.fed_smp, loss=squared, sparsifier=RAND_K, **COMMON, **PRIVATE),
        "shares",
        "epsilon",
        sends=2,
    ),
    "fed_smp top_k": Entry(
        partial(
            fp.fed_smp,
            loss=squared,
            sparsifier=TOP_K,
            sampler=fp.everyone(CLIENTS),
            **TRAINING,
            **PRIVATE,
        ),
        "shares",
        "epsilon",
        sends=2,
    ),
    "fed_avg_sparse haar": Entry(
        partial(
            fp.fed_avg_sparse, loss=squared, sparsifier=RAND_K, mechanism=COEFFICIENTS, **COMMON
        ),
        "shares",
        sends=2,
    ),
    "adaptive_fed_avg": Entry(
        partial(
            fp.adaptive_fed_avg,
            loss=squared,
            sampler=POISSON,
            quantile=0.5,
            count_noise=1.0,
            **TRAINING,
            **PRIVATE,
        ),
        "shares",
    ),
    "fed_per": Entry(
        partial(fp.fed_per, loss=squared, head=("b",), mechanism=NOISY, **COMMON),
        "shares",
        sends=D - 1,
    ),
    "fed_rep": Entry(
        partial(
            fp.fed_rep,
            loss=squared,
            head=("b",),
            head_batches=fp.epochs(1, 2),
            mechanism=NOISY,
            sampler=POISSON,
            **TRAINING,
        ),
        "shares",
        sends=D - 1,
    ),
    "ditto": Entry(partial(fp.ditto, loss=squared, lam=0.3, mechanism=NOISY, **COMMON), "shares"),
    "error feedback": Entry(
        partial(error_feedback, loss=squared, sampler=POISSON, mechanism=NOISY, codec=fp.top_k(2)),
        "server",
    ),
    "dp_scaffold": Entry(
        partial(fp.dp_scaffold, local=NOISY_LOCAL, sampler=POISSON),
        "own",
        "epsilon",
        sends=2 * D,
    ),
    "dp_scaffold qsgd": Entry(
        partial(fp.dp_scaffold, local=LOCAL, sampler=FIXED, codec=fp.qsgd(8)),
        rounds=True,
        sends=2 * D,
    ),
    "record_fed_avg": Entry(
        partial(fp.record_fed_avg, local=NOISY_LOCAL, sampler=FIXED), "own", "epsilon"
    ),
    "dp_adam": Entry(partial(fp.dp_sgd, local=ADAM, sampler=FIXED), "own"),
    "dp_sgd, together": Entry(
        partial(fp.dp_sgd, local=ADAM._replace(steps=1, records=TWO), sampler=FIXED, together=True),
        "shares",
    ),
    "dp_sgd, public sizes": Entry(
        partial(fp.dp_sgd, local=ADAM._replace(records=PUBLIC), sampler=FIXED, weighting=WEIGHTS),
        "own",
    ),
    "dp_sgd_wav": Entry(
        partial(fp.dp_sgd_wav, local=NOISY_LOCAL._replace(mechanism=HAAR), sampler=POISSON),
        "own",
        "not proved",
    ),
    "msp_fl": Entry(partial(fp.msp_fl, loss=squared, **SPLIT, **TRAINING)),
    "mspdq_fl": Entry(
        partial(fp.mspdq_fl, loss=squared, bits=8, **SPLIT, **TRAINING),
        claim="not proved",
        rounds=True,
    ),
    "ldp_fed_avg": Entry(
        partial(fp.ldp_fed_avg, loss=squared, mechanism=fp.laplace(0.5, 1.2), **COMMON), "own"
    ),
    "jopeq": Entry(
        partial(fp.jopeq, loss=squared, bits=8, bound=0.1, epsilon=2.0, **COMMON),
        claim="not proved",
        rounds=True,
    ),
}


def that(fit: Callable[[Entry], bool]) -> list[str]:
    """The names of those whose entry fits."""
    return [name for name, entry in ENTRIES.items() if fit(entry)]


MAKERS = {name: entry.make for name, entry in ENTRIES.items()}
ALGORITHMS = {name: make() for name, make in MAKERS.items()}


def public_algorithms() -> set[Callable]:
    """Every public function of `fedpriv.algorithms` that makes an algorithm."""
    rooms = [
        importlib.import_module(f"{algorithms.__name__}.{room.name}")
        for room in pkgutil.iter_modules(algorithms.__path__)
    ]
    return {
        made
        for room in rooms
        for name, made in vars(room).items()
        if inspect.isfunction(made)
        and not name.startswith("_")
        and made.__module__ == room.__name__
        and made.__annotations__.get("return") in ("Algorithm", fp.Algorithm)
    }


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
