"""Trains an algorithm again and again with a canary, keeping the scores of what is done."""

from __future__ import annotations

import json
import time
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.attacks.canaries import with_canaries
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.core.files import replacing
from fedpriv.core.json_values import flat, plain
from fedpriv.data.federation import Federation
from fedpriv.devices import distributed
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import DivergedError, History
from fedpriv.experiments.attacks.audit.canary import Kind, data_of
from fedpriv.experiments.attacks.audit.whole_runs import Trainer, compiled_trainer
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.provenance import provenance
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.settings import Settings
from fedpriv.pairs.written import in_short
from fedpriv.privacy import Seen, Why

MOST_RUNS = 2**20
SCORES = "scores"
"""Folder within that of an audit."""
FREE: tuple[str, ...] = (
    "output",
    "seeds",
    "every",
    "layout",
    "checkpoint",
    "record",
    "record_private",
    "keep_model",
    "algorithms",
)
FREE += ("metric", "view", "views", "stop_at", "patience", "per_client", "bound", "data_dir")
"""Settings on which no score depends; the data themselves are compared."""


class Asked(NamedTuple):
    """What is asked of an audit by many runs.

    Attributes:
      config: its name.
      runs: of each algorithm.
      deltas: at which epsilons are bounded.
      seed: runs with another one are independent of these.
      folder: where scores are kept; None keeps none.
    """

    config: str
    runs: int
    deltas: tuple[float, ...]
    seed: int
    folder: Path | None


class RepeatedTraining(NamedTuple):
    """Trains one algorithm again and again, with a canary."""

    experiment: Experiment
    settings: Settings
    strategy: Strategy
    asked: Asked
    name: str
    kind: Kind
    seen: Seen

    def train(self, scored: Scored, kept: KeptScores, remaining: Remaining) -> Scored:
        """The scores of all runs that are asked for, of which some are there; each call's are kept at its end."""
        runs = self.asked.runs
        remaining.skip(min(scored.runs, runs))
        if scored.runs >= runs:
            return scored.first(runs)
        call, at_once = self._compiled()
        said = "stopping after the trainings under way; the same command goes on from there"
        with signals.answering(said, said) if kept.path else nullcontext():
            while scored.runs < runs:
                with signals.undisturbed():
                    began = time.perf_counter()
                    scored = self._more(call, at_once, scored, began)
                    kept.save(scored)
                remaining.advance(at_once, time.perf_counter() - began)
        return scored.first(runs)

    def _compiled(self) -> tuple[Trainer, int]:
        entry = self.experiment.entries[self.name]
        federation = entry.federations[0]
        if not isinstance(federation, Federation):
            raise NoPlaceError("federation: many runs are of one that is in memory")
        per_client = int(self.seen.unit == "record")
        data = data_of(self.kind, federation)
        played = with_canaries(entry.algorithm, 1, self.seen, per_client=per_client, data=data)
        rounds = self.settings.rounds
        params = self.experiment.model.init(jax.random.fold_in(jax.random.key(0), 0))
        return compiled_trainer(played, params, federation, rounds, self.strategy)

    def _more(self, call: Trainer, at_once: int, scored: Scored, began: float) -> Scored:
        seeds = self.asked.seed * MOST_RUNS + scored.runs + np.arange(at_once)
        more = call(seeds)
        finite = more.finite & np.isfinite(more.scores).all(axis=0)
        if not finite.all():
            seed = seeds[np.argmin(finite)]
            raise DivergedError(
                f"{self.name}: a model became NaN or infinite (seed {seed})", History(())
            )
        present = np.concatenate([scored.present, more.present])
        scores = np.concatenate([scored.scores, more.scores], axis=1)
        return Scored(present, scores, scored.seconds + time.perf_counter() - began)


class Scored(NamedTuple):
    """Scores of the first n trainings with a canary.

    Attributes:
      present: bool[n].
      scores: f32[3, n].
      seconds: that they took.
    """

    present: np.ndarray
    scores: np.ndarray
    seconds: float

    @property
    def runs(self) -> int:
        return len(self.present)

    def first(self, runs: int) -> Scored:
        """Of so many, if there are."""
        share = min(1.0, runs / max(self.runs, 1))
        return Scored(self.present[:runs], self.scores[:, :runs], self.seconds * share)


NOTHING = Scored(np.zeros(0, bool), np.zeros((3, 0), np.float32), 0.0)


@dataclass(frozen=True)
class KeptScores:
    """The kept scores of one algorithm's repeated trainings.

    Attributes:
      path: of the file; None keeps nothing.
      settings: on which scores depend, as JSON.
    """

    path: Path | None
    settings: dict[str, Any]

    def load(self) -> Scored:
        """What is kept so far.

        Raises:
          ValueError: it is of other settings, or the file is damaged.
        """
        if self.path is None or not self.path.exists():
            return NOTHING
        try:
            with self.path.open("rb") as file, np.load(file) as kept:
                settings = json.loads(str(kept["settings"]))
                found = Scored(kept["present"], kept["scores"], float(kept["seconds"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"output: {self.path} is damaged ({error}); delete it") from None
        if settings != self.settings:
            raise ValueError(
                f"output: {self.path} holds scores of other settings ({self._differing(settings)}); choose another "
                "folder"
            )
        return found

    def save(self, scored: Scored) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(exist_ok=True)
        settings = np.array(json.dumps(self.settings))
        with replacing(self.path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, settings=settings, **scored._asdict())

    def _differing(self, settings: dict[str, Any]) -> str:
        then, now = flat(settings), flat(self.settings)
        names = [n for n in dict.fromkeys([*then, *now]) if then.get(n) != now.get(n)]
        return ", ".join(f"{n}: {then.get(n)} then, {now.get(n)} now" for n in names[:3])


def kept_scores(
    experiment: Experiment, name: str, kind: Kind, settings: Settings, asked: Asked
) -> KeptScores:
    """Where the scores of an algorithm are kept, and all that they depend on."""
    path = asked.folder / SCORES / f"{name}_{kind}.npz" if asked.folder else None
    if path is None:
        return KeptScores(None, {})
    entry = experiment.entries[name]
    data = distributed.digest(jax.tree.leaves(entry.federations[0]))
    used = {key: value for key, value in plain(settings).items() if key not in FREE}
    told = [
        f"{each.view}: {each.unit}, {in_short(pair)}"
        for each in experiment.ledger.trace(name).seen(settings.rounds)
        for pair in dict.fromkeys(each.pairs)
        if not isinstance(pair, Why)
    ]
    about: dict[str, Any] = {
        "config": asked.config,
        "settings": used,
        "solved": {**entry.settings, **entry.solved},
        "data": bytes(data).hex()[:16],
        "seen": "; ".join(told),
        "audit_seed": asked.seed,
        "canary": kind,
        **provenance(),  # scores of two revisions are not mixed: one may have a fault
    }
    return KeptScores(path, plain(about))
