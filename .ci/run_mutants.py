"""Do the tests notice faults? A test that fails with each mutant that `draw_mutants.py` drew.

    python .ci/run_mutants.py cover                # which of all tests run which lines, to build/cover
    python .ci/run_mutants.py cover --default      # those of the default tests, which `cover` has first
    python .ci/run_mutants.py lines lines.json     # what share of each file's lines they run
    python .ci/run_mutants.py run --to before.json # at most an hour
    python .ci/run_mutants.py run --to after.json  # the same mutants later, after another `cover`
    python .ci/run_mutants.py run --to default.json --default                # by the default tests alone
    python .ci/run_mutants.py run --to all.json --of after.json --thorough   # survivors, by all their tests
    python .ci/run_mutants.py compare before.json after.json

`cover` and `run` go on where they stopped. Each mutant gets a fresh process that runs tests of its
line, in a copy of the checkout. Tests that fail or do not end run again without it: if they fail
then, too, the outcome is "broken".
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData
from draw_mutants import PACKAGES, ROOT, Key, Site, all_sites, load, located, mutated, save, sources

MUTANTS, COVER = ROOT / ".ci" / "mutants.json", ROOT / "build" / "cover"
READS_SOURCE = re.compile(r'getsource|ast\.parse|glob\("\S*\.(py|md)"\)')  # these tests say nothing
TESTS, SECONDS = 12, 25.0  # of a mutant's tests, at most
FILES = 6  # of tests that `cover` runs in a process
TIERS = {"default": "not slow", "slow": "slow"}
FEW = 10  # tests of a line: with fewer, others of its function and module come after them
NAMES = (*Key._fields, "replaces")  # of a mutant
CAUGHT = {"killed", "time-out"}


def file_of(test: str) -> str:
    return test.partition("::")[0]


def node_id(case: ET.Element) -> str:
    """Of a test in pytest's report, which writes modules and classes with dots."""
    file = case.attrib["file"]
    inside = case.attrib["classname"].removeprefix(file.removesuffix(".py").replace("/", "."))
    return f"{file}{inside.replace('.', '::')}::{case.attrib['name']}"


class Chosen:
    """A plugin of pytest: these tests alone, in this order; writes which began last, and failed."""

    def __init__(self, scratch: Path) -> None:
        self.to = scratch / "found.json"
        tests, seconds = json.loads((scratch / "chosen.json").read_text())
        self.place = {test: i for i, test in enumerate(tests)}
        self.until = time.monotonic() + seconds
        self.found = {"ran": 0, "test": "", "failed": False}

    def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
        assert Path(sys.modules["fedpriv"].__file__).is_relative_to(ROOT)
        self.session = session
        chosen = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(chosen, key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.found["test"] = nodeid
        self.to.write_text(json.dumps(self.found))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.found |= {"test": report.nodeid, "failed": True}
            self.to.write_text(json.dumps(self.found))

    pytest_collectreport = pytest_runtest_logreport

    def pytest_runtest_logfinish(self) -> None:
        self.found["ran"] += 1
        self.to.write_text(json.dumps(self.found))
        if time.monotonic() > self.until:
            self.session.shouldstop = "enough"


def pytest_configure(config: Any) -> None:
    """In the processes that `Checkout` starts, of which this file is a plugin."""
    scratch = Path(os.environ["MUTANTS"])
    if (scratch / "chosen.json").exists():
        config.pluginmanager.register(Chosen(scratch))


@pytest.fixture(scope="module", autouse=True)
def traced_again() -> None:
    """What JAX has traced for other modules is traced again for this one, and seen."""
    sys.modules["jax"].clear_caches()


class Checkout:
    """A copy of what git does not ignore of this one, and a folder for what a process writes."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.scratch = folder / "tree", folder / "scratch"
        command = ["git", "-C", str(ROOT), "ls-files", "-coz", "--exclude-standard"]
        for name in filter(None, subprocess.check_output(command, text=True).split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)

    def pytest(self, *args: str, chosen: Any = None, limit: float | None = None) -> int:
        """Status of these files' tests; of those that are chosen, if any: (them, seconds)."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        if chosen:
            (self.scratch / "chosen.json").write_text(json.dumps(chosen))
        env = {
            "PYTHONPATH": f"{self.tree}{os.pathsep}{self.tree / '.ci'}",
            "MUTANTS": str(self.scratch),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.scratch / "hypothesis"),
        }
        command = [sys.executable, "-m", "pytest", "-p", "run_mutants"]
        command += ["--override-ini=addopts=", "-q", "-n0", "--hypothesis-seed=0"]
        command += [f"--basetemp={self.scratch / 'tmp'}", *args]
        options = {"cwd": self.tree, "env": os.environ | env, "stderr": subprocess.STDOUT}
        with (self.scratch / "output").open("w") as output:
            return subprocess.run(command, stdout=output, timeout=limit, **options).returncode

    def attempt(self, tests: list[str], limit: float, seconds: float) -> dict[str, Any]:
        """Outcome of these tests in a fresh process, until one fails or the time is over."""
        files, status = dict.fromkeys(map(file_of, tests)), None
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.pytest("-x", "--tb=no", *files, chosen=(tests, seconds), limit=limit)
        written = self.scratch / "found.json"
        found = json.loads(written.read_text()) if written.exists() else {"ran": 0, "test": ""}
        outcome = "survived" if found["ran"] else "no test"
        if status is None:
            outcome = "time-out"
        elif found.get("failed") or status not in (0, 2, 5):  # 2: stopped; 5: no tests
            outcome = "killed"
        by = {"killed_by": found["test"] or "an import"} if outcome in CAUGHT else {}
        spent = round(time.monotonic() - began)
        return {"outcome": outcome, "ran": found["ran"], "seconds": spent} | by

    def try_out(self, site: Site, tests: list[str], limit: float, seconds: float) -> dict[str, Any]:
        file, kept = self.tree / site.key.path, self.tree.parent / "kept.py"
        shutil.copy2(file, kept)
        file.write_text(mutated(file.read_text(), site))
        try:
            result = self.attempt(tests, limit, seconds)
        finally:
            shutil.copy2(kept, file)  # with its date, by which compiled files are known
        if result["outcome"] in CAUGHT:
            known = [test for test in tests if test == result["killed_by"]]
            limit = limit / 3 if result["outcome"] == "time-out" else limit
            if self.attempt(known or tests[:1], limit, seconds)["outcome"] != "survived":
                result["outcome"] = "broken"
        return result


def cover(jobs: int, default: bool) -> None:
    """Runs tests, files by files, and writes which of those that pass run which lines."""
    COVER.mkdir(parents=True, exist_ok=True)
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [path.relative_to(ROOT).as_posix() for path in found]
    groups = [files[i : i + FILES] for i in range(0, len(files), FILES)]
    tiers = [tier for tier in TIERS if tier == "default" or not default]
    checkouts: queue.Queue[Checkout] = queue.Queue()

    def run(tier: str, group: list[str]) -> None:
        to = COVER / f"{tier}.{group[0].replace('/', '.').removesuffix('.py')}.json"
        if to.exists():
            return
        checkout = checkouts.get()
        found = covered(checkout, tier, group)
        to.write_text(json.dumps(found))
        checkouts.put(checkout)
        lost = f"; fail: {', '.join(found['failed'])}" if found["failed"] else ""
        print(f"{to.stem}: {len(found['tests'])} tests, {found['seconds']:.0f} s{lost}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        for number in range(jobs):
            checkouts.put(Checkout(Path(folder) / str(number)))
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run, *zip(*itertools.product(tiers, groups), strict=True)))


def covered(checkout: Checkout, tier: str, files: list[str]) -> dict[str, Any]:
    """Of these files' tests: which pass, how long each took, and which run which lines."""
    began, report = time.monotonic(), checkout.tree / "report.xml"
    options = [f"--cov={package}" for package in PACKAGES]
    options += ["--cov-context=test", "--cov-report=", "--override-ini=junit_family=xunit1"]
    (checkout.tree / ".coverage").unlink(missing_ok=True)
    checkout.pytest("-m", TIERS[tier], f"--junitxml={report}", *options, *files)
    cases = {node_id(case): case for case in ET.parse(report).iter("testcase")}
    data = CoverageData(str(checkout.tree / ".coverage"))
    data.read()
    told = {file for file in files if not READS_SOURCE.search((ROOT / file).read_text())}
    passed = [test for test, case in cases.items() if not len(case)]
    tests = [test for test in passed if file_of(test) in told]
    number = {test: i for i, test in enumerate(tests)}
    lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
    reached: dict[str, list[int]] = {}
    for file in data.measured_files():
        path = Path(file).relative_to(checkout.tree).as_posix()
        by_line = data.contexts_by_lineno(file)
        reached[path] = sorted(by_line)
        for row, there in by_line.items():
            ran = {context.rpartition("|")[0] for context in there}  # set-up, call, tear-down
            if known := sorted(number[test] for test in ran & number.keys()):
                lines[path][row] = known
    return {
        "sources": digest(),
        "seconds": time.monotonic() - began,
        "tests": [(test, float(cases[test].get("time"))) for test in tests],
        "failed": [t for t, case in cases.items() if {"failure", "error"} & {x.tag for x in case}],
        "lines": lines,
        "reached": reached,
    }


def percents() -> dict[str, float]:
    """Of each file's statements, those that ran in the tests' own processes, by what `cover` wrote."""
    ran: dict[str, set[int]] = defaultdict(set)
    for written in COVER.glob("*.json"):
        for path, rows in json.loads(written.read_text())["reached"].items():
            ran[path] |= set(rows)
    known, found = Coverage(data_file=None), {}
    for path in sources():
        statements = set(known.analysis2(str(ROOT / path))[1])
        found[path] = round(100 * len(statements & ran[path]) / max(len(statements), 1), 1)
    return found


def digest() -> str:
    return hashlib.sha256(json.dumps(sources()).encode()).hexdigest()[:16]


class Tests:
    """Those of a mutant, by what `cover` wrote; of the default tier alone, if asked for."""

    def __init__(self, default: bool) -> None:
        self.tests: list[tuple[str, float]] = []
        self.lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for file in sorted(COVER.glob("default.*.json" if default else "*.json")):
            self._add(json.loads(file.read_text()))

    def _add(self, written: dict[str, Any]) -> None:
        if written["sources"] != digest():
            raise SystemExit(
                "this is not the code that `cover` ran: remove build/cover, run it again"
            )
        before = len(self.tests)
        self.tests += written["tests"]
        for path, rows in written["lines"].items():
            for row, numbers in rows.items():
                self.lines[path][row] += [before + n for n in numbers]

    def _of(self, path: str, rows: Iterable[Any], killer: str) -> dict[str, float]:
        """`killer`, then the cheapest of each file, cheapest first, then the second of each."""
        numbers = {n for row in rows for n in self.lines.get(path, {}).get(str(row), [])}
        ranked, rank = [], Counter()
        for cost, test in sorted((self.tests[n][1], self.tests[n][0]) for n in numbers):
            file = file_of(test)
            ranked.append((test != killer, rank[file], file != file_of(killer), cost, test))
            rank[file] += 1
        return {test: cost for *_, cost, test in sorted(ranked)}

    def all_of(self, site: Site, killer: str) -> dict[str, float]:
        """Of its line, then of its function and module, with their seconds."""
        path = site.key.path
        found = self._of(path, site.rows, killer)
        for rows in (site.within, self.lines.get(path, {})):
            if len(found) < FEW:
                found |= {**self._of(path, rows, killer), **found}
        return found

    def choose(self, site: Site, killer: str) -> list[str]:
        """A few of them, of few files, as importing takes time."""
        chosen, seconds = [], SECONDS
        for test, cost in self.all_of(site, killer).items():
            seconds -= cost
            if chosen and (seconds < 0 or len(chosen) == TESTS):
                break
            if len({file_of(t) for t in [*chosen, test]}) <= 2 * TESTS // 3:
                chosen.append(test)
        return chosen


def tried(args: argparse.Namespace, checkout: Checkout, tests: Tests, site: Site, killer: str):
    """Outcome of a mutant."""
    if args.thorough:
        return checkout.try_out(site, [*tests.all_of(site, killer)], 900, 900)
    chosen = tests.choose(site, killer)
    return checkout.try_out(site, chosen, args.limit, SECONDS) if chosen else None


def run(args: argparse.Namespace) -> None:
    """Tries those that have no outcome yet, in the order in which they were drawn."""
    until = time.monotonic() + 60 * args.minutes
    given, known = load(args.of), load(args.to) if args.to.exists() else {}
    if args.thorough:
        given = {key: one for key, one in given.items() if one.get("outcome") == "survived"}
    named = {key: {n: given[key][n] for n in NAMES if n in given[key]} for key in given}
    results = {key: known.get(key, named[key] | {"outcome": "not run"}) for key in given}
    todo = [key for key in given if results[key]["outcome"] == "not run"]
    tests, saving = Tests(args.default), threading.Lock()
    sites, checkouts = all_sites(sources()), queue.Queue()

    def outcome_of(key: Key) -> dict[str, Any]:
        site = located(key, sites)
        if site is None:
            return {"outcome": "gone"}
        checkout = checkouts.get()
        late = time.monotonic() + args.limit > until
        result = {"outcome": "not run"}
        if not late:
            found = tried(args, checkout, tests, site, given[key].get("killed_by", ""))
            result = found or {"outcome": "no test"}
        checkouts.put(checkout)
        return result

    def note(key: Key) -> None:
        result = outcome_of(key)
        with saving:
            results[key] = named[key] | result
            save(args.to, results.values())
            print(*result.values(), "|", *key, flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        for number in range(args.jobs):
            checkouts.put(Checkout(Path(folder) / str(number)))
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(note, todo))
    print(Counter(result["outcome"] for result in results.values()))


def compare(before: Path, after: Path) -> int:
    """Prints what was caught and, its line being there, is not any more: 1 if there is any."""
    then, now = load(before), load(after)
    replaced = {Key(*m["replaces"]): m["outcome"] for m in now.values() if "replaces" in m}
    outcomes = {key: now.get(key, {}).get("outcome", "not run") for key in then}
    outcomes |= dict.fromkeys(replaced, "gone")
    caught = [key for key in then if then[key].get("outcome") in CAUGHT]
    lost = [key for key in caught if outcomes[key] not in CAUGHT | {"gone"}]
    for key in lost:
        print(f"{outcomes[key]}: {key.path}, {key.scope}: {key.line}")
        print(f"    {key.old!r} -> {key.new!r} failed {then[key]['killed_by']}")
    print(f"{len(caught)} were caught; of these now:", Counter(outcomes[key] for key in caught))
    print(f"{len(replaced)} in the place of gone ones:", Counter(replaced.values()))
    return int(bool(lost))


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    covering, running = commands.add_parser("cover"), commands.add_parser("run")
    for command in (covering, running):
        command.add_argument("--jobs", type=int, default=2, help="processes at a time")
        command.add_argument("--default", action="store_true", help="no slow tests")
    running.add_argument("--of", type=Path, default=MUTANTS, help="what was drawn, or became of it")
    running.add_argument("--to", type=Path, required=True, help="where results go")
    running.add_argument(
        "--thorough", action="store_true", help="survivors, by all tests of a line"
    )
    running.add_argument("--minutes", type=float, default=60, help="in all")
    running.add_argument("--limit", type=float, default=60, help="seconds until tests are stopped")
    commands.add_parser("lines").add_argument("to", type=Path, help="% of lines, by file")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        return compare(args.before, args.after)
    if args.command == "lines":
        args.to.write_text(json.dumps(percents(), indent=0) + "\n")
        return 0
    return run(args) if args.command == "run" else cover(args.jobs, args.default)


if __name__ == "__main__":
    sys.exit(main())
