"""Do the tests notice faults? A test that fails with each mutant that `draw_mutants.py` drew.

    python .ci/run_mutants.py cover                # which tests run which lines: build/mutants.json
    python .ci/run_mutants.py run --to before.json # at most an hour; goes on where it stopped
    python .ci/run_mutants.py run --to after.json  # the same mutants later, after another `cover`
    python .ci/run_mutants.py compare before.json after.json

Each mutant gets a fresh process that runs tests of its line, in a copy of the checkout. Tests that
fail or do not end run again without it: if they fail then, too, the outcome is "broken".
"""

import argparse
import contextlib
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
from coverage import CoverageData
from draw_mutants import FOLDERS, ROOT, Key, Site, all_sites, load, located, mutated, save, sources

MUTANTS, COVER = ROOT / ".ci" / "mutants.json", ROOT / "build" / "mutants.json"
READS_SOURCE = re.compile(r'getsource|ast\.parse|glob\("\S*\.(py|md)"\)')  # these tests say nothing
TESTS, SECONDS = 12, 25.0  # of a mutant's tests, at most
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
        tests = json.loads((scratch / "chosen.json").read_text())
        self.place = {test: i for i, test in enumerate(tests)}
        self.until = time.monotonic() + SECONDS
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
        command += ["--override-ini=addopts=", "-q", "-m", "not slow", "--hypothesis-seed=0"]
        command += [f"--basetemp={self.scratch / 'tmp'}", *args]
        options = {"cwd": self.tree, "env": os.environ | env, "stderr": subprocess.STDOUT}
        with (self.scratch / "output").open("w") as output:
            return subprocess.run(command, stdout=output, timeout=limit, **options).returncode

    def attempt(self, tests: list[str], limit: float) -> dict[str, Any]:
        """Outcome of these tests in a fresh process, until one fails or the time is over."""
        files, status = dict.fromkeys(map(file_of, tests)), None
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.pytest("-n0", "-x", "--tb=no", *files, chosen=tests, limit=limit)
        written = self.scratch / "found.json"
        found = json.loads(written.read_text()) if written.exists() else {"ran": 0, "test": ""}
        outcome = "survived" if found["ran"] else "no test"
        if status is None:
            outcome = "time-out"
        elif found.get("failed") or status not in (0, 2, 5):  # 2: stopped; 5: no tests
            outcome = "killed"
        by = {"killed_by": found["test"] or "an import"} if outcome in CAUGHT else {}
        seconds = round(time.monotonic() - began)
        return {"outcome": outcome, "ran": found["ran"], "seconds": seconds} | by

    def try_out(self, site: Site, tests: list[str], limit: float) -> dict[str, Any]:
        file, kept = self.tree / site.key.path, self.tree.parent / "kept.py"
        shutil.copy2(file, kept)
        file.write_text(mutated(file.read_text(), site))
        try:
            result = self.attempt(tests, limit)
        finally:
            shutil.copy2(kept, file)  # with its date, by which compiled files are known
        if result["outcome"] in CAUGHT:
            known = [test for test in tests if test == result["killed_by"]]
            limit = limit / 3 if result["outcome"] == "time-out" else limit
            if self.attempt(known or tests[:1], limit)["outcome"] != "survived":
                result["outcome"] = "broken"
        return result


def cover(jobs: int) -> None:
    """Runs the default tests, and writes which of those that pass run which lines."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        checkout = Checkout(Path(folder))
        covered = [f"--cov=fedpriv/{name}" for name in FOLDERS]
        covered += ["--cov-context=test", "--cov-report=", "--override-ini=junit_family=xunit1"]
        report = checkout.tree / "report.xml"
        checkout.pytest(f"-n{jobs}", "--dist=loadfile", f"--junitxml={report}", *covered)
        print((checkout.scratch / "output").read_text()[-5000:])
        cases = {node_id(case): case for case in ET.parse(report).iter("testcase")}
        data = CoverageData(str(checkout.tree / ".coverage"))
        data.read()
        files = {x for x in map(file_of, cases) if not READS_SOURCE.search((ROOT / x).read_text())}
        tests = [test for test, case in cases.items() if file_of(test) in files and not len(case)]
        number = {test: i for i, test in enumerate(tests)}
        lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
        for file in data.measured_files():
            for row, there in data.contexts_by_lineno(file).items():
                ran = {context.rpartition("|")[0] for context in there}  # set-up, call, tear-down
                known = sorted(number[test] for test in ran & number.keys())
                lines[Path(file).relative_to(checkout.tree).as_posix()][row] = known
    COVER.parent.mkdir(exist_ok=True)
    tests = [(test, float(cases[test].get("time"))) for test in tests]
    COVER.write_text(json.dumps({"sources": sources(), "tests": tests, "lines": lines}))
    print(f"{len(tests)} tests; {len(cases) - len(tests)} that fail or are left out")


class Tests:
    """Those of a mutant, by what `cover` wrote."""

    def __init__(self) -> None:
        written = json.loads(COVER.read_text())
        self.tests, self.lines = written["tests"], written["lines"]
        if written["sources"] != sources():
            raise SystemExit("this is not the code that `cover` ran: run it again")

    def _of(self, path: str, rows: Iterable[Any], killer: str) -> dict[str, float]:
        """`killer`, then the cheapest of each file, cheapest first, then the second of each."""
        numbers = {n for row in rows for n in self.lines.get(path, {}).get(str(row), [])}
        ranked, rank = [], Counter()
        for cost, test in sorted((self.tests[n][1], self.tests[n][0]) for n in numbers):
            file = file_of(test)
            ranked.append((test != killer, rank[file], file != file_of(killer), cost, test))
            rank[file] += 1
        return {test: cost for *_, cost, test in sorted(ranked)}

    def choose(self, site: Site, killer: str) -> list[str]:
        """Of its line, then of its function and module; of few files, as importing takes time."""
        path = site.key.path
        found = self._of(path, site.rows, killer)
        for rows in (site.within, self.lines.get(path, {})):
            if len(found) < FEW:
                found |= {**self._of(path, rows, killer), **found}
        chosen, seconds = [], SECONDS
        for test, cost in found.items():
            seconds -= cost
            if chosen and (seconds < 0 or len(chosen) == TESTS):
                break
            if len({file_of(t) for t in [*chosen, test]}) <= 2 * TESTS // 3:
                chosen.append(test)
        return chosen


def run(args: argparse.Namespace) -> None:
    """Tries those that have no outcome yet, in the order in which they were drawn."""
    until = time.monotonic() + 60 * args.minutes
    given, known = load(args.mutants), load(args.to) if args.to.exists() else {}
    named = {key: {n: given[key][n] for n in NAMES if n in given[key]} for key in given}
    results = {key: known.get(key, named[key] | {"outcome": "not run"}) for key in given}
    todo = [key for key in given if results[key]["outcome"] == "not run"]
    tests, saving = Tests(), threading.Lock()
    sites, checkouts = all_sites(sources()), queue.Queue()

    def outcome_of(key: Key) -> dict[str, Any]:
        site = located(key, sites)
        if site is None:
            return {"outcome": "gone"}
        chosen = tests.choose(site, given[key].get("killed_by", ""))
        if not chosen:
            return {"outcome": "no test"}
        checkout = checkouts.get()
        late = time.monotonic() + args.limit > until
        result = {"outcome": "not run"} if late else checkout.try_out(site, chosen, args.limit)
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
    running.add_argument("--mutants", type=Path, default=MUTANTS, help="what was drawn")
    running.add_argument("--to", type=Path, required=True, help="where results go")
    running.add_argument("--minutes", type=float, default=60, help="in all")
    running.add_argument("--limit", type=float, default=60, help="seconds until tests are stopped")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        return compare(args.before, args.after)
    return run(args) if args.command == "run" else cover(args.jobs)


if __name__ == "__main__":
    sys.exit(main())
