"""What a server may see of clients with one image each: the rows of `experiments.inversion`."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from fedpriv.algorithms.consensus import Norm
from fedpriv.attacks.server_views import View, by_models
from fedpriv.attacks.transcript import fit_weights, least_squares, nearest, unmixed
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.trees import flatten
from fedpriv.core.types import LossFn, Params
from fedpriv.rounds.algorithm import Algorithm

RATE = 0.2
"""The clients' step size, the first of the MSPDQ paper's 1 / (5 (t + 1))."""

COUPLING = fp.papers.consensus.coupling(0.5, 0.1)
"""e, which that paper does not print, and its gamma."""

Reading = Literal["update", "first", "last", "transcript", "weights", "sum"]
"""What is taken for the client's model: what was sent; with model splitting the first or the last visible submodel, or
what all of them make: `least_squares` of one weight, the `nearest` of attacks on up to `MOST` different weights, or
`unmixed` (for one invisible submodel)."""

MOST = 4
LEAST = 0.2
"""Least secret weight, as a part of gamma."""
WEIGHTS = {
    "equal": fp.papers.splitting.equal,
    "client": fp.papers.splitting.per_client(LEAST),
    "submodel": fp.papers.splitting.per_submodel(LEAST),
}


class Seen(NamedTuple):
    """An algorithm of the inversion, and what a server sees of it.

    Attributes:
      algorithm: of clients with one image each.
      readings: of what the server sees.
      steps: that clients take.
    """

    algorithm: Algorithm
    readings: tuple[Reading, ...] = ("update",)
    steps: int = 1


def as_read(view: View, params: Params, reading: Reading) -> View:
    """The inversion's view of a server that reads what it sees so."""
    if view.transcript is None or reading in ("update", "first"):
        return view
    if reading == "last":
        return by_models(view, params, view.transcript[-1])
    if reading == "sum":
        return view._replace(update=unmixed(view.transcript, flatten(params), COUPLING.step))
    given = view.transcript, COUPLING.step, COUPLING.decay
    if reading == "transcript":
        return by_models(view, params, jnp.asarray(least_squares(*given).model, jnp.float32))
    most = min(MOST, len(view.transcript) - 2)
    tried = [least_squares(*given, r) for r in range(1, most + 1)]
    tried += [fit_weights(*given, m, COUPLING.gamma) for m in range(2, most + 1)]
    return by_models(view, params, jnp.asarray(nearest(flatten(params), tried), jnp.float32))


def all_seen(loss: LossFn, victims: int) -> dict[str, Seen]:
    """Name -> algorithm of the inversion, for a federation of so many clients."""
    return _updates(loss, victims) | _by_record(loss, victims) | _split(loss, victims)


def common(victims: int, steps: int = 1) -> dict[str, Any]:
    """A row's sampler, optimiser and batches: everyone takes so many steps on its one image."""
    return {
        "sampler": fp.everyone(victims),
        "optimizer": lambda t: optax.sgd(RATE),
        "batches": fp.epochs(steps, 1),
    }


def _updates(loss: LossFn, victims: int) -> dict[str, Seen]:
    own = common(victims)

    def plain(codec: Codec = UNCODED) -> Seen:
        return Seen(fp.fed_avg(loss, **own, codec=codec))

    def noisy(sigma: float) -> Seen:
        return Seen(fp.dp_fed_avg(loss, **own, clip_norm=1.0, noise_multiplier=sigma))

    rand, top = fp.papers.select_rand_k(0.1), fp.papers.select_top_k(0.1, own["batches"])
    smp = fp.fed_smp(loss, **own, sparsifier=rand, clip_norm=1.0, noise_multiplier=1.0)
    ldp = fp.papers.ldp_fed_avg(loss, **own, mechanism=fp.gaussian(1.0, 1.0))
    return {
        "FedAvg, one step (gradient)": plain(),
        "FedAvg, five local steps": Seen(fp.fed_avg(loss, **common(victims, 5)), steps=5),
        "FedAvg, QSGD 8 bits": plain(fp.qsgd(8)),
        "FedAvg, QSGD 4 bits": plain(fp.qsgd(4)),
        "FedAvg-rand_k, p = 0.1": Seen(fp.papers.fed_avg_sparse(loss, **own, sparsifier=rand)),
        "FedAvg-top_k, p = 0.1": Seen(fp.papers.fed_avg_sparse(loss, **own, sparsifier=top)),
        "DP-FedAvg, sigma = 0.01": noisy(0.01),
        "DP-FedAvg, sigma = 0.1": noisy(0.1),
        "DP-FedAvg, sigma = 1": noisy(1.0),
        "Fed-SMP rand_k, sigma = 1": Seen(smp),
        "FedAvg + LDP, sigma = 1": Seen(ldp),
        "JoPEQ, eps = 10, 8 bits": Seen(jopeq(loss, victims, 10.0)),
    }


def _by_record(loss: LossFn, victims: int) -> dict[str, Seen]:
    records, gradients = fp.everyone(1), fp.per_example(loss)
    sgd = fp.LocalSteps(gradients, records, 1, lambda t: optax.sgd(RATE), fp.gaussian(1.0, 1.0))
    scaffold = sgd._replace(mechanism=fp.gaussian(1.0, 2.0))  # sigma_g = 1
    sampler = fp.everyone(victims)

    return {
        "DP-SGD, sigma = 1": Seen(fp.dp_sgd(sgd, sampler=sampler)),
        "DP-SCAFFOLD, sigma_g = 1": Seen(fp.dp_scaffold(scaffold, sampler=sampler)),
    }


def _split(loss: LossFn, victims: int) -> dict[str, Seen]:
    by_columns = split(loss, victims, bits=8, gamma=0.3, norm="columns")  # what trains
    return {
        "MSP-FL": Seen(split(loss, victims), ("first", "last", "transcript")),
        "MSP-FL, 3 secret weights": Seen(unlike(loss, victims, 3), ("transcript", "weights")),
        "MSPDQ-FL, 8 bits": Seen(split(loss, victims, bits=8), ("last", "transcript", "sum")),
        "MSPDQ-FL, gamma 0.3": Seen(by_columns, ("last", "sum")),
        "MSP + Lap, eps = 10": Seen(split(loss, victims, epsilon=10.0), ("first", "transcript")),
    }


def jopeq(loss: LossFn, victims: int, epsilon: float) -> Algorithm:
    """A row of the inversion: JoPEQ with 8 bits and gamma = 0.1, as experiments.papers.mspdq trains it."""
    return fp.papers.jopeq(loss, **common(victims), bits=8, bound=0.1, epsilon=epsilon)


def split(
    loss: LossFn,
    victims: int,
    *,
    factor: float = 0.3,
    bits: int | None = None,
    epsilon: float | None = None,
    exchanges: int = 10,
    gamma: float = COUPLING.gamma,
    norm: Norm = "frobenius",
) -> Algorithm:
    """A row of the inversion: MSP-FL with K = 4; with `epsilon` MSP + Lap; with `bits` MSPDQ-FL, interval by `norm`.

    The noise of MSP + Lap is that of its experiments: of the sensitivity 2 C / n for C = 100 and n = 600 images.
    """
    splitting = fp.papers.splitting.uniform(factor)
    if epsilon is not None:
        splitting = fp.papers.splitting.laplace(2 * 100 / 600, epsilon)
    options = common(victims) | {
        "splitting": splitting,
        "coupling": COUPLING._replace(gamma=gamma),
        "exchanges": fp.papers.consensus.constant(4 if bits is None else exchanges),
    }
    if bits is None:
        return fp.papers.msp_fl(loss, **options)
    return fp.papers.mspdq_fl(loss, bits=bits, norm=norm, **options)


def unlike(loss: LossFn, victims: int, submodels: int, weights: str = "submodel") -> Algorithm:
    """MSP-FL with K = 10 and so many submodels, whose `WEIGHTS` meet the condition of Lemma 7 together."""
    return fp.papers.msp_fl(
        loss,
        **common(victims),
        splitting=fp.papers.splitting.uniform(0.3),
        coupling=COUPLING._replace(gamma=0.3 / submodels),
        exchanges=fp.papers.consensus.constant(10),
        submodels=(submodels, submodels),
        weights=WEIGHTS[weights],
    )


class Victims(NamedTuple):
    """Who is attacked by inversion.

    Attributes:
      model: SigmoidLeNet.
      params: what clients receive, freshly drawn.
      federation: clients with one image each, and 32 public images.
      images: f32[victims, height, width, channels] in [0, 1].
      labels: i32[victims].
      guess: f32[height, width, channels], the mean of 1000 other images, for who sees nothing.
    """

    model: fp.models.Model
    params: Params
    federation: fp.Federation
    images: jax.Array
    labels: jax.Array
    guess: jax.Array


def draw_victims(data: Any, count: int, seed: int) -> Victims:
    """The inversion's victims: random images of the training set, one per client."""
    rows = np.random.default_rng(seed).permutation(len(data.train["label"]))
    parts = np.split(rows, [count, count + 32])
    federation = fp.Federation.from_arrays(
        data.train, list(parts[0][:, None]), public=parts[1], num_classes=10
    )
    images = data.train["image"]
    model = fp.models.classifier(fp.models.SigmoidLeNet(10), images.shape[1:])
    return Victims(
        model,
        model.init(jax.random.key(seed)),
        federation,
        jnp.asarray(images[parts[0]], jnp.float32) / 255,
        jnp.asarray(data.train["label"][parts[0]], jnp.int32),
        jnp.asarray(images[parts[2][:1000]].mean(0) / 255, jnp.float32),
    )
