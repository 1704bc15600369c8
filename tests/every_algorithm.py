"""Every algorithm, for one small federation: a new one gets one entry, and is held to all laws that it fits."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from own_algorithms import error_feedback
from small import regression, squared, start

import fedpriv as fp
from fedpriv import algorithms
from fedpriv.experiments.papers.dp_scaffold import local_steps
from fedpriv.mechanisms.clipping import coefficients, flat, per_level
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.rounds.one_round import Carried, round_in_run
from fedpriv.rounds.scheduled_samplers import first_memories
from fedpriv.testing.compiled import compiled

CLIENTS, PER_CLIENT, D = 6, 3, 4
FEDERATION, PARAMS = regression([PER_CLIENT] * CLIENTS, public=2), start()
SIZES = 3, 1, 2, 3, 2, 1
UNEQUAL = FEDERATION.replace(
    client_rows=FEDERATION.client_rows.replace(size=jnp.array(SIZES, jnp.int32))
)
"""Whose clients hold the first so many of their records: the same programs take it."""
TRAINING = {
    "optimizer": lambda t: optax.sgd(0.1 * 0.9**t, momentum=0.5),
    "batches": fp.full_batch(),
}
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
FIXED, POISSON = fp.fixed_size(CLIENTS, 3), fp.poisson(CLIENTS, 0.5, 4)
COMMON = {"sampler": FIXED, **TRAINING}
FIXED_COHORTS = {"loss": squared, **COMMON}
POISSON_COHORTS = FIXED_COHORTS | {"sampler": POISSON}
RAND_K, TOP_K = fp.papers.select_rand_k(0.5), fp.papers.select_top_k(0.5, fp.full_batch())
HAAR = fp.mechanism(flat(), haar_noise(D), **PRIVATE)
LEVELS = fp.mechanism(per_level(D), haar_noise(D), **PRIVATE)
COEFFICIENTS = fp.mechanism(coefficients(2), haar_noise(2), calibrated=True, **PRIVATE)
NOISY = fp.gaussian(**PRIVATE)
SKELLAM = fp.skellam(bits=16, **PRIVATE)
DISCRETE = fp.discrete_gaussian(bits=16, **PRIVATE)
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
LATE = fp.delays.geometric(1.0, 3)
SPLIT = {
    "sampler": fp.with_replacement([1, 1, 1, 1, 1, 2], 4),
    "splitting": fp.papers.splitting.uniform(0.3),
    "coupling": fp.papers.consensus.coupling(0.4, 0.1),
    "exchanges": fp.papers.consensus.constant(3),
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
    def algorithm(self) -> fp.Algorithm:
        """Made once."""
        return made(self.make)

    @property
    def keeps(self) -> type:
        """The class of its state: the model alone, an optimiser's, models of before, what clients keep, and so on."""
        return type(begun(self.make))

    @property
    def kind(self) -> tuple:
        """Who adds noise to what, in which numbers: on this depends what is certified."""
        return self.noise, self.algorithm.unit, self.of_integers, self.rounds

    @property
    def work(self) -> str:
        """What clients bound: their message, or what they compute of each record."""
        return self.algorithm.unit

    @property
    def has_own(self) -> bool:
        """Whether something of its state is there once for each client."""
        return any(leaf.shape[:1] == (CLIENTS,) for leaf in jax.tree.leaves(begun(self.make)))

    @property
    def federations(self) -> list[fp.Federation]:
        """Those it takes: also the unequal one, unless so many records are drawn of so many that each client has."""
        records = getattr(self.make.keywords.get("local"), "records", None)
        return [FEDERATION] if records is TWO or records is PUBLIC else [FEDERATION, UNEQUAL]

    @property
    def shipped(self) -> bool:
        """Whether it is the library's, and not one of a user's own."""
        return self.make.func.__module__.startswith("fedpriv.")

    @property
    def of_integers(self) -> bool:
        """Whether its noisy sums are of integers, which count everybody equally."""
        given = self.make.keywords
        used = given.get("mechanism", getattr(given.get("local"), "mechanism", None))
        return getattr(used, "integers", None) is not None

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


@cache
def made(make: Callable[..., fp.Algorithm]) -> fp.Algorithm:
    """The algorithm of an entry."""
    return make()


@cache
def begun(make: Callable[..., fp.Algorithm]):
    """Its first state, in shapes."""
    return jax.eval_shape(made(make).init, PARAMS, FEDERATION)


def entry(
    function, noise="", claim="", /, *, rounds=False, draws=True, sends=D, **options
) -> Entry:
    """The `Entry` of a function with these options."""
    return Entry(partial(function, **options), noise, claim, rounds, draws, sends)


ENTRIES = {
    "fed_avg": entry(fp.fed_avg, **FIXED_COHORTS | {"batches": fp.epochs(1, 2)}),
    "fed_sgd": entry(
        fp.fed_sgd, draws=False, loss=squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1
    ),
    "dp_fed_avg": entry(fp.dp_fed_avg, "shares", "epsilon", **POISSON_COHORTS, **PRIVATE),
    "dp_fed_avg, fed_adam, weighted": entry(
        fp.dp_fed_avg,
        "shares",
        "epsilon",
        server=fp.fed_opt.adam(0.1),
        weighting=fp.ByExamples(cap=4),
        **FIXED_COHORTS,
        **PRIVATE,
    ),
    "dp_fed_avg qsgd": entry(
        fp.dp_fed_avg,
        "server",
        "epsilon",
        rounds=True,
        codec=fp.qsgd(8),
        **FIXED_COHORTS,
        **PRIVATE,
    ),
    "dp_fed_avg_wav": entry(
        fp.papers.dp_fed_avg_wav,
        "shares",
        "not proved",
        d=D,
        bounded="update",
        **FIXED_COHORTS,
        **PRIVATE,
    ),
    "buffered_fed_avg": entry(
        fp.buffered_fed_avg,
        "shares",
        delay=fp.delays.geometric(1.0, 1),
        mechanism=NOISY,
        **FIXED_COHORTS | {"sampler": fp.FreeClients(CLIENTS, buffer=3)},
    ),
    "buffered_fed_avg secret": entry(
        fp.buffered_fed_avg,
        "shares",
        delay=fp.delays.by_class([*"aabbbb"], {"a": LATE, "b": fp.delays.constant(0)}),
        mechanism=NOISY,
        server=fp.fed_opt.adam(0.1),
        **POISSON_COHORTS,
    ),
    "fed_avg changing": entry(fp.fed_avg, "shares", mechanism=CHANGING, **FIXED_COHORTS),
    "fed_avg integers": entry(
        fp.fed_avg,
        "shares",
        rounds=True,
        mechanism=SKELLAM,
        server=fp.fed_opt.adam(0.1),
        weighting=fp.ByExamples(cap=4),
        **POISSON_COHORTS,
    ),
    "fed_avg levels": entry(fp.fed_avg, "shares", mechanism=LEVELS, **FIXED_COHORTS),
    "fed_smp rand_k": entry(
        fp.fed_smp, "shares", "epsilon", sends=2, sparsifier=RAND_K, **FIXED_COHORTS, **PRIVATE
    ),
    "fed_smp top_k": entry(
        fp.fed_smp,
        "shares",
        "epsilon",
        sends=2,
        sparsifier=TOP_K,
        **FIXED_COHORTS | {"sampler": fp.everyone(CLIENTS)},
        **PRIVATE,
    ),
    "fed_avg_sparse haar": entry(
        fp.papers.fed_avg_sparse,
        "shares",
        sends=2,
        sparsifier=RAND_K,
        mechanism=COEFFICIENTS,
        **FIXED_COHORTS,
    ),
    "fed_avg_sparse integers": entry(
        fp.papers.fed_avg_sparse,
        "shares",
        rounds=True,
        sends=2,
        sparsifier=TOP_K,
        mechanism=DISCRETE,
        **FIXED_COHORTS,
    ),
    "adaptive_fed_avg": entry(
        fp.adaptive_fed_avg,
        "shares",
        quantile=0.5,
        count_noise=1.0,
        **POISSON_COHORTS,
        **PRIVATE,
    ),
    "fed_per": entry(
        fp.fed_per, "shares", sends=D - 1, head=("b",), mechanism=NOISY, **FIXED_COHORTS
    ),
    "fed_rep": entry(
        fp.fed_rep,
        "shares",
        sends=D - 1,
        head=("b",),
        head_batches=fp.epochs(1, 2),
        mechanism=NOISY,
        **POISSON_COHORTS,
    ),
    "fed_avg_alternating": entry(
        fp.fed_avg_alternating,
        "shares",
        sends=D - 1,
        turns=("w", "b"),
        mechanism=NOISY,
        **FIXED_COHORTS,
    ),
    "fed_avg_alternating by steps": entry(
        fp.fed_avg_alternating,
        "shares",
        turns=("w", "b"),
        by="steps",
        mechanism=NOISY,
        **POISSON_COHORTS | {"batches": fp.epochs(3, 2)},
    ),
    "ditto": entry(fp.ditto, "shares", lam=0.3, mechanism=NOISY, **FIXED_COHORTS),
    "error feedback": entry(
        error_feedback, "server", loss=squared, sampler=POISSON, mechanism=NOISY, codec=fp.top_k(2)
    ),
    "dp_scaffold": entry(
        fp.dp_scaffold, "own", "epsilon", sends=2 * D, local=NOISY_LOCAL, sampler=POISSON
    ),
    "dp_scaffold qsgd": entry(
        fp.dp_scaffold, rounds=True, sends=2 * D, local=LOCAL, sampler=FIXED, codec=fp.qsgd(8)
    ),
    "dp_sgd, claimed": entry(
        fp.dp_sgd, "own", "epsilon", local=NOISY_LOCAL, sampler=FIXED, claim="dp_scaffold"
    ),
    "dp_adam": entry(fp.dp_sgd, "own", local=ADAM, sampler=FIXED),
    "dp_sgd, together": entry(
        fp.dp_sgd,
        "shares",
        local=ADAM._replace(steps=1, records=TWO),
        sampler=FIXED,
        together=True,
    ),
    "dp_sgd, together, integers": entry(
        fp.dp_sgd,
        "shares",
        rounds=True,
        local=ADAM._replace(steps=1, records=TWO, mechanism=DISCRETE),
        sampler=FIXED,
        together=True,
    ),
    "dp_sgd, public sizes": entry(
        fp.dp_sgd, "own", local=ADAM._replace(records=PUBLIC), sampler=FIXED, weighting=WEIGHTS
    ),
    "dp_sgd_wav": entry(
        fp.papers.dp_sgd_wav,
        "own",
        "not proved",
        local=NOISY_LOCAL._replace(mechanism=HAAR),
        sampler=POISSON,
    ),
    "msp_fl": entry(fp.papers.msp_fl, loss=squared, **TRAINING, **SPLIT),
    "mspdq_fl": entry(
        fp.papers.mspdq_fl, "", "not proved", rounds=True, bits=8, loss=squared, **TRAINING, **SPLIT
    ),
    "ldp_fed_avg": entry(
        fp.papers.ldp_fed_avg, "own", mechanism=fp.laplace(0.5, 1.2), **FIXED_COHORTS
    ),
    "jopeq": entry(
        fp.papers.jopeq,
        "",
        "not proved",
        rounds=True,
        bits=8,
        bound=0.1,
        epsilon=2.0,
        **FIXED_COHORTS,
    ),
}


def that(fit: Callable[[Entry], bool]) -> list[str]:
    """The names of those whose entry fits."""
    return [name for name, entry in ENTRIES.items() if fit(entry)]


MAKERS = {name: entry.make for name, entry in ENTRIES.items()}
ALGORITHMS = {name: entry.algorithm for name, entry in ENTRIES.items()}


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
    """(the state before, (root key, federation) -> (state, metrics)) of the first round, which is compiled once."""
    algorithm, root = ALGORITHMS[name], jax.random.key(1)
    state = algorithm.init(PARAMS, FEDERATION)
    memories = traced(name).first_memory(1), first_memories(algorithm.sampler)
    carried = Carried(state, *memories)
    run = compiled(round_in_run(algorithm), root, carried, FEDERATION, state.round)

    def once(root, federation=FEDERATION):
        (after, *_), metrics = run(root, carried, federation, state.round)
        return after, metrics

    return state, once
