"""Algorithms under audit on handwritten digits: sound ones, and four that declare noise or a clip which they lack.

    fedpriv audit audited --parts many_runs --target-epsilon 4

Small enough for thousands of trainings: scikit-learn's 1,797 bundled digits, 20 rounds of a network with 16 hidden
units. dp_fed_avg, rand_k and top_k protect clients (120 with 12 digits each, Poisson cohorts of 30 on average), as does
banded (cohorts of 30 that take turns). Records are protected by dp_sgd and wav (one client with all digits, a tenth of
them in each step), by dp_scaffold and dp_sgd_fed, its rival without control variates (ten clients, one step a round),
and by unequal (eight clients of 25 to 231 digits, whose numbers are secret). The others declare by hand what is not
so. What came out: experiments/results/audit.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Probability, Rate
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Layout, Ledger
from fedpriv.experiments.config.fields import (
    Clients,
    Number,
    Single,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.experiments.config.ledger import Entry
from fedpriv.experiments.config.settings import Settings
from fedpriv.mechanisms.described import described, worst_case_of

MODEL = fp.models.classifier(fp.models.MLP((16,), 10), (8, 8, 1))
HOSPITALS = 10
UNEQUAL = (25, 47, 83, 120, 150, 178, 205, 231)

Sound = Literal["dp_fed_avg", "rand_k", "top_k", "banded", "dp_sgd", "wav"]
Federated = Literal["dp_sgd_fed", "dp_scaffold", "unequal"]
Faulty = Literal["no_noise", "half_noise", "no_clip", "median_clip"]


@dataclass(frozen=True)
class Audited(Settings):
    """Algorithms under audit."""

    algorithms: tuple[Sound | Federated | Faulty, ...] = ("dp_fed_avg", "rand_k", "top_k", "dp_sgd")
    """Algorithms to train, one after another."""
    clients: int = 120
    """Number of clients, if the unit is a client."""
    cohort: int = 30
    """Clients per round (expected, except for banded)."""
    p: float = 0.1
    """Compression ratio k / d of rand_k and top_k."""
    rate: float = 0.1
    """Probability of a record in a step."""
    learning_rate: float = 0.5
    """Learning rate of the clients' SGD."""
    public_examples: int = 100
    """Digits that the server holds, for top_k's choice of coordinates."""
    clip_norm: float = 0.5
    """C, clip norm of an update or gradient."""
    noise_multiplier: float = 1.0
    """sigma."""
    delta: float = 5e-3
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Rate, p=self.p, rate=self.rate)
        check_each(Single, learning_rate=self.learning_rate)
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, public_examples=self.public_examples)
        if self.cohort > self.clients:
            raise ValueError(
                f"cohort: {self.cohort} exceeds the {self.clients} clients; choose fewer"
            )
        check_each(Probability, delta=self.delta)
        mechanism(self.clip_norm, self.noise_multiplier)


settings = Audited(rounds=20, layout=Layout(devices=1))


def ledger(settings: Audited) -> Ledger:
    return on(settings, load(settings)).ledger


def load(settings: Audited) -> Dataset:
    return fp.datasets.load("digits", settings.data_dir)


def on(settings: Audited, data: Dataset) -> Experiment:
    entries = {}
    for name in settings.algorithms:
        sizes, held = _sizes(name, settings, len(data.train["label"]))
        rng = np.random.default_rng(0)
        public, rows = fp.partition.hold_out(rng, rng.permutation(held + sum(sizes)), held)
        shares = np.split(rows, np.cumsum(sizes)[:-1])
        federation = fp.Federation.from_arrays(data.train, shares, public=public)
        entries[name] = Entry(algorithm(name, settings, sizes), [federation] * settings.seeds)
    return Experiment(MODEL, data.test, settings.delta, entries)


def _sizes(name: str, settings: Audited, records: int) -> tuple[list[int], int]:
    """(Records of each client, public ones)."""
    if name == "unequal":
        return list(UNEQUAL), 0
    if name == "median_clip":  # lots of two
        return [20], 0
    held = settings.public_examples if name == "top_k" else 0
    clients = {"dp_sgd": 1, "wav": 1} | dict.fromkeys(("dp_sgd_fed", "dp_scaffold"), HOSPITALS)
    number = clients.get(name, settings.clients)
    if number > records - held:
        raise ValueError(f"clients: {number}, but there are {records - held} digits; choose fewer")
    return [(records - held) // number] * number, held


def algorithm(name: str, settings: Audited, sizes: list[int]) -> fp.Algorithm:
    """One of them, for clients with so many records."""
    noisy = fp.gaussian(settings.clip_norm, settings.noise_multiplier)
    by_client: dict[str, fp.Mechanism] = {
        "dp_fed_avg": noisy,
        "no_noise": _broken(noisy, perturb=lambda key, total: total),
        "half_noise": _broken(noisy, perturb=_half(noisy)),
        "no_clip": _broken(noisy, clip=lambda update: (update, optax.tree.norm(update))),
        "rand_k": noisy,
        "top_k": noisy,
    }
    if name in by_client:
        return _of_clients(name, settings, by_client[name])
    if name == "banded":
        return _in_turns(settings, noisy)
    return _of_records(name, settings, noisy, sizes)


def _broken(noisy: fp.Mechanism, **fault: Callable[..., Any]) -> fp.Mechanism:
    """With a fault, which an audit does not know of: it plays the worst case of what was declared."""
    return described(noisy._replace(**fault), worst_case=worst_case_of(noisy))


def _half(noisy: fp.Mechanism) -> Callable[[jax.Array, Any], Any]:
    def perturb(key: jax.Array, total: Any) -> Any:
        return jax.tree.map(lambda s, z: (s + z) / 2, total, noisy.perturb(key, total))

    return perturb


def _of_clients(name: str, settings: Audited, used: fp.Mechanism) -> fp.Algorithm:
    rate = settings.cohort / settings.clients
    room = min(settings.clients, fp.capacity_for(settings.cohort, rate))
    common: dict[str, Any] = {
        "sampler": fp.poisson(settings.clients, rate, room),
        "optimizer": lambda t: optax.sgd(settings.learning_rate),
        "batches": fp.full_batch(),
        "mechanism": used,
    }
    if name not in ("rand_k", "top_k"):
        return fp.fed_avg(MODEL.loss, **common)
    rand_k = fp.papers.select_rand_k(settings.p, unbiased=False)
    top_k = fp.papers.select_top_k(settings.p, fp.full_batch())
    sparsifier = rand_k if name == "rand_k" else top_k
    return fp.papers.fed_avg_sparse(MODEL.loss, **common, sparsifier=sparsifier)


def _in_turns(settings: Audited, noisy: fp.Mechanism) -> fp.Algorithm:
    bands = min(settings.clients // settings.cohort, settings.rounds)
    matrix = fp.noise_matrices.banded_toeplitz(settings.rounds, bands)
    return fp.fed_avg(
        MODEL.loss,
        sampler=fp.shuffled_blocks(settings.clients, settings.cohort),
        optimizer=lambda t: optax.sgd(settings.learning_rate),
        batches=fp.full_batch(),
        mechanism=fp.correlated(noisy, matrix),
    )


def _of_records(
    name: str, settings: Audited, noisy: fp.Mechanism, sizes: list[int]
) -> fp.Algorithm:
    records, everyone = max(sizes), fp.everyone(len(sizes))
    used: Any = noisy
    if name == "wav":
        d = fp.dimension(jax.eval_shape(MODEL.init, jax.random.key(0)))
        level = {"clip_norm": settings.clip_norm, "noise_multiplier": settings.noise_multiplier}
        used = fp.papers.haar_mechanism(d, **level, clip="gradient", calibrated=True)
    if name == "median_clip":
        used = _ByMedian(*noisy)
    room = min(records, fp.capacity_for(settings.rate * records, settings.rate))
    lots = fp.poisson(records, settings.rate, room)
    if name == "dp_scaffold":
        steps = fp.LocalSteps(
            fp.per_example(MODEL.loss),
            lots,
            1,
            lambda t: optax.sgd(settings.learning_rate),
            fp.gaussian(settings.clip_norm, 2 * settings.noise_multiplier),
        )
        return fp.dp_scaffold(steps, sampler=everyone)
    # The noise of median_clip follows the gradients: at larger steps, each makes the other grow.
    step = settings.learning_rate / (100 if name == "median_clip" else 1)
    local = fp.LocalSteps(fp.per_example(MODEL.loss), lots, 1, lambda t: optax.sgd(step), used)
    return fp.dp_sgd(local, sampler=everyone, together=True)


class _ByMedian(fp.Mechanism):
    """Says what a fixed clip norm would hide, and clips at the median of the batch."""

    def for_batch(self, norms: Any, mask: jax.Array) -> fp.Mechanism:
        return fp.papers.MedianClipping(self.noise_multiplier).for_batch(norms, mask)
