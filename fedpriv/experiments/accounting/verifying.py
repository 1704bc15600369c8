"""Are a run's certificates right? Their numbers by their pairs, and their pairs by the run's config."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.terminal_text import wrapped
from fedpriv.experiments.accounting.budget import made, planned_rounds
from fedpriv.experiments.accounting.found import recorded_noise
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.runs.run_folder import RunFolder, read
from fedpriv.experiments.runs.unfinished import earlier
from fedpriv.pairs.numbers import Status, Verified, verify
from fedpriv.pairs.theirs import NotTheirsError, by_dp_accounting
from fedpriv.privacy import Certificate

NOT_LOOKED_AT = (
    "what is computed of certificates (operational numbers, epsilons by group and client), those of statistics alone, "
    "claims, and the lines of metrics.jsonl but for their rounds"
)
LEAST_DELTA = 1e-10
"""Where dp-accounting's estimates still hold, as measured: at 1e-12 its optimistic one is above the truth."""


class Checked(NamedTuple):
    """A recorded certificate, and what three checks of it found.

    Attributes:
      algorithm: whose.
      certificate: as it is recorded.
      numbers: by its pairs alone.
      origin: how it differs from the recorded config, traced again; (): in nothing; None: it was not traced, as the run
        has no pairs.
      theirs: what dp-accounting says of each pair, in words.
    """

    algorithm: str
    certificate: Certificate
    numbers: Verified
    origin: tuple[str, ...] | None
    theirs: tuple[str, ...]

    @property
    def status(self) -> Status:
        """Of all checks together."""
        by_theirs = any(each.startswith("contradicted") for each in self.theirs)
        return "contradicted" if self.origin or by_theirs else self.numbers.status


def verified(folder: Path, config: Config | None = None) -> list[Checked]:
    """The checks of every certificate in a run's summary.json.

    Args:
      config: of the run, if it is a file that lies elsewhere now.

    Raises:
      ValueError: no run, one that has not ended, or one whose config cannot be traced again.
    """
    run = read(folder)
    if run.summary is None:
        raise ValueError(f"verify: {folder} has no summary.json yet; let the run end, or resume it")
    reports = run.summary.privacy
    with_pairs = any(c.compositions for each in reports.values() for c in each.certified.values())
    ledger, found = None, []
    planned: dict[str, int] = {}
    if with_pairs:
        ledger, settings = _traced_again(folder, config)
        planned = planned_rounds(ledger, settings)
    for name, report in reports.items():
        for view, certificate in report.certified.items():
            differs = None
            if ledger is not None:
                fresh = ledger.certify(name, report.rounds, view=view)
                rounds = _rounds(run, name, report.rounds, planned[name])
                differs = rounds + differences(certificate, fresh)
            numbers = verify(certificate.to_json())
            pairs = tuple((unit.pair, unit.epsilon) for unit in certificate.compositions)
            finite = numbers.holds and math.isfinite(certificate.epsilon)
            theirs = _theirs(pairs, certificate.delta) if finite else ()
            found.append(Checked(name, certificate, numbers, differs, theirs))
    return found


def _traced_again(folder: Path, own: Config | None) -> tuple[Ledger, Settings]:
    try:
        of_run, config = earlier(folder, own)
    except ValueError as error:
        raise ValueError(f"verify: the config cannot be traced again; {error}") from None

    def ledger(settings: Settings) -> Ledger:
        return replace(ledger_of(config, settings), secret_seed=of_run.secret_seed)

    return made(ledger, of_run.settings, recorded_noise(of_run)), of_run.settings


def _rounds(run: RunFolder, name: str, rounds: int, planned: int) -> tuple[str, ...]:
    """Whether so many rounds were trained, and as many as the config says where nothing stopped it."""
    lines = run.lines.get(name, ())
    trained = {"metrics.jsonl": lines[-1].round if lines else 0}
    trained["summary.json"] = run.results.rounds.get(name, 0)
    if run.results.status == "complete" and name not in run.results.stopped:
        trained["the config"] = planned
    return tuple(f"rounds: {rounds}, and {f} has {n}" for f, n in trained.items() if n != rounds)


def differences(recorded: Certificate, fresh: Certificate) -> tuple[str, ...]:
    """In which respects a certificate is not the one of the config; a larger epsilon or delta is none."""
    fields = ("unit", "view", "relation", "basis", "event", "accountant", "bound", "assumptions")
    said = [
        f"{field}: {_short(ours)}, and the config's is {_short(theirs)}"
        for field in fields
        if (ours := getattr(recorded, field)) != (theirs := getattr(fresh, field))
    ]
    ours, theirs = (
        {(unit.pair, unit.relation, unit.others) for unit in each.compositions}
        for each in (recorded, fresh)
    )
    if ours != theirs:
        said.append(f"pairs: {_first(ours - theirs)}, and the config's is {_first(theirs - ours)}")
    return tuple(said)


def _short(value: Any) -> str:
    text = "; ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _first(pairs: set[Any]) -> str:
    return _short(str(min(pairs, key=str)[0])) if pairs else "none that the other lacks"


@cache
def _theirs(pairs: tuple[Any, ...], delta: float) -> tuple[str, ...]:
    """dp-accounting's number for each kind of unit, where it has the pair."""
    found = []
    if delta < LEAST_DELTA:
        return (f"not checkable: its numbers are wrong for deltas below {LEAST_DELTA:g}",)
    for pair, epsilon in pairs:
        try:
            low, high = by_dp_accounting(pair, delta, 1e-4 * max(1.0, epsilon))
        except NotTheirsError as why:
            found.append(f"not checkable: {why}")
            continue
        word = (
            "contradicted" if low > epsilon else "looser" if high > 1.001 * epsilon else "confirmed"
        )
        found.append(f"{word}: epsilon {epsilon:.6g}, and theirs lies in [{low:.6g}, {high:.6g}]")
    return tuple(dict.fromkeys(found))


def text(checked: list[Checked], width: int) -> str:
    """What `fedpriv privacy --verify` prints; `width` in characters, of its prose."""
    blocks: dict[str, list[str]] = {}
    for one in checked:
        blocks.setdefault(_block(one), []).append(one.algorithm)
    lines = [f"{', '.join(names)}, {block}\n" for block, names in blocks.items()]
    trusted = dict.fromkeys(each for one in checked for each in one.numbers.trusts)
    lines += [f"trusted: {each}" for each in trusted]
    lines.append(f"not looked at: {NOT_LOOKED_AT}")
    return "\n".join(wrapped(line, width) for text in lines for line in text.split("\n")) + "\n"


def _block(one: Checked) -> str:
    c = one.certificate
    head = (
        f"{c.view}: epsilon {c.epsilon:.6g} at delta {c.delta:.3g} ({c.basis}), {c.unit}-level, "
        f"{c.relation.replace('_', '-')} adjacency"
    )
    said = [f"numbers: {one.numbers.status}: {each}" for each in one.numbers.lines]
    if math.isinf(c.epsilon) and one.numbers.holds:
        said = ["numbers: nothing is claimed"]
    said += [f"origin: contradicted: {each}" for each in one.origin or ()]
    if one.origin == ():
        said.append("origin: confirmed: the config, traced again, shows these pairs")
    said += [f"dp-accounting: {each}" for each in one.theirs]
    return "\n".join([head, *(f"  {each}" for each in said)])
