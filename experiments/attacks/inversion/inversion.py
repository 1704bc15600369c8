"""The command `inversion`: the images that a server reconstructs from what each algorithm shows it.

iDLG (Zhao, Mopuri, Bilen 2020) on clients with one image each, in the first round from a freshly drawn SigmoidLeNet:
the label by the last layer's gradient, then Adam(0.1) on a dummy image until its update points as what was seen does.
Prints a table, leaves inversion.json and victims.png in a folder. Figure 6 of the MSPDQ paper is
experiments.reproduce's. Exit code 2: something given was wrong; 130: interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from experiments.attacks.inversion.attack import Attacked, attacker, views
from experiments.attacks.inversion.views import RATE, Reading, Victims, all_seen, draw_victims, read
from experiments.base.command import Parser, command
from experiments.base.formats import epsilon, hyphenated, markdown
from experiments.base.json_values import plain
from experiments.base.time_left import Remaining
from experiments.config.fields import Number, NumberOrZero, check_each
from fedpriv.engine import compilation_cache

DELTA = 1e-5
DATA = ("fashion_mnist", "mnist", "digits")


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    compilation_cache.cache_programs()
    data = fp.datasets.load(options.data, options.data_dir)
    options.output.mkdir(parents=True, exist_ok=True)
    victims = draw_victims(data, options.victims, options.seed)
    found = attack_all(victims, options.steps, options.seed)
    written = as_json(options, victims, found)
    (options.output / "inversion.json").write_text(json.dumps(written, indent=2) + "\n")
    picture(victims, found, options.output / "victims.png")
    print(json.dumps(written, indent=2) if options.json else text(victims, found))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m experiments.inversion",
        description=(__doc__ or "").partition("\n\n")[2],
    )
    parser.add_argument("--data", default="fashion_mnist", choices=DATA)
    parser.add_argument("--victims", type=int, default=16, metavar="N", help="default 16")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="of Adam, default 300")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="of prepared data")
    parser.add_argument("--output", type=Path, default=Path("runs/inversion"), metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    if not 2 <= options.victims <= 1000:
        raise ValueError(f"--victims: {options.victims} is not in 2..1000, with an image each")
    check_each(Number, **{"--steps": options.steps})
    check_each(NumberOrZero, **{"--seed": options.seed})
    return options


def attack_all(victims: Victims, steps: int, seed: int) -> list[Attacked]:
    """Every view of `all_seen`, after who sees nothing."""
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
            made = attack(read(view, victims.params, reading), seen.steps)
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
    options: argparse.Namespace, victims: Victims, found: Sequence[Attacked]
) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
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
    settings = {name: getattr(options, name) for name in ("data", "victims", "steps", "seed")}
    return plain({"settings": settings, "clients_rate": RATE, "views": rows})


def text(victims: Victims, found: Sequence[Attacked]) -> str:
    """A Markdown table, and what it means."""
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
    return markdown([head, *(_row(victims, one) for one in found)], [said])


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
    """True images above the reconstructed ones, a row per view."""
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
    Image.open(written).convert("L").quantize(16).save(
        path, optimize=True
    )  # noise is incompressible
