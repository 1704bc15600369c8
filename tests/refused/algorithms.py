"""Algorithms, their parts, the weights that clients count by, and claims of papers."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, GRADIENTS, PARAMS, PER_CLIENT

import fedpriv as fp
from fedpriv.algorithms.consensus import check_coupling, coupling
from fedpriv.algorithms.jopeq import private_laplace, private_t
from fedpriv.experiments.papers.dp_scaffold import local_steps
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.privacy.claims import haar_multiplier, mspdq_claim

HAAR = fp.mechanism(flat(), haar_noise(4), clip_norm=1.0, noise_multiplier=1.0)
VARYING = fp.dropping(fp.fixed_size(CLIENTS, 3), 0.5)
LOTS = ENTRIES["dp_sgd_wav"].make.keywords["local"]._replace(records=fp.poisson(PER_CLIENT, 0.5))
CHANGED = "whose clip norm can be changed"
NOT_FIXED = "vary in size or have empty slots"

# An entry of the registry, what is given, the field, what is shown.
MADE = [
    ("adaptive_fed_avg", {"count_noise": 0.6}, "count_noise", "0.6"),
    ("adaptive_fed_avg", {"noise_multiplier": 2.0}, "count_noise", "more than half"),
    ("adaptive_fed_avg", {"mechanism": fp.laplace(1.0, 1.0)}, "mechanism", CHANGED),
    ("adaptive_fed_avg", {"mechanism": fp.dynamic(HAAR, rounds=3)}, "mechanism", CHANGED),
    ("fed_avg_alternating", {"turns": "B$"}, "turns", "'B$'"),
    ("fed_avg_alternating", {"turns": ()}, "turns", "()"),
    ("fed_avg_alternating", {"after": 3}, "after", "3"),
    ("dp_scaffold", {"everyone_first": True}, "everyone_first", "there is no warm start"),
    ("dp_scaffold", {"sampler": fp.with_replacement([1] * 6, 2)}, "sampler", "counts twice"),
    ("dp_scaffold", {"server": 0.5}, "server", "0.5"),
    ("dp_sgd_wav", {"noise_on_each": True, "local": LOTS}, "noise_on_each", "Poisson"),
    ("dp_fed_avg", {"server": optax.adam}, "server", "the function adam"),
    ("fed_smp rand_k", {"server": lambda t: optax.sgd(1.0)}, "server", "<lambda>"),
    ("msp_fl", {"submodels": (3, 2)}, "submodels", "(3, 2)"),
    ("msp_fl", {"sampler": fp.poisson(CLIENTS, 0.5, 6)}, "sampler", NOT_FIXED),
    ("msp_fl", {"sampler": VARYING}, "sampler", NOT_FIXED),
    ("msp_fl", {"sampler": fp.fixed_size(CLIENTS, 4)._replace(slots=5)}, "sampler", NOT_FIXED),
    ("msp_fl", {"coupling": coupling(2.0, 0.1)}, "step", "2.0"),
    ("msp_fl", {"coupling": coupling(0.4, 0.15), "submodels": (1, 9)}, "gamma", "0.15"),
    ("buffered_fed_avg", {"most_late": 0}, "delay", ("1 steps", "most_late=0")),
    ("buffered_fed_avg", {"sampler": 3}, "sampler", "3"),
    ("buffered_fed_avg", {"delay": 2}, "delay", "2"),
    ("fed_avg", {"sampler": fp.FreeClients(CLIENTS, buffer=3)}, "sampler", "fp.buffered_fed_avg"),
    # What only the first state tells.
    ("fed_avg_alternating", {"turns": ("C$",)}, "turns", "'C$'"),
    ("msp_fl", {"weights": lambda key, shape: jnp.ones(3)}, "weights", "(3,)"),
    ("fed_per", {"head": ("c",)}, "head", "'c'"),
    ("fed_per", {"head": ("b", "w")}, "head", "('b', 'w')"),
    ("fed_per", {"head": "b"}, "head", "'b'"),
]


def made(name, given):
    """An entry with these options, begun."""
    jax.eval_shape(ENTRIES[name].make(**given).init, PARAMS, FEDERATION)


def coupled(step, gamma, submodels, stable=True):
    """A coupling of four clients."""
    return lambda: check_coupling(coupling(step, gamma), 4, submodels, stable=stable)


def personal_model(client, seeds=0):
    """Ditto's, of its first state."""
    algorithm = ENTRIES["ditto"].make()
    state = algorithm.init(PARAMS, FEDERATION)
    if seeds:
        state = jax.tree.map(lambda leaf: np.stack([leaf] * seeds), state)
    return algorithm.personal(state, client)


def changing(mechanism):
    return partial(fp.dynamic, mechanism, rounds=3)


def refactored(params):
    return partial(fp.models.refactored, params)


ONE_FACTOR = {"w": {"A": jnp.ones((2, 1))}}


def steps(clip_norm):
    return partial(local_steps, GRADIENTS, fp.everyone(PER_CLIENT), 3, 0.1, clip_norm=clip_norm)


ROWS = [
    *((f"{n}, {field}, {shown}", partial(made, n, g), field, shown) for n, g, field, shown in MADE),
    ("a clip norm of 0", steps(0.0), "clip_norm", "0.0"),
    ("a mean clip norm", steps("mean"), "clip_norm", ("'mean'", "'median'")),
    ("a coupling too strong", coupled(1.4, 0.1, 1), "step", "1.4"),
    ("one too strong, stable or not", coupled(1.5, 0.1, 18, stable=False), "step", "1.5"),
    ("noise too strong", coupled(0.5, 0.4, 1), "gamma", ("0.4", "0.3333")),
    ("noise of several too strong", coupled(0.5, 0.1, 4), "gamma", "adds up to 0.4"),
    ("parameters that are a list", refactored([1]), "params", "[1]"),
    ("one factor", refactored(ONE_FACTOR), "params['w']", "give A and B alone"),
    ("Adam of no adaptivity", lambda: fp.fed_opt.adam(0.1, adaptivity=0), "adaptivity", "0"),
    ("two bits of noise", lambda: private_laplace(2, 1.0, 50.0), "bits", "2-bit"),
    ("noise without bound", lambda: private_laplace(8, 0.0, 1.0), "bound", "0.0"),
    ("noise for any epsilon", lambda: private_laplace(8, 1.0, math.inf), "epsilon", "inf"),
    ("noise without tail", lambda: private_laplace(8, 1.0, 1.0, tail=0.0), "tail", "0.0"),
    ("noise without variance", lambda: private_t(8, 1.0, 1.0, 2.0), "degrees", "2.0"),
    ("a number for work", lambda: fp.straggling(3, 0.5), "work", "3"),
    ("no noise that changes", changing(fp.gaussian(0.5, 0)), "start", "no Gaussian noise"),
    ("Laplace noise that changes", changing(fp.laplace(0.5, 1)), "start", "no Gaussian noise"),
    ("a client that is not there", partial(personal_model, 6), "client", "6, but there are 6"),
    ("client -1", partial(personal_model, -1), "client", "-1"),
    ("the model of all seeds", partial(personal_model, 2, seeds=2), "state", "history.state_of"),
    ("twelve coefficients", lambda: haar_multiplier(1.0, 12, "levels"), "m", "12"),
    ("one level", lambda: mspdq_claim(1, 4, 1.0, 1.0), "levels", "1"),
    ("more levels than bits have", lambda: mspdq_claim(17, 4, 1.0, 1.0), "levels", "17"),
]
