"""What audits by many runs saw of an attacker's errors, to be drawn under the curves that no attacker is below."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.privacy import Certificate

SAME = ("view", "unit", "relation", "event")
"""What of a certificate has to be that of the run."""
WORST = "worst_case"
"""The kind of canary that needs no name."""


class Errors(NamedTuple):
    """False-positive and false-negative rates that an audit counted for an algorithm and a view, with a kind of canary.

    Attributes:
      source: the audit's file.
      certified: the certificate that was audited, as JSON.
      points: "false_positives" and "false_negatives", each with its "rate" and the ends of its interval, "low", "high".
    """

    source: Path
    algorithm: str
    canary: str
    runs: int
    certified: dict[str, Any]
    points: list[dict[str, dict[str, float]]]

    @property
    def label(self) -> str:
        """For a legend."""
        kind = "" if self.canary == WORST else f", {self.canary.replace('_', ' ')}"
        return f"{self.certified['view']}, seen{kind}"

    def are_of(self, algorithm: str, certificate: Certificate) -> bool:
        """Whether the algorithm of a run has what was audited."""
        same = all(self.certified[name] == getattr(certificate, name) for name in SAME)
        return same and algorithm == self.algorithm


def read_audits(given: Sequence[str | Path]) -> list[Errors]:
    """Of `experiments.audit --parts many_runs --output DIR`, by folder or file.

    Raises:
      ValueError: no such file, or something else in it.
    """
    return [errors for path in given for errors in _read(Path(path))]


def _read(path: Path) -> Iterator[Errors]:
    file = path / "audit.json" if path.is_dir() else path
    try:
        rows = json.loads(file.read_text()).get("many_runs", [])
        for row in rows:
            certified, points = row["certified"], row["audited"].get("errors")
            if points and row["views"] == [
                certified["view"]
            ]:  # no certificate is of the last model alone
                about = (row["algorithm"], row["canary"], row["runs"])
                yield Errors(file, *about, certified, points["seen"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"audits: {path} holds no audit ({type(error).__name__}: {error}); give the --output folder of "
            "experiments.audit"
        ) from None


def undrawn(audits: Sequence[Errors], drawn: Sequence[Errors]) -> list[str]:
    """A remark on each audit of algorithms, or of releases, that no run has."""
    left: dict[Path, list[str]] = {}
    for errors in audits:
        if not any(errors is one for one in drawn):
            left.setdefault(errors.source, []).append(errors.algorithm)
    return [
        f"{source}: what it audited of {', '.join(dict.fromkeys(names))} is not what was run here, and not drawn"
        for source, names in left.items()
    ]
