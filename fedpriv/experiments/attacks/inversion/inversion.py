"""The images that a server reconstructs from what each algorithm shows it: in numbers, as a table and a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.core.files import replacing
from fedpriv.core.json_values import plain
from fedpriv.experiments.attacks.inversion.attack import Attacked, attacker, views
from fedpriv.experiments.attacks.inversion.views import RATE, Reading, Victims, all_seen, as_read
from fedpriv.experiments.base.formats import epsilon, markdown_table
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.privacy.epsilon_words import hyphenated

DELTA = 1e-5


def attack_all(victims: Victims, steps: int, seed: int) -> list[Attacked]:
    """Inverts every view of `all_seen`, after who sees nothing."""
    found = [_blind(victims)]
    attack = attacker(victims, steps, seed)
    every = all_seen(victims.model.loss, len(victims.labels))
    remaining = Remaining("views", sum(len(seen.readings) for seen in every.values()))
    for name, seen in every.items():
        given = seen.algorithm, victims.params, victims.federation
        certificate = fp.certify(*given, 1, DELTA, view="server")
        view = views(victims, seen, seed)
        for reading in seen.readings:
            title = name if reading == "update" else f"{name}, {_TITLES[reading]}"
            made = attack(as_read(view, victims.params, reading), seen.steps)
            found.append(made._replace(name=title, certificate=certificate))
            remaining.advance()
    return found


def _blind(victims: Victims) -> Attacked:
    images = jnp.broadcast_to(victims.guess, victims.images.shape)
    nothing = np.zeros(len(images))
    return Attacked(images, nothing, nothing, 0.0, "nothing (mean image)")


_TITLES: dict[Reading, str] = {
    "first": "first submodel",
    "last": "last submodel",
    "transcript": "by transcript",
    "weights": "by transcript, weights searched",
    "sum": "by state sum",
}


def as_json(
    settings: dict[str, Any], victims: Victims, found: Sequence[Attacked]
) -> dict[str, Any]:
    """The object that `inversion --json` prints; infinity is the string "inf"."""
    rows = [
        {
            "view": one.name,
            "label_accuracy": None if one.certificate is None else float(one.labels.mean()),
            "cosine": None if one.certificate is None else one.cosine.tolist(),
            **{name: x.tolist() for name, x in one.scores(victims.images).items()},
            "seconds": one.seconds,
            "certificate": one.certificate,
        }
        for one in found
    ]
    return plain({"settings": settings, "clients_rate": RATE, "views": rows})


def text(victims: Victims, found: Sequence[Attacked]) -> str:
    """A Markdown table of reconstructed images in numbers, and what it means."""
    head = [
        "what the server sees",
        "cosine",
        "labels",
        "MSE (quartiles)",
        "PSNR",
        "SSIM",
        "eps",
        "unit",
    ]
    relations = sorted({hyphenated(c.relation) for one in found if (c := one.certificate)})
    said = (
        f"medians over {len(victims.labels)} victims, of images clipped to [0, 1]; cosine: of what was seen and the "
        "client's true update, where it was sent; labels: inferred rightly; eps: certified for this one round, server "
        f"view, {' / '.join(relations)} adjacency, delta = {DELTA:g}; inf: nothing is certified"
    )
    return markdown_table([head, *(_row(victims, one) for one in found)], [said])


def _row(victims: Victims, one: Attacked) -> list[str]:
    scores, certificate = one.scores(victims.images), one.certificate
    low, middle, high = np.quantile(scores["mse"], (0.25, 0.5, 0.75))
    blind = certificate is None
    return [
        one.name,
        "-" if blind else f"{np.median(one.cosine):.2g}",
        "-" if blind else f"{one.labels.mean():.0%}",
        f"{middle:.2g} ({low:.2g} to {high:.2g})",
        f"{np.median(scores['psnr']):.1f}",
        f"{np.median(scores['ssim']):.2f}" if "ssim" in scores else "-",
        "-" if certificate is None else epsilon(plain(certificate.epsilon)),
        "-" if certificate is None else certificate.unit,
    ]


def picture(victims: Victims, found: Sequence[Attacked], path: Path) -> None:
    """The inversion's picture: true images above the reconstructed ones, a row per view."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    shown = min(10, len(victims.labels))
    rows = [("true images", "MSE", victims.images)]
    for one in found[1:]:
        rows.append((one.name, f"{np.median(one.scores(victims.images)['mse']):.2g}", one.images))
    width, height = 3.8 + 0.5 * shown, 0.52 * len(rows)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=3 / width, right=1 - 0.75 / width, bottom=0, top=1, hspace=0.04)
    for axes, (name, score, images) in zip(figure.subplots(len(rows)), rows, strict=True):
        strip = np.concatenate(list(np.asarray(images[:shown]).mean(-1)), 1)
        axes.imshow(strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        axes.text(1.01, 0.5, score, transform=axes.transAxes, va="center", fontsize=10)
        axes.spines[:].set_visible(False)
    written = io.BytesIO()
    figure.savefig(written, dpi=100)
    image = Image.open(written).convert("L").quantize(16)  # noise is incompressible
    with replacing(path, shared=True) as unfinished:
        image.save(unfinished, format="png", optimize=True)
