"""Run folders of every kind, recorded once a session without training: what tests of tables and reports read.

Whoever changes a folder takes a copy.
"""

import atexit
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from reported import edit, record

from fedpriv.core.json_values import plain
from fedpriv.engine.history import History
from fedpriv.experiments.runs.run_folder import read

OLD = Path(__file__).parent / "run_of_2026"
TWO = ("top_k", "dp_fed_avg")
GROUPS = ("urban",) * 5 + ("rural",) * 4 + ("far off",) * 3
BUDGETS = (4.0, 1.0, 2.0)
STOPPED = "stopped at round 20: accuracy reached 0.8"
SEEN = [
    {
        "false_positives": {"rate": x, "low": x / 2, "high": 2 * x},
        "false_negatives": {"rate": 1 - 2 * x, "low": 1 - 3 * x, "high": 1 - x},
    }
    for x in (0.01, 0.1)
]
"""What an audit counted of an attacker's errors."""


class Recorded(NamedTuple):
    """A folder, and what was recorded of each algorithm, where one run is in it."""

    path: Path
    histories: dict[str, History]


def _stopped(folder: Path) -> dict[str, History]:
    """One algorithm of all was ended by the test set, at round 20 of 40."""
    histories = record(folder)
    planned = json.loads((folder / "summary.json").read_text())["rounds_planned"]
    edit(
        folder / "summary.json", rounds_planned=planned | {"top_k": 40}, stopped={"top_k": STOPPED}
    )
    return histories


def _sweep(folder: Path) -> dict[str, History]:
    """Of three budgets, which the epsilons follow; FedAvg is one training."""
    points = [{"folder": f"{target}"} for target in BUDGETS]
    for target in BUDGETS:
        given: dict[str, Any] = {"target_epsilon": target, "algorithms": ("fed_avg", "top_k")}
        record(folder / f"{target}", rounds=(5, 10), seeds=2, seed=int(target), **given)
        path = folder / f"{target}" / "summary.json"
        privacy = read(path.parent).summary.privacy
        of = privacy["top_k"].certified["third_party"]
        held = {"rounds": 10, "claimed": None}
        private = held | {"certified": {"third_party": plain(of) | {"epsilon": target}}}
        infinite = plain(privacy["fed_avg"].certified["third_party"]) | {"epsilon": "inf"}
        without = held | {"certified": {"third_party": infinite}}
        edit(path, privacy={"fed_avg": without, "top_k": private})
    (folder / "sweep.json").write_text(json.dumps({"points": points}))
    return {}


def _with_statistics(folder: Path) -> dict[str, History]:
    """Statistics that were released before training, at a quarter of the epsilon."""
    histories = record(folder, rounds=(5, 10), algorithms=TWO, target_epsilon=8.0)
    privacy = json.loads((folder / "summary.json").read_text())["privacy"]
    for of in privacy.values():
        of["statistics"] = {
            view: c | {"epsilon": c["epsilon"] / 4} for view, c in of["certified"].items()
        }
    edit(folder / "summary.json", privacy=privacy)
    return histories


def _personal(folder: Path) -> dict[str, History]:
    """Of models of clients' own."""
    shutil.copytree(made("clients").path, folder)
    for name in ("metrics.jsonl", "clients.jsonl", "summary.json"):
        path = folder / name
        path.write_text(path.read_text().replace("held_out", "personal"))
    return made("clients").histories


def _named(folder: Path) -> dict[str, History]:
    """Whose clients have names."""
    shutil.copytree(made("clients").path, folder)
    names = [f"ward {i}" for i in range(30)]
    edit(folder / "config.json", num_clients=len(names), client_names=names)
    return made("clients").histories


def _audited(folder: Path) -> dict[str, History]:
    histories = record(folder, algorithms=("fed_avg", "dp_fed_avg"))
    audit(folder, folder)
    return histories


def audit(folder: Path, run: Path, config: str = "quickstart", **other: Any) -> Path:
    """What `experiments.audit` leaves, of the run's own certificate towards a third party."""
    certificate = read(run).summary.privacy["dp_fed_avg"].certified["third_party"]
    row = {"algorithm": "dp_fed_avg", "views": ["third_party"], "canary": "worst_case"}
    row |= {"runs": 4000, "certified": plain(certificate) | other}
    row |= {"audited": {"errors": {"certified": None, "seen": SEEN}}}
    rows = [row, row | {"views": ["last_model"]}, row | {"audited": {}}]
    found = {"config": config, "many_runs": [*rows, row | {"canary": "natural"}]}
    folder.mkdir(exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(found))
    return folder


CLIENTS = {"rounds": (5, 10), "algorithms": TWO, "of_clients": 12}
RECORDS = {"name": "dp_scaffold_synthetic", "rounds": (20, 40)}
KINDS: dict[str, Callable[[Path], Any]] = {
    "private": record,
    "plain": lambda folder: record(folder, algorithms=("fed_avg",)),
    "one seed": lambda folder: record(folder, seeds=1, algorithms=("fed_avg", "top_k")),
    "claimed of records": lambda folder: record(folder, **RECORDS),
    "other settings": lambda folder: record(
        folder, seed=1, beta=5.0, status="interrupted", **RECORDS
    ),
    "going on": lambda folder: record(folder, status=None),
    "interrupted": lambda folder: record(folder, status="interrupted", every=5),
    "stopped": _stopped,
    "clients": lambda folder: record(folder, **CLIENTS),
    "personal": _personal,
    "named clients": _named,
    "groups": lambda folder: record(folder, of_groups=GROUPS, **CLIENTS),
    "statistics": _with_statistics,
    "sweep": _sweep,
    "audited": _audited,
    "old": lambda folder: shutil.copytree(OLD, folder) and {},
}


SPECIAL = {
    "plain": "not private",
    "claimed of records": "a claim that is not proved",
    "going on": "no summary",
    "clients": "values of clients",
    "groups": "values of groups",
    "statistics": "statistics",
    "sweep": "several runs",
    "old": "an older version",
}
"""What is special of a kind in what readers say of epsilons and private numbers; of others nothing."""


@cache
def made(kind: str) -> Recorded:
    """The folder of that kind."""
    folder = _kept() / kind.replace(" ", "_")
    return Recorded(folder, KINDS[kind](folder))


@cache
def _kept() -> Path:
    kept = TemporaryDirectory(prefix="recorded")
    atexit.register(kept.cleanup)
    return Path(kept.name)
