"""The best of a secret number of trials (`sweep --best-of MEAN`): what is drawn, certified, chosen and released.

Papernot and Steinke 2022 (arXiv:2110.03620): K trials, K geometric, each with settings and noise of its own; only the
best is released. What it costs is certified before anything trains, by `fedpriv.privacy.certify_choice`.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.base.files import write_text
from experiments.base.formats import NAMES, setting
from experiments.base.json_values import plain
from experiments.runs.contents import Summary
from experiments.runs.unfinished import fixed
from experiments.search.sweep_grid import Point, title
from experiments.search.training_together import Prepared
from fedpriv.engine.checkpoint import differences
from fedpriv.models.kept_model import model_folder
from fedpriv.models.score import better_higher, is_fraction, main_metric
from fedpriv.privacy import Certificate, certify_choice


class Choice(NamedTuple):
    """A choice among trials.

    Attributes:
      mean: of the number of trials.
      certificate: of the model that is chosen.
      metric: that chooses, on the test set.
      higher: whether it is better when higher.
      notes: what the certificate assumes or leaves out beside.
    """

    mean: float
    certificate: Certificate
    metric: str
    higher: bool
    notes: tuple[str, ...]


RELEASE = "release"  # in the sweep's folder: all that may leave it
KEPT = "secret"  # beside it: the sweep, which only its owner may read
TIME = 946_684_800  # of all files there, as their own would tell how long the trials took
SECRET = (
    f"publish these lines and the folder {RELEASE} alone: what was printed before, the folder {KEPT}, which holds the "
    "trials and their keys, how many there were and the time it took stay secret; the test set, by which the best was "
    "chosen, must be public"
)


def require_options(mean: float, grid: Mapping[str, Any]) -> None:
    if not 1 < mean < math.inf:
        raise ValueError(f"--best-of: {mean:g} is not a finite mean number of trials above 1")
    if "seeds" in grid:
        raise ValueError(
            "--grid: seeds cannot be swept with --best-of, where every trial has a key"
        )


def inside(folder: Path) -> Path:
    """The folder in it for what stays secret.

    Raises:
      ValueError: the folder holds something else.
    """
    kept = folder / KEPT
    if not kept.exists() and folder.exists() and not (folder.is_dir() and not [*folder.iterdir()]):
        raise ValueError(
            f"--output: {folder} is there and holds no sweep --best-of; choose another folder"
        )
    return kept


def require_settings(points: Sequence[Point]) -> None:
    """Raises ValueError: a setting that does not go with a choice among trials."""
    wanted = {"seeds": 1, "view": "third_party", "views": "one", "keep_model": True}
    for point in points:
        if point.config.target_epsilon is not None:
            raise ValueError(
                f"target_epsilon: {point.config.target_epsilon:g} is of one training, but with --best-of choosing "
                f"costs, too; give noise_multiplier (at {point.title})"
            )
        for field, value in wanted.items():
            given = getattr(point.config, field)
            if given != value:
                raise ValueError(
                    f"{field}: {plain(given)} does not go with --best-of, which releases one model of one key to a "
                    f"third party; leave it out (at {point.title})"
                )


def drawn(points: int, mean: float, rng: random.Random) -> list[tuple[int, int]]:
    """(point, key) of each trial: Pr[K = k] = (1 - 1 / mean)^(k-1) / mean; points in range(points), keys of 63 bits.

    A model still shows what its key made of its first weights, so that a key of 32 bits is found by trying them all.
    """
    found: list[tuple[int, int]] = []
    while not found or rng.random() * mean >= 1:
        found.append((rng.randrange(points), rng.getrandbits(63)))
    return found


def trials(
    folder: Path, points: Sequence[Point], grid: Mapping[str, Any], mean: float
) -> list[Point]:
    """Those that sweep.json names, so that what was drawn is never drawn again; else from the system's randomness.

    Raises:
      ValueError: sweep.json is damaged or of another sweep.
    """
    path = folder / "sweep.json"
    if not path.exists():
        draws = drawn(len(points), mean, random.SystemRandom())
        return [
            points[i]._replace(name=f"trial-{n}", key=key) for n, (i, key) in enumerate(draws, 1)
        ]
    by_title = {point.title: point for point in points}
    try:
        there = json.loads(path.read_text())
        kept = {"best_of": there.get("best_of"), "grid": there["grid"]}
        if texts := list(differences(kept, {"best_of": mean, "grid": plain(dict(grid))})):
            raise ValueError(texts[0])
        return [
            by_title[title(p["values"])]._replace(name=str(p["folder"]), key=int(p["key"]))
            for p in there["points"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--output: {folder} holds another sweep, or a damaged one: {error}; choose another folder"
        ) from None


def choice(points: Sequence[Prepared], mean: float) -> Choice:
    """Among trials that are each at one of these points.

    Raises:
      ValueError: a certificate is infinite, or there is none: several algorithms, or points that differ in more than
        settings.
    """
    ledgers = [(p.experiment.ledger, _algorithm(p), p.planned[_algorithm(p)]) for p in points]
    _same("delta", points, lambda p: p.experiment.delta)
    _same("metric", points, _metric)
    _same("the clients' records", points, _records)
    if any(p.experiment.own_test for p in points):
        raise ValueError(
            "--best-of: the test records are the clients', and no certificate covers what is chosen by them; take a "
            "data set with test records of others, and leave folds out"
        )
    own = [of.certify(name, rounds, best_of=mean) for of, name, rounds in ledgers]
    for prepared, certificate in zip(points, own, strict=True):
        if math.isinf(certificate.epsilon):
            raise ValueError(
                f"--best-of: {_algorithm(prepared)} has no finite epsilon ({certificate.assumptions[0]}); leave it out "
                f"(at {prepared.point.title})"
            )
    releases = [of.trace(name).releases(rounds) for of, name, rounds in ledgers]
    found = replace(
        certify_choice(releases, points[0].experiment.delta, mean),
        basis=max(c.basis for c in own),  # declared, if one of them is
        assumptions=tuple(dict.fromkeys(text for c in own for text in c.assumptions)),
    )
    notes = tuple(dict.fromkeys(note for p in points for note in p.experiment.notes))
    return Choice(mean, found, *_metric(points[0]), notes)


def _algorithm(prepared: Prepared) -> str:
    name, *others = prepared.experiment.entries
    if others:
        raise ValueError(
            f"algorithms: {' '.join([name, *others])} are several, but --best-of chooses among models of one; name one"
        )
    return name


def _metric(prepared: Prepared) -> tuple[str, bool]:
    name = main_metric(prepared.experiment.metrics, prepared.point.config.metric)
    return name, better_higher(name, prepared.experiment.higher)


def _records(prepared: Prepared) -> tuple[int, ...]:
    """The clients' records are the same arrays where they are equal, see `Interned`."""
    (federation,) = prepared.experiment.entries[_algorithm(prepared)].federations
    return tuple(map(id, jax.tree.leaves((federation.examples, federation.rows, federation.size))))


def _same(what: str, points: Sequence[Prepared], of: Callable[[Prepared], Any]) -> None:
    first, *others = points
    for other in others:
        if of(other) != of(first):
            raise ValueError(
                f"--best-of: {what} must be the same at every point for one certificate, but differ between "
                f"{first.point.title} and {other.point.title}; sweep something else"
            )


def released(
    folder: Path, name: str, made: Choice, found: Sequence[tuple[Point, Summary]]
) -> dict[str, Any]:
    """Writes and returns the release: the best trial at its last round; of none, without files, if all diverged."""
    scores = [_score(summary, made.metric) for _, summary in found]
    about = {"config": Path(name).stem, "best_of": made.mean, "certified": made.certificate}
    about |= {"notes": made.notes}
    at = best(scores, made.higher)
    if at is None:
        return plain(about)
    point, summary = found[at]
    ((algorithm, rounds),) = summary.rounds.items()
    about |= {"algorithm": algorithm, "settings": fixed(point.config), "values": point.values}
    about |= {"solved": summary.solved.get(algorithm, {}), "rounds": rounds}
    about |= {"metric": made.metric, "value": scores[at]}
    model = model_folder(folder / KEPT / point.name, algorithm, point.seeds[0])
    shutil.copytree(model, model_folder(folder / RELEASE, algorithm, 0), dirs_exist_ok=True)
    write_text(folder / RELEASE / "release.json", json.dumps(plain(about), indent=2) + "\n")
    for path in [folder / RELEASE, *(folder / RELEASE).rglob("*")]:
        os.utime(path, (TIME, TIME))
    return plain(about)


def _score(summary: Summary, metric: str) -> float | None:
    """Of a trial at its last round, on the test set; None if it diverged."""
    (final,) = summary.final.values() if not summary.diverged else [None]
    return final[metric].mean if final else None


def best(scores: Sequence[float | None], higher: bool) -> int | None:
    """The first of the best; None where no trial has a number."""
    known = {i: s for i, s in enumerate(scores) if s is not None and not math.isnan(s)}
    return (max if higher else min)(known, key=known.__getitem__, default=None)


def shown(about: Mapping[str, Any], made: Choice) -> str:
    """What was chosen and what it costs, for people."""
    lines = ["every trial has diverged: there is no model to release"]
    if name := about.get("algorithm"):
        said = ", ".join(setting(field, value) for field, value in about["values"].items())
        scale, unit = (100, " %") if is_fraction(made.metric) else (1, "")
        lines = [
            f"chosen: {NAMES.get(name, name)}, {said}; {made.metric} {scale * about['value']:.4g}{unit} on the test "
            f"set after round {about['rounds']}, the last",
            f"model: {model_folder(Path(RELEASE), name, 0)}, in the sweep's folder",
        ]
    assumed = (f"  {text}" for text in made.certificate.assumptions)
    notes = (f"note: {note}" for note in made.notes)
    lines += [str(made.certificate), "on the assumption that", *assumed, *notes, SECRET]
    return "\n".join(lines)
