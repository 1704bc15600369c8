"""Checkpoints of a run, so that the same call goes on where it was stopped."""

from __future__ import annotations

import errno
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from fedpriv.core.arguments import Count, NonNegative, check_fields, check_path
from fedpriv.core.complaints import require
from fedpriv.core.files import replacing
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import Evaluation
from fedpriv.engine.run_state import Snapshot
from fedpriv.engine.serialization import packed, read, unpacked, write
from fedpriv.rounds.one_round import Carried

FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_CHOICE = {
    "convolution": "canonical",
    "dense": "auto",
}  # of earlier revisions, as it is always now
KEPT = 2  # if the last one turns out to be damaged, there is the one before


class OtherRunError(ValueError):
    """The checkpoint has other settings, data, layout of clients or shapes of the state; says which."""


@dataclass(frozen=True)
class Checkpoints:
    """Where `simulate` keeps a run's checkpoints, and how often it takes one (always at an evaluation).

    A checkpoint gets its final name when it is complete; the last two are kept. With several processes, process 0
    writes, and all must be able to read the folder.

    Attributes:
      folder: a folder for this run alone; made if it does not exist.
      rounds: take a checkpoint at the first evaluation at least so many rounds after the last one; None: not by rounds.
      minutes: likewise, in minutes of wall-clock time; None: not by the clock.
      settings: settings of the algorithm, as JSON. A run continues only with the same settings, beside what `simulate`
        itself compares (nested mappings are compared field by field).
      say: called with a line of text for each checkpoint that cannot be read, and for the first that cannot be written.
        Training goes on, and earlier checkpoints stay.
      on_resume: called with the earlier evaluations when a run is resumed.

    Raises:
      ValueError: rounds below 1, minutes below 0, or settings that are not JSON.
    """

    folder: Path | str
    rounds: Count | None = None
    minutes: NonNegative | None = 10.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], object] = warnings.warn
    on_resume: Callable[[Sequence[Evaluation]], object] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_path("folder", self.folder, "give the path of a folder")
        require(callable(self.say), "say", self.say, "give a function of a line of text")
        resumes = self.on_resume is None or callable(self.on_resume)
        require(resumes, "on_resume", self.on_resume, "give a function, or leave it out")
        try:
            json.dumps(dict(self.settings))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoints.settings: {error}; give numbers, texts, lists and dicts of such"
            ) from None

    @contextmanager
    def opened(self, identity: Callable[[int], Mapping[str, Any]], rounds: int) -> Iterator[Keeper]:
        """The opened checkpoints, for `simulate` of so many rounds.

        Args:
          identity: rounds -> what must be unchanged, too, of a run of so many.
          rounds: of this run.

        Raises:
          ValueError: the folder cannot be made.
        """
        folder, writes = Path(self.folder).absolute(), jax.process_index() == 0
        try:
            is_new = writes and not folder.exists()
            if writes:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in FULL:  # of which the first checkpoint will tell
                raise ValueError(
                    f"checkpoints: cannot make {folder} ({error.strerror}); choose another folder"
                ) from None
        try:
            yield Keeper(self, folder, identity, rounds)
        finally:
            if is_new:
                with suppress(OSError):  # it holds checkpoints, or is gone
                    folder.rmdir()


class Keeper:
    """A folder of checkpoints, each a file ROUND.npz.

    Attributes:
      planned: rounds that the run was to have whose snapshot was loaded; 0: none was.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        folder: Path,
        identity: Callable[[int], Mapping[str, Any]],
        rounds: int,
    ):
        self._settings, self._folder, self._identity = checkpoints, folder, identity
        self._wanted, self._rounds = self._wanted_of(rounds), rounds
        self._round, self._time = 0, time.monotonic()
        self._told = False  # that one cannot be written
        self.planned = 0

    def _wanted_of(self, rounds: int) -> dict[str, Any]:
        """What a checkpoint of a run of so many rounds says, if it is of this one."""
        wanted: dict[str, Any] = json.loads(
            json.dumps({**self._settings.settings, **self._identity(rounds)})
        )
        return wanted

    def _files(self) -> list[tuple[int, Path]]:
        """Rounds of which there is a checkpoint, last first."""
        files = self._folder.glob("*.npz")
        return sorted(((int(f.stem), f) for f in files if f.stem.isdecimal()), reverse=True)

    def load(self, like: Carried) -> Snapshot | None:
        """The last snapshot that can be read, if any; `like` has the same shapes.

        Raises:
          OtherRunError: it is of another run, and names all that differs, or of more rounds than this one has.
          ValueError: as which that can be caught, too.
        """
        files = self._files()
        for number, (round, file) in enumerate(files, 1):
            try:
                named, about = read(file)
            except MemoryError:
                raise
            except Exception as error:  # whatever a damaged file makes the reader raise
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the system's: the file may be whole
                reason = " ".join(str(error).split())[:200]
                before = "the one before it is taken"
                instead = (
                    before if number < len(files) else "there is none before it: this begins again"
                )
                self._settings.say(
                    f"checkpoint of round {round} in {self._settings.folder} cannot be read ({reason}); {instead}"
                )
                continue
            layout = self._agreed(about["settings"])
            try:
                snapshot = unpacked(named, about["run"], like, layout)
            except ValueError as error:
                raise OtherRunError(self._refusal(str(error))) from None
            self._check_program(about["settings"].get("program", {}))
            if snapshot.round > self._rounds:
                raise OtherRunError(
                    f"rounds: {self._rounds}; {self._settings.folder} holds a checkpoint of round {snapshot.round}; "
                    "give at least as many, or another folder"
                )
            self._round, self.planned = snapshot.round, int(about["settings"]["rounds"])
            return snapshot
        return None

    def _agreed(self, there: dict[str, Any]) -> Strategy:
        """The layout; another one would add in another order, and free memory may not be what it was."""
        planned = there["rounds"]
        wanted = self._wanted if planned == self._rounds else self._wanted_of(planned)
        if planned == self._rounds and "clip_norms" not in there:  # as in earlier revisions
            wanted = {field: value for field, value in wanted.items() if field != "clip_norms"}
        there, wanted = _of_any_jax(there, wanted), _of_any_jax(wanted, there)
        layout = wanted["layout"]
        recorded = {f: v for f, v in there["layout"].items() if _NO_CHOICE.get(f) != v}
        there = there | {"layout": recorded}
        if layout["clients"] == "fit":
            layout = layout | {"clients": recorded["clients"]}
        here = wanted | {"layout": layout}
        # A digest of the program says least, and differs with most of the others.
        by_digest = differences(there.get("program"), here.get("program"), "program")
        if different := list(_different(there, here)):
            raise OtherRunError(self._refusal("; ".join(different)))
        if different := list(by_digest):
            raise self._of_other_program(different)
        return Strategy(**layout)

    def _check_program(self, there: dict[str, Any]) -> None:
        """Raises OtherRunError: it is another program of the same version of JAX, whatever it releases."""
        here = self._wanted.get("program", {})
        if there.get("jax") == here.get("jax") and there != here:
            raise self._of_other_program(differences(there, here, "program"))

    def _of_other_program(self, different: Iterable[str]) -> OtherRunError:
        why = "a number or a line of the algorithm or the model is another, or a setting of JAX such as its precision"
        return OtherRunError(self._refusal(f"{'; '.join(different)} ({why})"))

    def _refusal(self, different: str) -> str:
        return (
            f"checkpoints: {self._settings.folder} is of another run: {different}; give what was given there, or "
            "another folder"
        )

    def begin(self, saved: Snapshot | None) -> None:
        """After `load`, in all processes: from here on the folder is written to."""
        if jax.process_index() == 0:
            unread = [file for round, file in self._files() if round > self._round]
            for file in (*unread, *self._folder.glob("*.unfinished")):
                _remove(file)
        if saved and self._settings.on_resume:
            self._settings.on_resume(saved.evaluations)

    def offer(self, round: int, snapshot: Callable[[], Snapshot], now: bool = False) -> None:
        """Takes a checkpoint if one is due; `now`: if there is none of this round."""
        settings, passed = self._settings, (time.monotonic() - self._time) / 60
        due = settings.rounds is not None and round - self._round >= settings.rounds
        due |= settings.minutes is not None and passed >= settings.minutes
        if (due or now) and round > self._round:
            if jax.process_index() == 0:
                self._save(snapshot())
            self._round, self._time = round, time.monotonic()

    def _save(self, snapshot: Snapshot) -> None:
        named, run = packed(snapshot)
        settings = self._wanted | {"layout": snapshot.layout.order}
        path = self._folder / f"{snapshot.round}.npz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as unfinished, unfinished.open("wb") as file:
                write(file, named, {"settings": settings, "run": run})
        except OSError as error:  # the disk is full: the run is worth more than its checkpoint
            if not self._told:
                self._told = True
                self._settings.say(
                    f"checkpoint of round {snapshot.round} in {self._settings.folder} cannot be written ({error}); "
                    "training goes on, and this is not said again"
                )
            return
        for _, old in self._files()[KEPT:]:
            _remove(old)


def _of_any_jax(settings: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of a program what it releases alone, where `other` settings say that, too."""
    released = settings.get("program", {}).get("calls")
    return settings | {"program": {"calls": released if "program" in other else None}}


def _remove(file: Path) -> None:
    """Or leaves it, where that is not allowed."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def _different(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """As `differences`, without the program; what several views see, and the matrix of their noise, is told once."""
    a, b = there.get("seen"), here["seen"]
    if a is None:
        yield "what its views saw was recorded by a version before 0.3 there"
        return
    first, *likewise = [v for v in dict.fromkeys([*a, *b]) if a.get(v) != b.get(v)] or [""]
    told = {"program", "seen", *(["noise"] if first else [])}
    others_there, others_here = (
        {field: value for field, value in x.items() if field not in told} for x in (there, here)
    )
    yield from differences(others_there, others_here)
    if first:
        before, now = str(a.get(first)), str(b.get(first))
        others = " and ".join(f"seen.{view}" for view in likewise)
        yield (
            f"seen.{first} {before} there, {_new_words(before, now)} here"
            + (f", {others} likewise" if others else "")
        )


def _new_words(before: str, now: str) -> str:
    """Those of `now` that differ, where the two are alike but for these."""
    one, other = before.split(), now.split()
    differ = [b for a, b in zip(one, other, strict=False) if a != b]
    return now if len(one) != len(other) or not differ else " ".join(differ).strip(",;")


def differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """For a checkpoint of another run: a text for each field that differs between two JSON values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for field in dict.fromkeys([*there, *here]):
            below = f"{name}.{field}" if name else field
            yield from differences(there.get(field), here.get(field), below)
    elif there != here and not (there != there and here != here):  # NaN is what it was
        yield f"{name} {_text(there)} there, {_text(here)} here"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value)) or "none"
    return str(value)
