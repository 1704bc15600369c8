"""Records the golden grid again, and lists what moved: `PYTHONPATH=.:tests python -m golden.record`.

The file holds what fedpriv's certificates were when it was last recorded. A moved row needs a reason.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from golden import budgets, clients, declared, records, runs, unlike
from golden.rows import Recorded, Row, recorded

FILE = Path(__file__).with_name("grid.json")
PACKAGES = ("jax", "numpy", "scipy", "dp-accounting")
KINDS = {
    "clients": clients,
    "records": records,
    "unlike units": unlike,
    "declared": declared,
    "runs": runs,
    "budgets": budgets,
}
ROUNDING = {"profile": 1e-8}
"""Field -> how far rounding may move its numbers, relative; 1e-10 in all others.

Measured without AVX2 and FMA, on 159 rows: epsilons moved by less than 1e-13, a profile's deltas by 4e-9, or 1e-20.
"""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")


class Moved(NamedTuple):
    """A field of a row that is not what was recorded; None: there is none."""

    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name}\n    {self.field}: {self.before!r} -> {self.after!r}"


def rows() -> dict[str, Row]:
    """The whole grid, by name."""
    every = {}
    for kind, module in KINDS.items():
        for row in module.rows():
            name = f"{kind}: {row.name}"
            assert name not in every, name
            every[name] = row._replace(name=name)
    return every


def moved(
    name: str, before: Recorded | None, after: Recorded | None, *, rounded: bool = False
) -> Iterator[Moved]:
    """The fields that differ; `rounded`: by more than processors and versions of libraries round differently."""
    if before is None or after is None:
        yield Moved(name, "row", before and "there", after and "there")
        return
    for field in dict.fromkeys([*before, *after]):
        old, new = before.get(field), after.get(field)
        if field == "assumptions" and old is not None and new is not None:
            gone, come = ([t for t in a if t not in b] for a, b in ((old, new), (new, old)))
            if gone or come:
                yield Moved(name, field, gone, come)
        elif not alike(old, new, ROUNDING.get(field, 1e-10) if rounded else 0.0):
            yield Moved(name, field, old, new)


def alike(old: Any, new: Any, within: float) -> bool:
    """Whether two values of JSON are equal, but for so much of a number, relative; those in texts are numbers, too."""
    if isinstance(old, str) and isinstance(new, str):
        if old == new:
            return True
        if not within or _NUMBER.sub("0", old) != _NUMBER.sub("0", new):
            return False
        pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
        return all(alike(float(a), float(b), within) for a, b in pairs)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            alike(a, b, within) for a, b in zip(old, new, strict=True)
        )
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(alike(old[k], new[k], within) for k in old)
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= within * (max(abs(old), abs(new)) + 1e-11)
    return bool(old == new)


def load() -> dict[str, Recorded]:
    """Row -> what was recorded, each assumption in words."""
    whole = json.loads(FILE.read_text())
    words = whole["assumptions"]
    for row in whole["rows"].values():
        if "assumptions" in row:
            row["assumptions"] = sorted(words[key] for key in row["assumptions"])
    return whole["rows"]


def save(found: Mapping[str, Recorded], revision: str) -> None:
    """One field a line; a sentence stands once, so that to reword it changes one line."""
    keys = _keys(found)
    head = {"revision": revision, "python": platform.python_version()}
    head |= {package: version(package) for package in PACKAGES} | {"processor": _processor()}
    lines = ["{", f'"recorded": {json.dumps(head)},', '"assumptions": {']
    lines += [
        _joined(
            f"{json.dumps(k)}: {json.dumps(t)}" for t, k in sorted(keys.items(), key=lambda p: p[1])
        )
    ]
    lines += ["},", '"rows": {']
    every = []
    for name, row in sorted(found.items()):
        short = dict(row)
        if "assumptions" in row:
            short["assumptions"] = sorted(keys[text] for text in row["assumptions"])
        fields = _joined(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in short.items())
        every.append(f"{json.dumps(name)}: {{\n{fields}\n}}")
    FILE.write_text("\n".join([*lines, _joined(every), "}", "}", ""]))


def _joined(parts: Iterable[str]) -> str:
    return ",\n".join(parts)


def _keys(found: Mapping[str, Recorded]) -> dict[str, str]:
    """Sentence -> its key; a new one in just the rows where an old one stood is that one, reworded."""
    before = _where(load()) if FILE.exists() else {}
    after = _where(found)
    old = _stored() if FILE.exists() else {}
    kept = {text: key for key, text in old.items() if text in after}
    gone = {before[text]: key for key, text in old.items() if text in before and text not in after}
    number = max((int(key[1:]) for key in old), default=0)
    for text in sorted(after.keys() - kept.keys()):
        key = gone.pop(after[text], None)
        if key is None:
            number += 1
            key = f"a{number:03}"
        kept[text] = key
    return kept


def _stored() -> dict[str, str]:
    return json.loads(FILE.read_text())["assumptions"]


def _where(found: Mapping[str, Recorded]) -> dict[str, frozenset[str]]:
    """Sentence -> the rows that it stands in."""
    rows: dict[str, set[str]] = {}
    for name, row in found.items():
        for text in row.get("assumptions", ()):
            rows.setdefault(text, set()).add(name)
    return {text: frozenset(names) for text, names in rows.items()}


def _processor() -> str:
    """As `lscpu` names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _revision() -> str:
    """Of the code that is recorded."""
    import subprocess

    told = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True, text=True, check=False, cwd=FILE.parent,
    )  # fmt: skip
    return told.stdout.strip() or "unknown"


def main() -> None:
    """Records, or compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="list what moved, record nothing")
    parser.add_argument("--only", default="", help="rows whose name has this")
    options = parser.parse_args()
    before = load() if FILE.exists() else {}
    after, begun = {}, time.process_time()
    for name, row in rows().items():
        if options.only in name:
            after[name] = recorded(row)
    names = sorted(name for name in {*before, *after} if options.only in name)
    found = chain.from_iterable(moved(name, before.get(name), after.get(name)) for name in names)
    for each in found:
        print(each)
    print(f"{len(after)} rows in {time.process_time() - begun:.0f} processor seconds")
    if not options.dry:
        save({name: row for name, row in before.items() if name not in names} | after, _revision())


if __name__ == "__main__":
    main()
