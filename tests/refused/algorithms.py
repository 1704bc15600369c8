"""Algorithms, their parts, and the weights that clients count by."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, PARAMS, PER_CLIENT
from small import squared

import fedpriv as fp
from experiments.papers.dp_scaffold import local_steps
from fedpriv.algorithms.consensus import check_coupling, coupling
from fedpriv.algorithms.jopeq import private_laplace, private_t
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.papers import consensus, haar_mechanism, jopeq_claim, splitting
from refused.row import Refusal

INF, NAN = math.inf, math.nan
HAAR = fp.mechanism(flat(), haar_noise(4), clip_norm=1.0, noise_multiplier=1.0)
NOISY, ALL = fp.gaussian(0.5, 1.2), fp.everyone(CLIENTS)
VARYING = fp.dropping(fp.fixed_size(CLIENTS, 3), 0.5)
WITH_GAPS = fp.fixed_size(CLIENTS, 4)._replace(slots=5)
FREE = fp.FreeClients(CLIENTS, buffer=3)
LOTS = ENTRIES["dp_sgd_wav"].make.keywords["local"]._replace(records=fp.poisson(PER_CLIENT, 0.5))
FULL = fp.full_batch()

# An entry of the registry, the field, its value, what is shown (by default the value), what else is given.
MADE = [
    ("adaptive_fed_avg", "quantile", 0.0),
    ("adaptive_fed_avg", "quantile", NAN),
    ("adaptive_fed_avg", "clip_norm", 0.0),
    ("adaptive_fed_avg", "clip_norm", 1e9),
    ("adaptive_fed_avg", "noise_multiplier", -1.0),
    ("adaptive_fed_avg", "noise_multiplier", -1.0, "-1.0", {"mechanism": HAAR}),
    ("adaptive_fed_avg", "count_noise", INF),
    ("adaptive_fed_avg", "clip_rate", -0.2),
    ("adaptive_fed_avg", "count_noise", 0.6),
    ("adaptive_fed_avg", "mechanism", fp.laplace(1.0, 1.0), "clip norm can be changed"),
    ("adaptive_fed_avg", "mechanism", fp.dynamic(HAAR, rounds=3), "clip norm can be changed"),
    ("adaptive_fed_avg", "count_noise", None, "give more than half", {"noise_multiplier": 2.0}),
    ("fed_avg_alternating", "turns", "B$", "'B$'"),
    ("fed_avg_alternating", "turns", ()),
    ("fed_avg_alternating", "by", "epochs", "'epochs'"),
    ("fed_avg_alternating", "after", 3),
    ("dp_scaffold", "warm_start", -1),
    ("dp_scaffold", "everyone_first", True, ""),
    ("dp_scaffold", "sampler", fp.with_replacement([1] * CLIENTS, 2), "counts twice"),
    ("dp_scaffold", "server", 0.5),
    ("dp_fed_avg_wav", "bounded", "updates", "'updates'"),
    ("dp_sgd_wav", "noise_on_each", True, "Poisson", {"local": LOTS}),
    ("dp_fed_avg", "clip_norm", 0),
    ("dp_fed_avg", "clip_norm", NAN),
    ("dp_fed_avg", "clip_norm", INF),
    ("dp_fed_avg", "noise_multiplier", -1),
    ("dp_fed_avg", "server", optax.adam, "adam"),
    ("fed_smp rand_k", "server", lambda t: optax.sgd(1.0), ""),
    ("fed_smp rand_k", "clip_norm", -1),
    ("fed_smp rand_k", "noise_multiplier", -1),
    ("jopeq", "noise", "cauchy", "'cauchy'"),
    ("msp_fl", "submodels", (0, 2), "submodels[0]: 0"),
    ("msp_fl", "submodels", (3, 2)),
    ("msp_fl", "sampler", fp.poisson(CLIENTS, 0.5, 6), "vary in size"),
    ("msp_fl", "sampler", VARYING, "vary in size"),
    ("msp_fl", "sampler", WITH_GAPS, "empty slots"),
    ("msp_fl", "step", None, "2.0", {"coupling": coupling(2.0, 0.1)}),
    ("msp_fl", "gamma", None, "0.15", {"coupling": coupling(0.4, 0.15), "submodels": (1, 9)}),
    ("mspdq_fl", "bits", 0),
    ("buffered_fed_avg", "most_late", 0),
    ("buffered_fed_avg", "most_late", -1),
    ("buffered_fed_avg", "sampler", 3),
    ("buffered_fed_avg", "delay", 2),
    ("buffered_fed_avg", "mechanism", 1.0),
    ("fed_avg", "sampler", FREE, "fp.buffered_fed_avg"),
]
# What only the first state tells.
BEGUN = [
    ("fed_avg_alternating", "turns", ("C$",), "'C$'"),
    ("msp_fl", "weights", lambda key, shape: jnp.ones(3), "(3,)"),
    ("fed_per", "head", ("c",), "'c'"),
    ("fed_per", "head", ("b", "w")),
    ("fed_per", "head", "b", "'b'"),
]
STEPS = [
    ("steps", 0, {}),
    ("clip_norm", 0.0, {}),
    ("clip_norm", "mean", {}),
    ("clip_norm", INF, {"noise_multiplier": 1.0}),
    ("unit", "user", {}),
    ("tensors", 0, {}),
]
COUPLINGS = [
    (1.4, 0.1, 1, "step", "1.4"),
    (0.0, 0.1, 1, "step", "0.0"),
    (0.5, 0.4, 1, "gamma", "0.4"),
    (0.5, 0.1, 4, "gamma", "0.4"),
    (0.5, 0.0, 1, "gamma", "0.0"),
    (1.5, 0.1, 18, "step", "1.5"),
]
CALLS = [
    (fp.models.refactored, ([1],), "params", ""),
    (fp.models.refactored, ({"w": {"A": jnp.ones((2, 1))}},), "params['w']", ""),
    (partial(haar_mechanism, clip_norm=1.0, noise_multiplier=1.0, clip="level"), (4,), "clip", ""),
    (partial(fp.fed_opt.adam, adaptivity=0), (0.1,), "adaptivity", "0"),
    (partial(fp.fed_opt.yogi, second_momentum=1), (0.1,), "second_momentum", "1"),
    (fp.proximal, (optax.sgd(0.1), -0.1), "mu", "-0.1"),
    (fp.proximal, (optax.sgd(0.1), INF), "mu", "inf"),
    (fp.proximal, (optax.sgd(0.1), NAN), "mu", "nan"),
    (fp.papers.select_rand_k, (0,), "p", "0"),
    (fp.papers.select_rand_k, (1.01,), "p", "1.01"),
    (partial(fp.papers.select_rand_k, period=0), (0.5,), "period", "0"),
    (fp.papers.select_top_k, (NAN, FULL), "p", "nan"),
    (partial(fp.papers.select_top_k, period=0), (0.5, FULL), "period", "0"),
    (private_laplace, (2, 1.0, 50.0), "bits", "2-bit"),
    (private_laplace, (8, 0.0, 1.0), "bound", "0.0"),
    (private_laplace, (8, 1.0, INF), "epsilon", "inf"),
    (partial(private_laplace, tail=0.0), (8, 1.0, 1.0), "tail", "0.0"),
    (private_t, (8, 1.0, 1.0, 2.0), "degrees", "2.0"),
    (jopeq_claim, (-1.0, "t"), "epsilon", "-1.0"),
    (jopeq_claim, (1.0, "gauss"), "noise", "'gauss'"),
    *(
        (make, (least,), "least", str(least))
        for make in (splitting.per_client, splitting.per_submodel)
        for least in (0.0, 1.1, NAN)
    ),
    (splitting.uniform, (1.0,), "factor", "1.0"),
    (splitting.gaussian, (0.0,), "std", "0.0"),
    (splitting.laplace, (-1.0, 1.0), "sensitivity", "-1.0"),
    (coupling, (0.5, 0.1, "fast"), "decay", "'fast'"),
    (consensus.constant, (-1,), "count", "-1"),
    (consensus.by_rate, (lambda t: 0.1, 1.0, 5), "contraction", "1.0"),
    (consensus.by_rate, (lambda t: 0.1, 0.5, 0), "most", "0"),
    (consensus.fixed, (8, -1.0), "bound", "-1.0"),
    (consensus.dynamic, (0,), "bits", "0"),
    (consensus.dynamic, (8, "l1"), "norm", "'l1'"),
    (fp.ByExamples, (INF,), "cap", "inf"),
    (fp.ByExamples, (0,), "cap", "0"),
    (fp.ByExamples, (3, 1.5), "mean", "1.5"),
    (partial(fp.ByExamples, estimator="mean"), (3,), "estimator", "'mean'"),
    (fp.straggling, (FULL, 1.5), "rate", "1.5"),
    (fp.straggling, (3, 0.5), "work", "3"),
    (partial(fp.dynamic, rounds=3), (fp.gaussian(0.5, 0),), "start", ""),
    (partial(fp.dynamic, rounds=3), (fp.laplace(0.5, 1),), "start", ""),
    (partial(fp.dynamic, rounds=0), (NOISY,), "rounds", "0"),
    (partial(fp.dynamic, rounds=3, parts=0), (NOISY,), "parts", "0"),
    (partial(fp.dynamic, rounds=3, clip_decay=0.0), (NOISY,), "clip_decay", "0.0"),
    (partial(fp.dynamic, rounds=3, noise_decay=NAN), (NOISY,), "noise_decay", "nan"),
]


def made(name, field, value, shown=None, more=None, begun=False):
    """The row of an entry with these options."""
    given = ({} if value is None and more and "coupling" in more else {field: value}) | (more or {})

    def call():
        algorithm = ENTRIES[name].make(**given)
        if begun:
            jax.eval_shape(algorithm.init, PARAMS, FEDERATION)

    shown = str(value) if shown is None else shown
    return Refusal(f"{name}, {field} {shown}, with {len(given)}", call, field, shown)


def stepping(field, value, more):
    """The row of local steps of which this is wrong."""
    given = {"records": fp.everyone(PER_CLIENT), "steps": 3, "learning_rate": 0.1, field: value}

    def call():
        fp.dp_scaffold(local_steps(fp.per_example(squared), **given | more), sampler=ALL)

    return Refusal(f"local steps, {field} {value}", call, field, str(value))


def coupled(e, gamma, submodels, field, shown):
    """The row of a coupling of four clients; the last one, where instability is allowed."""

    def call():
        check_coupling(coupling(e, gamma), 4, submodels, stable=submodels < 18)

    return Refusal(f"a coupling of {e}, {gamma} for {submodels}", call, field, shown)


def personal_model(client, seeds=0):
    """Ditto's, of its first state."""
    algorithm = ENTRIES["ditto"].make()
    state = algorithm.init(PARAMS, FEDERATION)
    if seeds:
        state = jax.tree.map(lambda leaf: np.stack([leaf] * seeds), state)
    return algorithm.personal(state, client)


PERSONAL = [
    Refusal("a client that is not there", partial(personal_model, CLIENTS), "client", str(CLIENTS)),
    Refusal("client -1", partial(personal_model, -1), "client", "-1"),
    Refusal(
        "the model of a client, of several seeds",
        partial(personal_model, 2, seeds=2),
        "state",
        remedy="give the state of one, history.state_of(seed)",
    ),
]
ROWS = [
    *(made(*row) for row in MADE),
    *(made(*row, begun=True) for row in BEGUN),
    *(stepping(*row) for row in STEPS),
    *(coupled(*row) for row in COUPLINGS),
    *(
        Refusal(f"call {place}, {field} {shown}", partial(function, *given), field, shown)
        for place, (function, given, field, shown) in enumerate(CALLS)
    ),
    *PERSONAL,
]
