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

HAAR = fp.mechanism(flat(), haar_noise(4), clip_norm=1.0, noise_multiplier=1.0)
NOISY = fp.gaussian(0.5, 1.2)
ALL = fp.everyone(CLIENTS)
VARYING = fp.dropping(fp.fixed_size(CLIENTS, 3), 0.5)


def making(name, **changes):
    """Makes an entry of the registry with these options."""
    return partial(ENTRIES[name].make, **changes)


def stepping(function, sampler=ALL, /, *, of_algorithm=None, **changes):
    """Makes an algorithm of local steps, of which some options are wrong."""
    given = {"records": fp.everyone(PER_CLIENT), "steps": 3, "learning_rate": 0.1} | changes
    gradients = fp.per_example(squared)
    return lambda: function(
        local_steps(gradients, **given), sampler=sampler, **(of_algorithm or {})
    )


def refactoring(params):
    return lambda: fp.models.refactored(params)


def begins(name, **changes):
    """Of what only the first state tells."""
    return lambda: jax.eval_shape(ENTRIES[name].make(**changes).init, PARAMS, FEDERATION)


def own_weights(**given):
    return lambda: fp.ByExamples(**given)


ADAPTIVE = [
    ("quantile", 0.0, {}),
    ("quantile", math.nan, {}),
    ("clip_norm", 0.0, {}),
    ("clip_norm", 1e9, {}),
    ("noise_multiplier", -1.0, {}),
    ("noise_multiplier", -1.0, {"mechanism": HAAR}),
    ("count_noise", math.inf, {}),
    ("clip_rate", -0.2, {}),
    ("count_noise", 0.6, {}),
    ("mechanism", fp.laplace(1.0, 1.0), {}),
    ("mechanism", fp.dynamic(HAAR, rounds=3), {}),
]
STEPS = [
    ("steps", 0, "0", {}),
    ("clip_norm", 0.0, "0.0", {}),
    ("clip_norm", "mean", "'mean'", {}),
    ("noise_multiplier", -1.0, "-", {}),
    ("clip_norm", math.inf, "inf", {"noise_multiplier": 1.0}),
    ("unit", "user", "'user'", {}),
    ("tensors", 0, "0", {}),
]
MSP = [
    ("submodels", (0, 2), "submodels[0]: 0"),
    ("submodels", (3, 2), "submodels: (3, 2)"),
    ("sampler", fp.poisson(CLIENTS, 0.5, 6), "sampler: cohorts vary in size"),
    ("sampler", VARYING, "sampler: cohorts vary"),
    ("sampler", fp.fixed_size(CLIENTS, 4)._replace(slots=5), "empty slots"),
    ("coupling", coupling(2.0, 0.1), "step: 2.0"),
]
SCHEDULED = {
    "rounds": 0,
    "parts": 0,
    "clip_decay": 0.0,
    "noise_decay": math.nan,
}
MINE = fp.delays.geometric(1.0, 3)
FREE = fp.FreeClients(12, buffer=3)


def buffered(**changes):
    given = {"sampler": FREE, "delay": MINE, "mechanism": NOISY}
    return making("buffered_fed_avg", **given | changes)


ROWS = [
    *(
        Refusal(
            f"adaptive clipping, {field} {place}",
            making("adaptive_fed_avg", **{field: value, **more}),
            field,
            "" if field == "mechanism" else str(value),
        )
        for place, (field, value, more) in enumerate(ADAPTIVE)
    ),
    Refusal(
        "a count's noise, by default a twentieth of few",
        making("adaptive_fed_avg", count_noise=None, noise_multiplier=2.0),
        "count_noise",
        remedy="give more than half the noise_multiplier",
    ),
    *(
        Refusal(
            f"alternating {field}", making("fed_avg_alternating", **{field: value}), field, said
        )
        for field, value, said in (
            ("turns", "B$", "'B$'"),
            ("turns", (), "()"),
            ("by", "epochs", "'epochs'"),
            ("after", 3, "3"),
        )
    ),
    Refusal("a turn of nothing", begins("fed_avg_alternating", turns=("C$",)), "turns", "'C$'"),
    Refusal("factoring no adapters", refactoring([1]), "params"),
    Refusal("factoring a lone A", refactoring({"w": {"A": jnp.ones((2, 1))}}), "params['w']"),
    *(
        Refusal(
            f"local steps, {field} {shown}",
            stepping(fp.dp_scaffold, **{field: value, **more}),
            field,
            shown,
        )
        for field, value, shown, more in STEPS
    ),
    Refusal(
        "a warm start of -1",
        stepping(fp.dp_scaffold, of_algorithm={"warm_start": -1}),
        "warm_start",
        "-1",
    ),
    Refusal(
        "everyone first, without a warm start",
        stepping(fp.dp_scaffold, of_algorithm={"everyone_first": True}),
        "everyone_first",
    ),
    Refusal(
        "control variates of clients that are drawn twice",
        stepping(fp.dp_scaffold, fp.with_replacement([1] * CLIENTS, 2)),
        "sampler",
    ),
    Refusal(
        "coefficients of a Haar mechanism",
        lambda: haar_mechanism(4, clip_norm=1.0, noise_multiplier=1.0, clip="level"),
        "clip",
        "'level'",
    ),
    Refusal("what is bounded", making("dp_fed_avg_wav", bounded="updates"), "bounded", "'updates'"),
    Refusal(
        "noise on each record of a Poisson lot",
        making(
            "dp_sgd_wav",
            local=ENTRIES["dp_sgd_wav"]
            .make.keywords["local"]
            ._replace(records=fp.poisson(PER_CLIENT, 0.5)),
            noise_on_each=True,
        ),
        "noise_on_each",
    ),
    *(
        Refusal(f"DP-FedAvg, {field} {value}", making("dp_fed_avg", **{field: value}), field, said)
        for field, value, said in (
            ("clip_norm", 0, "0"),
            ("clip_norm", math.nan, "nan"),
            ("noise_multiplier", -1, "-1"),
            ("clip_norm", math.inf, "inf"),
        )
    ),
    Refusal("a server that is a function", making("dp_fed_avg", server=optax.adam), "server"),
    Refusal("a server that is a number", making("dp_scaffold", server=0.5), "server", "0.5"),
    Refusal(
        "a server as clients have one",
        making("fed_smp rand_k", server=lambda t: optax.sgd(1.0)),
        "server",
    ),
    Refusal("adaptivity", lambda: fp.fed_opt.adam(0.1, adaptivity=0), "adaptivity", "0"),
    Refusal(
        "a second momentum", lambda: fp.fed_opt.yogi(0.1, second_momentum=1), "second_momentum", "1"
    ),
    *(
        Refusal(f"a proximal term of {mu}", partial(fp.proximal, optax.sgd(0.1), mu), "mu", str(mu))
        for mu in (-0.1, math.inf, math.nan)
    ),
    *(
        Refusal(f"rand_k of {p}", partial(fp.papers.select_rand_k, p), "p", str(p))
        for p in (0, 1.01)
    ),
    Refusal("top_k of nan", lambda: fp.papers.select_top_k(math.nan, fp.full_batch()), "p", "nan"),
    Refusal("rand_k's period", lambda: fp.papers.select_rand_k(0.5, period=0), "period", "0"),
    Refusal(
        "top_k's period",
        lambda: fp.papers.select_top_k(0.5, fp.full_batch(), period=0),
        "period",
        "0",
    ),
    Refusal("Fed-SMP's clip norm", making("fed_smp rand_k", clip_norm=-1), "clip_norm", "-1"),
    Refusal(
        "Fed-SMP's noise", making("fed_smp rand_k", noise_multiplier=-1), "noise_multiplier", "-1"
    ),
    Refusal("a lattice of 2 bits", lambda: private_laplace(2, 1.0, 50.0), "bits", "2-bit"),
    Refusal("a bound of 0", lambda: private_laplace(8, 0.0, 1.0), "bound", "0.0"),
    Refusal("an infinite epsilon", lambda: private_laplace(8, 1.0, math.inf), "epsilon", "inf"),
    Refusal("no tail", lambda: private_laplace(8, 1.0, 1.0, tail=0.0), "tail", "0.0"),
    Refusal("2 degrees of t noise", lambda: private_t(8, 1.0, 1.0, 2.0), "degrees", "2.0"),
    Refusal("Cauchy noise", making("jopeq", noise="cauchy"), "noise", "'cauchy'"),
    Refusal("a claim of -1", lambda: jopeq_claim(-1.0, "t"), "epsilon", "-1.0"),
    Refusal("a claim of other noise", lambda: jopeq_claim(1.0, "gauss"), "noise", "'gauss'"),
    *(
        Refusal(f"MSP-FL, {shown}", making("msp_fl", **{field: value}), shown.split(":")[0], shown)
        for field, value, shown in MSP
    ),
    Refusal(
        "submodels for which gamma is too large",
        making("msp_fl", submodels=(1, 9), coupling=coupling(0.4, 0.15)),
        "gamma",
        "0.15",
    ),
    *(
        Refusal(f"{make.__name__} from {least}", partial(make, least), "least", str(least))
        for make in (splitting.per_client, splitting.per_submodel)
        for least in (0.0, 1.1, math.nan)
    ),
    Refusal(
        "weights of submodels of another shape",
        begins("msp_fl", submodels=(1, 1), weights=lambda key, shape: jnp.ones(3)),
        "weights",
        "(3,)",
    ),
    Refusal("-1 exchanges", lambda: consensus.constant(-1), "count", "-1"),
    Refusal(
        "a contraction of 1",
        lambda: consensus.by_rate(lambda t: 0.1, 1.0, 5),
        "contraction",
        "1.0",
    ),
    Refusal("no exchanges", lambda: consensus.by_rate(lambda t: 0.1, 0.5, 0), "most", "0"),
    Refusal("MSPDQ-FL of no bits", making("mspdq_fl", bits=0), "bits", "0"),
    *(
        Refusal(
            f"a coupling of {e}, {gamma} for {m}",
            lambda e=e, gamma=gamma, m=m: check_coupling(coupling(e, gamma), 4, m),
            field,
            shown,
        )
        for e, gamma, m, field, shown in (
            (1.4, 0.1, 1, "step", "1.4"),
            (0.0, 0.1, 1, "step", "0.0"),
            (0.5, 0.4, 1, "gamma", "0.4"),
            (0.5, 0.1, 4, "gamma", "0.4"),
            (0.5, 0.0, 1, "gamma", "0.0"),
        )
    ),
    Refusal(
        "a step that is too long even where instability is allowed",
        lambda: check_coupling(coupling(1.5, 0.1), 4, 18, stable=False),
        "step",
        "1.5",
    ),
    Refusal("an unknown decay", lambda: coupling(0.5, 0.1, "fast"), "decay", "'fast'"),
    Refusal("a factor of 1", lambda: splitting.uniform(1.0), "factor", "1.0"),
    Refusal("a deviation of 0", lambda: splitting.gaussian(0.0), "std", "0.0"),
    Refusal("a negative sensitivity", lambda: splitting.laplace(-1.0, 1.0), "sensitivity", "-1.0"),
    Refusal("a negative bound", lambda: consensus.fixed(8, -1.0), "bound", "-1.0"),
    Refusal("a quantizer of no bits", lambda: consensus.dynamic(0), "bits", "0"),
    Refusal("a norm that is none", lambda: consensus.dynamic(8, "l1"), "norm", "'l1'"),
    *(
        Refusal(f"a head of {head}", begins("fed_per", head=head), "head", shown)
        for head, shown in ((("c",), "'c'"), (("b", "w"), "('b', 'w')"), ("b", "'b'"))
    ),
    *(
        Refusal(f"buffered, {field} {place}", buffered(**{field: value}), field, shown)
        for place, (field, value, shown) in enumerate(
            (
                ("most_late", 2, "2"),
                ("most_late", -1, "-1"),
                ("sampler", 3, "3"),
                ("delay", 2, "2"),
                ("mechanism", 1.0, "1.0"),
            )
        )
    ),
    Refusal(
        "a delay of more steps than models are kept",
        buffered(delay=fp.delays.geometric(5, most_late=20), most_late=4),
        "delay",
        "20 steps",
    ),
    Refusal("free clients of FedAvg", making("fed_avg", sampler=FREE), "sampler"),
    *(
        Refusal(f"weights: {field} {value}", own_weights(**{"cap": 3, field: value}), field, shown)
        for field, value, shown in (
            ("cap", math.inf, "inf"),
            ("cap", 0, "0"),
            ("mean", 1.5, "1.5"),
            ("estimator", "mean", "'mean'"),
        )
    ),
    Refusal("a straggler's rate", lambda: fp.straggling(fp.full_batch(), 1.5), "rate", "1.5"),
    Refusal("work that is none", lambda: fp.straggling(3, 0.5), "work", "3"),
    Refusal("a schedule without noise", lambda: fp.dynamic(fp.gaussian(0.5, 0), rounds=3), "start"),
    Refusal(
        "a schedule of Laplace noise", lambda: fp.dynamic(fp.laplace(0.5, 1), rounds=3), "start"
    ),
    *(
        Refusal(
            f"a schedule, {field} {value}",
            lambda field=field, value=value: fp.dynamic(NOISY, **{"rounds": 3, field: value}),
            field,
            str(value),
        )
        for field, value in SCHEDULED.items()
    ),
    Refusal(
        "the model of a client that is not there",
        lambda: personal_model(CLIENTS),
        "client",
        str(CLIENTS),
    ),
    Refusal("the model of client -1", lambda: personal_model(-1), "client", "-1"),
    Refusal(
        "the model of a client, of several seeds",
        lambda: personal_model(2, seeds=2),
        "state",
        remedy="give the state of one, history.state_of(seed)",
    ),
]


def personal_model(client, seeds=0):
    """Ditto's, of its first state."""
    algorithm = ENTRIES["ditto"].make()
    state = algorithm.init(PARAMS, FEDERATION)
    if seeds:
        state = type(state)(*(stacked(field, seeds) for field in state))
    return algorithm.personal(state, client)


def stacked(tree, seeds):
    return jax.tree.map(lambda leaf: np.stack([leaf] * seeds), tree)
