"""Arguments with which each public function, class and method that takes numbers, choices or flags can be called.

They are derived: a number, choice or flag from the kind that its annotation names, a part from its name or its class,
and those of a class of parts from one that is made. What has to go together is in `TOGETHER`.
"""

import atexit
import functools
import inspect
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image
from public_functions import UNIONS, Public, everything
from small import filled, regression, squared, start

import fedpriv as fp
from fedpriv.core.arguments import kind_of
from fedpriv.privacy.profile import PrivacyProfile
from fedpriv.privacy.sampling import Accounting

FOLDER = tempfile.TemporaryDirectory()
atexit.register(FOLDER.cleanup)
CLIENTS, IMAGES = Path(FOLDER.name) / "clients", Path(FOLDER.name) / "images"
fp.write_clients(CLIENTS, [{"x": np.ones((2, 3), np.float32), "label": np.arange(2)}] * 2)
(IMAGES / "cat").mkdir(parents=True)
Image.new("L", (4, 4)).save(IMAGES / "cat" / "1.png")

FEDERATION = regression([4, 4, 4])
ROWS, KEY, PARAMS = np.arange(12), jax.random.key(0), start()
EXAMPLES = {"x": np.ones((12, 3), np.float32), "y": np.zeros(12, np.float32), "label": ROWS % 2}
OWNERS = [ROWS[:4], ROWS[4:8], ROWS[8:]]
OF_PERSONS = fp.Federation.from_arrays(EXAMPLES, OWNERS, person=[0, 1, 1])
SAMPLER, BATCHES, GAUSSIAN = fp.everyone(3), fp.full_batch(), fp.gaussian(0.5, 2.0)
GRADIENTS, SCORES = fp.per_example(squared), np.linspace(0, 1, 8).astype(np.float32)
MESSAGES = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2, 4)), jnp.float32)
papers, consensus, splitting = fp.papers, fp.papers.consensus, fp.papers.splitting


def optimizer(t):
    """Of the clients."""
    return optax.sgd(0.5)


def smooth(t):
    """A learning rate."""
    return 1 / (2.0 + t)


def score(params, example):
    """The loss, as a metric."""
    return {"loss": squared(params, example)}


def observed(image, label):
    """What a client shows."""
    return image.reshape(-1)[:2] * (1.0 + label)


TRAINED = {"sampler": SAMPLER, "optimizer": optimizer, "batches": BATCHES}
ALGORITHM = fp.fed_avg(squared, **TRAINED, mechanism=GAUSSIAN)
STEPS = fp.LocalSteps(GRADIENTS, fp.fixed_size(4, 2), 2, optimizer, GAUSSIAN)
ORDER, DELAY = fp.fixed_order(4, 2), fp.delays.geometric(1.5, 2)


def with_noise(sigma):
    return fp.fed_avg(squared, **TRAINED, mechanism=fp.gaussian(0.5, sigma))


def with_rates(rates):
    places = {name: fp.poisson({"a": 2, "b": 1}[name], rate) for name, rate in rates.items()}
    groups = {"sampler": fp.grouped(["a", "a", "b"], places)}
    return fp.fed_avg(squared, **TRAINED | groups, mechanism=GAUSSIAN)


PROFILE = PrivacyProfile(np.array([0.0, 1.0]), np.array([0.5, 0.0]))
ONE_SEEN = fp.privacy.declared(
    "third_party",
    "client",
    multiplier=2.0,
    rounds=1,
    sampling=SAMPLER.accounting,
    mechanism=GAUSSIAN,
)
CLASSIFIER = fp.models.classifier(fp.models.LogisticRegression(2), (2, 1, 1))
DRAWN = fp.attacks.Scores(SCORES, SCORES / 2, frozenset({"gaussian"}), True)
SENT = jax.jit(papers.quantization.quantize, static_argnums=4)(
    KEY, MESSAGES[0], jnp.float32(-1), jnp.float32(1), 8
)
SUBMODELS = splitting.Submodels(jnp.ones((2, 4)), jnp.ones((2, 1, 4)), jnp.ones((2, 1)))

MADE = [
    ALGORITHM, SAMPLER, GAUSSIAN, STEPS, ONE_SEEN, FEDERATION, PROFILE, DRAWN, ORDER, DELAY,
    CLASSIFIER, optax.sgd(0.5), fp.qsgd(8), fp.types.Wire(5, 8, 32), fp.Opening(SAMPLER, 1, SAMPLER),
    fp.dynamic(GAUSSIAN, rounds=3, clip_decay=2.0, noise_decay=2.0, parts=2), fp.clipping.flat(),
    fp.noise.isotropic(), fp.noise_matrices.tree(4), fp.statistics.count(), consensus.constant(2),
    consensus.coupling(0.25, 0.125), consensus.full_precision(), splitting.uniform(0.5),
    papers.MedianClipping(2.0), fp.types.Weighting(), fp.ByExamples(4.0), SUBMODELS, SENT,
    fp.PublicSizes([4, 2, 1], rate=0.5), fp.PublicGroups([["a", "b"], ["a"]], batch={"a": 2, "b": 1}),
    fp.attacks.View(jnp.ones((1, 2)), jnp.ones(2, bool), SAMPLER.draw(KEY)),
]  # fmt: skip
"""One of each class that is a part of something else, or has methods."""

PARTS: dict[str, Any] = TRAINED | {
    "apply": lambda params, x: x, "at": IMAGES, "base": filled(CLASSIFIER.init), "bins": (0.0, 1.0),
    "bounds": (0.0, 1.0), "candidates": [fp.noise_matrices.tree(4)], "clients": OWNERS, "data": dict,
    "dataset": [(np.ones(2), 0), (np.ones(2), 1)], "decay": smooth, "examples": EXAMPLES, "federation": FEDERATION,
    "example": {"x": np.ones(3, np.float32), "y": np.float32(0)}, "folder": FOLDER.name,
    "gradients": GRADIENTS, "groups": ["a", "b", "a"], "image_shape": (2, 1, 1), "key": KEY,
    "labels": EXAMPLES["label"], "learning_rate": 0.5, "loss": squared, "make": with_noise,
    "members": SCORES, "messages": MESSAGES, "name": "digits", "noise_std": np.ones(3),
    "observe": observed, "observed": jnp.ones((1, 2)), "others": SCORES, "params": PARAMS,
    "path": IMAGES, "paths": [IMAGES / "cat" / "1.png"], "present": ROWS[:8] % 2 == 0,
    "received": jnp.zeros(4), "seen": [ONE_SEEN], "rng": None, "runs": [(ALGORITHM, 1)],
    "sampling": fp.privacy.Poisson(8, 0.5), "score": score, "scores": SCORES, "settings": [[ONE_SEEN]],
    "sizes": [4, 4, 4], "sparsifier": papers.select_rand_k(0.5), "staleness": [1.0, 0.5, 0.25],
    "stratify": [0, 1] * 6, "test": EXAMPLES, "texts": ["a", "bc"], "total": jnp.ones(3),
    "total_or_rows": 12, "trainable": "kernel", "turns": ("w", "b"), "values": "y",
    "variances": np.ones(4), "weights": jnp.ones(2), "where": "kernel", "work": BATCHES,
    "coefficients": jnp.ones(4), "x": jnp.ones(4),
}  # fmt: skip
"""Name -> what a parameter of that name is given, where neither kind nor class says it."""

NUMBERS = {"bits": 8, "best_of": 1.0, "capacity": 4, "d": 4, "delta": 2.0**-10, "epsilon": 2.0}
NUMBERS |= {"honest": 1.0, "m": 4, "multiplier": 2.0, "noise_multiplier": 2.0, "population": 8}
NUMBERS |= {"rounds": 2, "size": 4, "steps": 1, "width": 4}
"""Name -> a number with which more goes together than with the one of its kind."""

BY_PERSON = {"person": [0, 0, 1]}
SPLIT = TRAINED | {"sampler": fp.fixed_size(3, 2), "splitting": splitting.uniform(0.5)}
SPLIT |= {"coupling": consensus.coupling(0.25, 0.125), "exchanges": consensus.constant(2)}
SEEN = {"labels": jnp.zeros(1, jnp.int32), "image_shape": (2, 1, 1)}
BUFFERED = {"most_late": 4, "staleness": [1.0, 0.5, 0.25], "delay": DELAY, "mechanism": GAUSSIAN}
ONE_VECTOR = {"w": jnp.ones(4), "a": jnp.ones(4), "m": jnp.int32(1)}
KEPT = {"algorithm": "kept", "seed": 2}
SAVED = KEPT | {"model": CLASSIFIER, "params": PARTS["base"]}
TOGETHER: dict[str, dict[str, Any]] = {
    "Federation.from_arrays": BY_PERSON,
    "PublicGroups.accounting_of": {"group": "a"},
    "PublicSizes": {"batch": None},
    "Strategy": {"devices": 1, "memory": 2**30},
    "StreamedFederation.from_arrays": BY_PERSON,
    "StreamedFederation.from_folder": {"folder": CLIENTS, "person": [0, 0]},
    "StreamedFederation.from_sorted": BY_PERSON,
    "adaptive_fed_avg": {"noise_multiplier": 1.0, "count_noise": 2.0},
    "attacks.invert": SEEN,
    "attacks.invert_view": SEEN,
    "buffered": BUFFERED
    | {"client_update": lambda k, p, shard: p, "server_step": lambda state, mean: state},
    "buffered_fed_avg": BUFFERED,
    "by_person": {"sampler": fp.poisson(2, 0.5), "federation": OF_PERSONS},
    "calibrate_groups": {"make": with_rates, "epsilon": {"a": 0.5, "b": 0.5}},
    "calibrate_together": {"make": lambda sigma: [(with_noise(sigma), 1)]},
    "datasets.from_huggingface": {"dataset": {"image": np.ones((2, 3, 3)), "label": [0, 1]}},
    "datasets.from_tokens": {"texts": [[0, 1, 2], [3, 1]], "clients": ["a", "b"], "vocabulary": 4},
    "datasets.load": {"image_size": None, "text_length": 256},
    "datasets.synthetic": {"records": 8},
    "delays.DelayLaw": {"classes": (0, 0)},
    "delays.by_class": {"classes": ["a", "b"], "laws": {"a": DELAY, "b": DELAY}},
    "distributed.initialize": {"num_processes": None, "process_id": None},
    "models.Prompted": {
        "module": fp.models.CharacterTransformer(4, 4, 2, 1),
        "embedding": "Embed_0",
    },
    "models.adapters": {"rank": 1},
    "models.frozen": {"trainable": "kernel"},
    "models.load_model": KEPT,
    "models.next_token": {"network": fp.models.CharacterLSTM(4, 2, 2)},
    "models.refactored": {"params": {"w": {"A": jnp.ones((4, 2)), "B": jnp.ones((2, 3))}}},
    "models.save_model": SAVED,
    "papers.consensus.by_rate": {"learning_rate": smooth},
    "papers.consensus.exchange": {
        "mean": jnp.ones(4),
        "sent": jnp.ones((2, 4)),
        "alpha": jnp.float32(0.5),
    },
    "papers.jopeq": TRAINED,
    "papers.mspdq_fl": SPLIT,
    "papers.quantization.quantize": {"low": jnp.float32(0), "high": jnp.float32(2)},
    "papers.splitting.invisible": ONE_VECTOR,
    "papers.haar.inverse_haar": {"length": 4},
    "privacy.certify_choice": {"best_of": 2.0},
    "simulate": {"rounds": 1, "every": 1, "seeds": (0,)},
    "statistics.Statistic.release": {"epsilon": None, "secret_seed": None},
    "statistics.heavy_hitters": {"candidates": (0, 1)},
}
"""Name -> arguments that go together with the others, or are of this function alone."""

fp.models.save_model(FOLDER.name, **SAVED)


def of_kind(kind: Any) -> Any:
    """A sum of few powers of two, which every type of numbers holds exactly; the first choice; no flag."""
    if get_origin(kind) in UNIONS:
        return of_kind(next(one for one in get_args(kind) if kind_of(one)))
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if kind is bool:
        return False
    if hasattr(kind, "__metadata__"):
        allowed = kind.__metadata__[0]
        return next(x for x in ((2, 1) if allowed.integer else (0.5, 1.0, 2.0)) if x in allowed)
    first, *others = get_args(kind)
    return (of_kind(first),) * (1 if others[:1] == [...] or not others else 1 + len(others))


def made_of(kind: Any) -> Any:
    """What is made of this class, or of one that is derived from it; None if there is nothing."""
    if not isinstance(kind, type) or kind is Any:
        return None
    exact = [one for one in MADE if type(one) is kind]
    return next(iter((*exact, *(one for one in MADE if isinstance(one, kind)))), None)


@functools.cache
def arguments_of(name: str) -> Mapping[str, Any]:
    """Valid ones.

    Raises:
      LookupError: nothing says what a parameter is given; add its name to `PARTS`, or what it takes to `TOGETHER`.
    """
    public, found = everything()[name], dict(TOGETHER.get(name, {}))
    for parameter in inspect.signature(public.function).parameters.values():
        own = parameter.name == "self" or parameter.name[0] == "_"
        several = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.name not in found and not own and not several:
            _add(found, public, parameter)
    return found


def _add(found: dict[str, Any], public: Public, parameter: inspect.Parameter) -> None:
    name, hint = parameter.name, public.hints.get(parameter.name)
    made = made_of(public.function)
    held = getattr(made, name, None)
    classes = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    own = [one for one in map(made_of, classes) if one is not None]
    if held is not None or (hasattr(made, name) and name not in public.kinds):
        found[name] = held
    elif name in public.kinds:
        found[name] = NUMBERS.get(name, of_kind(public.kinds[name]))
    elif parameter.default is not parameter.empty:
        pass
    elif own or name in PARTS:
        found[name] = own[0] if own else PARTS[name]
    else:
        raise LookupError(f"{name}: nothing is known of {hint}")


WHY_LEFT_OUT = {
    "what fedpriv gives back": (
        "Certificate History types.Evaluation types.PublicEvaluation types.Composition types.Plan "
        "attacks.GaussianEstimate attacks.LowerBounds attacks.Membership attacks.Scores attacks.Thresholds "
        "datasets.Dataset noise_matrices.Error papers.Sparsifier privacy.Claim privacy.Case "
        "privacy.OperationalNumbers privacy.PrivacyProfile statistics.Released statistics.Statistic"
    ),
    "what fedpriv makes of what it has checked": (
        "Cohort Federation Shard StreamedFederation privacy.Seen privacy.Who types.ClientRows "
        "types.CohortFederation types.Persons"
    ),
    "what fedpriv asks with what it has checked": "Checkpoints.opened Sampler.accounting_of LocalSteps.run",
}
LEFT_OUT = {name: why for why, names in WHY_LEFT_OUT.items() for name in names.split()}
NOT_RUN = {
    "noise_matrices.banded": "it optimises for seconds",
    "noise_matrices.banded_toeplitz": "it optimises for seconds",
    "noise_matrices.blt": "it optimises for half a minute",
    "distributed.split_cpu": "it would change the environment of all later processes",
}
NOT_COMPARED = NOT_RUN | {
    "calibrate_groups": "it certifies for seconds",
    "check_algorithm": "it gives nothing back",
    "simulate": "its history has times",
}


def is_left_out(name: str, public: Public) -> bool:
    """Also methods of samplings, which fedpriv asks, and of what is left out and not made here."""
    if public.owner is None:
        return name in LEFT_OUT
    of_left_out = name.rpartition(".")[0] in LEFT_OUT and made_of(public.owner) is None
    return name in LEFT_OUT or of_left_out or issubclass(public.owner, Accounting)


KNOWN = {
    name: public
    for name, public in everything().items()
    if (public.kinds or name in TOGETHER) and not is_left_out(name, public)
}
"""What is tried."""
