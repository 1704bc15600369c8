"""What audits by many runs saw of an attacker's errors, to be drawn under the curves that no attacker is below."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.json_values import of_kind
from fedpriv.experiments.base.files import opened
from fedpriv.privacy import Certificate

SAME = ("view", "unit", "relation", "event", "basis")
"""What of a certificate has to be that of the run."""
_POINTS = tuple[dict[str, dict[str, float]], ...]
WORST = "worst_case"
"""The kind of canary that needs no name."""


class Errors(NamedTuple):
    """False-positive and false-negative rates that an audit counted for an algorithm and a view, with a kind of canary.

    Attributes:
      source: the audit's file.
      config: that it trained.
      certified: the certificate that was audited, as JSON.
      points: "false_positives" and "false_negatives", each with its "rate" and the ends of its interval, "low", "high".
    """

    source: Path
    config: str
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

    def are_of(self, config: str, algorithm: str, certificate: Certificate) -> bool:
        """Whether the algorithm of a run of `config` has what was audited.

        Its delta may be another one: a curve holds for all.
        """
        same = all(self.certified[name] == getattr(certificate, name) for name in SAME)
        trained = Path(self.config).stem, self.algorithm
        return same and (Path(config).stem, algorithm) == trained


def read_audits(given: Sequence[str | Path]) -> list[Errors]:
    """Of `fedpriv audit --parts many_runs --output DIR`, by folder or file.

    Raises:
      ValueError: no such file, or something else in it.
    """
    return [errors for path in given for errors in _read(Path(path))]


def _read(path: Path) -> Iterator[Errors]:
    file = path / "audit.json" if path.is_dir() else path
    with opened(file, "give the --output folder of experiments.audit") as audit:
        text = audit.read()
    try:
        found = json.loads(text)
        for row in found.get("many_runs", []):
            certified, points = row["certified"], row["audited"].get("errors")
            if points and row["views"] == [
                certified["view"]
            ]:  # no certificate is of the last model alone
                config, algorithm, canary = (
                    of_kind(str, held[name], name)
                    for held, name in ((found, "config"), (row, "algorithm"), (row, "canary"))
                )
                runs = of_kind(int, row["runs"], "runs")
                seen = of_kind(_POINTS, points["seen"], "errors.seen")
                yield Errors(file, config, algorithm, canary, runs, certified, list(seen))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
