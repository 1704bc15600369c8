"""Each paper's main finding in a short form, and what this repository found of it: cells that a number meets or not.

The sentences and their criteria are in papers/PAPER.json; here is what each is judged by. One processor
core trains all of them in minutes, so they are smaller than in the papers: fewer rounds, Fed-SMP on handwritten digits.
A check passes if the mean over the seeds meets its criterion, and would still meet it one standard deviation higher or
lower. Epsilons are of one model, released alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.papers.reproduce import dp_scaffold, fed_smp, mspdq, wavelet
from fedpriv.experiments.papers.reproduce.accounting import accounted, certificate_of
from fedpriv.experiments.papers.reproduce.item import (
    Cell,
    Computation,
    Item,
    Paper,
    Read,
    Scale,
    Training,
    Value,
    Work,
)
from fedpriv.experiments.papers.reproduce.picture import Curves, panels
from fedpriv.experiments.papers.reproduce.reading import final_accuracy, gap, uplink_mb

PAPER, HERE = "the paper: ", "here: "
"""Whose words a row has: what the paper says, or what this repository found of it."""
WHOSE = 'published: of rows that begin with "here", what this repository found; the paper does not say so'

Judged: TypeAlias = tuple[Sequence[Work], Read]
"""What a finding is read from, and how."""


def short(paper: Paper, judged: Iterator[Judged]) -> Item:
    """A paper's findings as an item, with a curve for each training."""
    said = paper.said["findings"]
    pairs = zip(said["rows"], judged, strict=True)
    cells = [Cell(row, column, printed, *how) for (row, column, printed), how in pairs]
    item = Item(paper.name, "findings", said["title"], cells, notes=(WHOSE,))
    lines = {NAMES[training.algorithm]: training for training in item.trainings}
    curves = Curves(item.title, lines, factor=100, ylabel="test accuracy (%)")
    return replace(item, draw=panels([[curves]]), size=(7.0, 4.5))


def lead(ours: Training, theirs: Training) -> Judged:
    """For a finding: the lead in points of accuracy after the last round."""
    return (ours, theirs), partial(gap, final_accuracy)


def of_fed_smp() -> Iterator[Judged]:
    """Fed-SMP's finding: a tenth of the uplink, and more accurate at the same epsilon."""
    dense, sparse = (
        Training("quickstart", name, rounds=60, seeds=5) for name in ("dp_fed_avg", "rand_k")
    )
    yield lead(sparse, dense)
    yield (), lambda: Value(certificate_of(sparse).epsilon - certificate_of(dense).epsilon)
    yield (
        (sparse, dense),
        lambda one, other: Value(100 * uplink_mb(one).mean / uplink_mb(other).mean),
    )


def of_dp_scaffold() -> Iterator[Judged]:
    """DP-SCAFFOLD's finding: faster on unlike clients; the epsilon of a fixed clip norm."""
    config = "dp_scaffold_synthetic"
    ours, theirs = (
        dp_scaffold.training(config, name, rounds=100, every=100, local_steps=50)
        for name in dp_scaffold.PRIVATE
    )
    full = dp_scaffold.training(config, "dp_scaffold", local_steps=50)
    median = accounted(full)
    settings = {**full.settings, "clip_norm": 1.0}
    fixed = accounted(Training(config, "dp_scaffold", settings, full.rounds, full.seeds))
    yield lead(ours, theirs)
    yield (median,), lambda found: Value(found.summary["claimed"] - 13)
    yield (
        (fixed, median),
        lambda found, other: Value(found.summary["third_party"] - other.summary["claimed"]),
    )


def of_wavelet() -> Iterator[Judged]:
    """The wavelet paper's finding: better at equal claims, worse at equal certificates, and the claim is false."""
    settings = {"noise_multiplier": 3.0}
    plain, haar, sound = (
        Training("wavelet_mnist", name, settings, rounds=10, seeds=3, every=10)
        for name in ("dp_sgd", "dp_sgd_wav", "dp_sgd_wav_sound")
    )
    drawn = Computation("audit-of-the-claim", _audit)
    yield (drawn,), lambda found: Value(found.summary["seen"] - found.summary["claimed"])
    yield lead(haar, plain)
    yield lead(sound, plain)


def _audit(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """What is claimed, and what 100,000 draws of each neighbour show."""
    import fedpriv as fp
    from fedpriv.papers import wavelet_claim
    from fedpriv.privacy import Poisson

    sampling, steps, delta = Poisson(594, 60 / 594), 40, 1e-5
    claimed = wavelet_claim(1.0, sampling, steps, delta, "record")
    used = fp.mechanism(
        fp.clipping.flat(), fp.noise.haar_noise(16), clip_norm=1.0, noise_multiplier=1.0
    )
    told = fp.privacy.declared(
        "third_party", "record", used.certified_multiplier, sampling, steps, mechanism=used
    )
    draw = partial(fp.attacks.draw_scores, [told], "third_party", draws=100_000, dimension=16)
    best = fp.attacks.best_thresholds(draw(seed=1), delta, 1e-6, runs=200_000)
    seen = fp.attacks.lower_bounds(draw(seed=0), delta, 1e-6, threshold=best)
    return {"claimed": claimed.epsilon, "seen": seen.least}


def of_mspdq() -> Iterator[Judged]:
    """MSPDQ's finding: trains as FedAvg, hides nothing from the server; quantized as printed it does not train."""
    plain, msp, quantized = (
        Training("mspdq_mnist", name, {"local_epochs": 1}, rounds=6, seeds=3, every=6)
        for name in ("fed_avg", "msp_fl", "mspdq_fl")
    )
    yield (
        (Computation("models-from-messages", _models),),
        lambda found: Value(found.summary["error"]),
    )
    yield lead(msp, plain)
    yield lead(quantized, plain)


def _models(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """How far the updates that least squares finds are from those that FedAvg's clients send in the same round."""
    import jax
    import numpy as np

    import fedpriv as fp
    from fedpriv.experiments.attacks.inversion.views import as_read, common, split

    data, clients = fp.datasets.load("digits", data_dir), 8
    federation = fp.Federation.from_arrays(
        data.train, list(np.arange(clients)[:, None]), num_classes=10
    )
    model = fp.models.classifier(fp.models.MLP((16,), 10), (8, 8, 1))
    params = model.init(jax.random.key(0))

    def seen(algorithm: fp.Algorithm) -> fp.attacks.View:
        state = algorithm.init(params, federation)
        view = jax.jit(partial(fp.attacks.server_view, algorithm))
        return as_read(view(jax.random.key(1), state, federation), params, "transcript")

    sent = np.asarray(seen(fp.fed_avg(model.loss, **common(clients))).update)
    found = np.asarray(seen(split(model.loss, clients)).update)
    errors = np.linalg.norm(found - sent, axis=1) / np.linalg.norm(sent, axis=1)
    return {"error": 100 * float(errors.max())}


FINDINGS = {
    "fed_smp": short(fed_smp.PAPER, of_fed_smp()),
    "dp_scaffold": short(dp_scaffold.PAPER, of_dp_scaffold()),
    "wavelet": short(wavelet.PAPER, of_wavelet()),
    "mspdq": short(mspdq.PAPER, of_mspdq()),
}
