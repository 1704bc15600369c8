"""Do the tests notice faults? Small changes of the code (mutants), and a test that fails with each.

    pip install coverage
    python .ci/mutants.py draw                     # the mutants: .ci/mutants.json
    python .ci/mutants.py cover                    # which tests run which lines: build/mutants.json
    python .ci/mutants.py run                      # at most an hour; goes on where it stopped
    python .ci/mutants.py cover                    # later, when the tests have changed
    python .ci/mutants.py run --to after.json      # the same mutants again
    python .ci/mutants.py compare .ci/mutants.json after.json

A mutant is found again by the text of its line, wherever that has moved, and is gone with it. Each
gets a fresh process that runs tests of its line, in a copy of the checkout. A test that fails or
does not end is run again without the mutant: if it fails then, too, the outcome is "broken".
"""

import argparse
import ast
import bisect
import itertools
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("certification", "privacy", "mechanisms", "rounds", "testing")
MUTANTS, COVER = ROOT / ".ci" / "mutants.json", ROOT / "build" / "mutants.json"
READS_SOURCE = re.compile(r'getsource|ast\.parse|glob\("\S*\.(py|md)"\)')  # these tests say nothing
COUNT, SEED, PER_SCOPE = 150, 0, 3  # PER_SCOPE: mutants of one function, at most
FEW = 10  # tests of a line: with fewer, others of its function and module come after them
CAUGHT, TRIED = {"killed", "time-out"}, {"killed", "time-out", "survived", "broken", "no test"}

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not"}
COMPARISONS |= {"is not": "is", "in": "not in", "not in": "in"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "**": "*"}
OPERATORS = {old: ("comparison", new) for old, new in COMPARISONS.items()}
OPERATORS |= {old: ("arithmetic", new) for old, new in ARITHMETIC.items()}
OPERATORS |= {f"{old}=": ("arithmetic", f"{new}=") for old, new in ARITHMETIC.items()}
OPERATORS |= {"and": ("boolean", "or"), "or": ("boolean", "and")}
FUNCTIONS = {"min": "max", "any": "all", "minimum": "maximum"}
FUNCTIONS |= {new: old for old, new in FUNCTIONS.items()}


class Key(NamedTuple):
    """Names a mutant, wherever its line moves."""

    path: str
    scope: str  # qualified name of the innermost function or class
    line: str
    nth: int  # of the lines of that text in the scope
    kind: str
    site: int  # of the sites of that kind in the line
    old: str
    new: str


class Site(NamedTuple):
    """Where it is now."""

    key: Key
    span: slice  # of the file's text
    rows: set[int]  # its own and its statement's
    within: range  # the scope's


class Text:
    """A file's text, and what can change at a node of its syntax tree."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, text.splitlines(keepends=True)
        self.begin = [0, *itertools.accumulate(map(len, self.lines))]

    def _place(self, row: int, column: int) -> int:
        """Columns of nodes count bytes."""
        return self.begin[row - 1] + len(self.lines[row - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        last = self._place(node.end_lineno, node.end_col_offset)
        return self._place(node.lineno, node.col_offset), last

    def changes(self, node: Any) -> Iterator[tuple[int, int, str, str]]:
        """Start, end, kind and replacement of all mutants of this node itself."""
        match node:
            case ast.Compare():
                yield from self._operators([node.left, *node.comparators])
            case ast.BinOp():
                yield from self._operators([node.left, node.right])
            case ast.AugAssign():
                yield from self._operators([node.target, node.value])
            case ast.BoolOp():
                yield from self._operators(node.values)
            case ast.UnaryOp(op=ast.USub()):
                start = self.span(node)[0]
                yield start, start + len("-"), "arithmetic", "+"
            case ast.UnaryOp(op=ast.Not()):
                start = self.span(node)[0]
                yield start, start + len("not "), "not", ""
            case ast.Constant(value=bool(value)):
                yield *self.span(node), "flag", str(not value)
            case ast.Constant(value=int(value)):
                yield *self.span(node), "number", str(value + 1)
            case ast.Constant(value=float(value)):
                yield *self.span(node), "number", repr(2 * value or 1.0)
            case ast.Raise() | ast.Expr(value=ast.Call()):
                yield *self.span(node), "statement", "pass"
            case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
                start, end = self.span(test)
                if not isinstance(test, ast.Compare | ast.UnaryOp):  # those change by themselves
                    yield start, end, "condition", f"not ({self.text[start:end]})"
            case ast.Call():
                yield from self._call(node)

    def _operators(self, operands: list[ast.expr]) -> Iterator[tuple[int, int, str, str]]:
        for left, right in itertools.pairwise(operands):
            first, last = self.span(left)[1], self.span(right)[0]
            written = self.text[first:last].strip(" \n()")
            if written in OPERATORS:  # not with a comment beside it
                start = self.text.index(written, first)
                yield start, start + len(written), *OPERATORS[written]

    def _call(self, node: ast.Call) -> Iterator[tuple[int, int, str, str]]:
        name, end = ast.unparse(node.func).rpartition(".")[2], self.span(node.func)[1]
        if name in FUNCTIONS:
            yield end - len(name), end, "function", FUNCTIONS[name]
        for keyword in node.keywords:
            if keyword.arg not in (None, "strict"):  # zip's tells wrong calls only
                start, end = self.span(keyword)
                comma = re.compile(r"\s*,").match(self.text, end)
                yield start, comma.end() if comma else end, "keyword", ""


def walk(node: Any, owners: tuple = (), statement: Any = None) -> Iterator[tuple[Any, tuple, Any]]:
    """Nodes that may change, their definitions and statement: no types, nothing that errors say."""
    unseen = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    if unseen or isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        owners = (*owners, node)
    yield node, owners, statement
    for name, children in ast.iter_fields(node):
        for child in children if isinstance(children, list) else [children]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns", "exc"):
                yield from walk(child, owners, statement)


def sites_of(path: str, text: str) -> list[Site]:
    """All mutants of a file."""
    source, found, sites, seen = Text(text), [], [], Counter()
    for node, owners, statement in walk(ast.parse(text)):
        found += [(*change, owners, statement) for change in source.changes(node)]
    for start, end, kind, new, owners, statement in sorted(found, key=lambda x: x[:2]):
        row = bisect.bisect_right(source.begin, start)
        within = range(1, len(source.lines) + 1)
        if owners:
            parts = [owners[-1], *owners[-1].decorator_list]
            within = range(min(part.lineno for part in parts), owners[-1].end_lineno + 1)
        line = source.lines[row - 1].strip()
        nth = sum(source.lines[r - 1].strip() == line for r in within if r < row)
        scope = ".".join(owner.name for owner in owners)
        key = Key(path, scope, line, nth, kind, seen[row, kind], text[start:end], new)
        seen[row, kind] += 1
        sites.append(Site(key, slice(start, end), {row, statement.lineno}, within))
    return sites


def sources() -> dict[str, str]:
    """Path -> text."""
    paths = sorted(p for f in FOLDERS for p in (ROOT / "fedpriv" / f).rglob("*.py"))
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in paths}


def all_sites(texts: dict[str, str]) -> dict[Key, Site]:
    """Those whose name is theirs alone."""
    sites = [site for path, text in texts.items() for site in sites_of(path, text)]
    named = Counter(site.key for site in sites)
    return {site.key: site for site in sites if named[site.key] == 1}


def located(key: Key, sites: dict[Key, Site]) -> Site | None:
    """In its file, or in the only other one to which its function may have moved."""
    moved = [site for other, site in sites.items() if other[1:] == key[1:]]
    return sites.get(key) or (moved[0] if len(moved) == 1 else None)


def mutated(text: str, site: Site) -> str:
    return text[: site.span.start] + site.key.new + text[site.span.stop :]


def draw() -> None:
    """As many of a folder as it has of all sites; in a folder, kinds take turns."""
    if MUTANTS.exists():
        raise SystemExit(f"{MUTANTS} is there, with what became of its mutants")
    texts, rng = sources(), random.Random(SEED)
    sites = all_sites(texts)
    order = rng.sample(list(sites.values()), len(sites))
    drawn: list[Key] = []
    per_scope, passed = Counter(), 0
    for folder in FOLDERS:
        kinds = defaultdict(list)
        for site in order:
            if site.key.path.split("/")[1] == folder:
                kinds[site.key.kind].append(site)
        passed += sum(map(len, kinds.values()))
        for site in filter(None, itertools.chain(*itertools.zip_longest(*kinds.values()))):
            if len(drawn) == round(COUNT * passed / len(sites)):
                break
            if per_scope[site.key[:2]] < PER_SCOPE:
                text = texts[site.key.path]
                compile(mutated(text, site), site.key.path, "exec")
                assert text[site.span] == site.key.old != site.key.new
                per_scope[site.key[:2]] += 1
                drawn.append(site.key)
    rng.shuffle(drawn)
    save(MUTANTS, [key._asdict() for key in drawn])
    print(f"{len(drawn)} of {len(sites)}:", Counter(key.path.split("/")[1] for key in drawn))
    print(Counter(key.kind for key in drawn))


def save(to: Path, mutants: Iterable[dict[str, Any]]) -> None:
    unfinished = to.with_suffix(".unfinished")
    unfinished.write_text("[\n" + ",\n".join(map(json.dumps, mutants)) + "\n]\n")
    unfinished.replace(to)


def load(path: Path) -> dict[Key, dict[str, Any]]:
    mutants = json.loads(path.read_text())
    return {Key(*(mutant[name] for name in Key._fields)): mutant for mutant in mutants}


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Covering:
    """A plugin of pytest: which tests run which lines, and how long they take."""

    def __init__(self, to: Path) -> None:
        import coverage

        self.to, self.file, self.seconds, self.unfit = to, "", {}, set()
        source = [str(ROOT / "fedpriv" / folder) for folder in FOLDERS]
        self.coverage = coverage.Coverage(data_file=None, source=source, config_file=False)
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if file_of(nodeid) != self.file:  # what JAX has traced is traced again, and seen
            self.file = file_of(nodeid)
            sys.modules["jax"].clear_caches()
        self.coverage.switch_context(nodeid)
        self.seconds[nodeid] = -time.perf_counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:
            self.unfit.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] += time.perf_counter()
        self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        with warnings.catch_warnings(action="ignore"):
            self.coverage.stop()
            data = self.coverage.get_data()
        names = {file: Path(file).relative_to(ROOT).as_posix() for file in data.measured_files()}
        lines = {name: data.contexts_by_lineno(file) for file, name in names.items()}
        self.to.write_text(json.dumps([self.seconds, sorted(self.unfit), lines]))


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
    elif hasattr(config, "workerinput"):
        to = scratch / f"covered_{config.workerinput['workerid']}.json"
        config.pluginmanager.register(Covering(to))


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
        command = [sys.executable, "-m", "pytest", "-p", "mutants"]
        command += ["--override-ini=addopts=", "-q", "-m", "not slow", "--hypothesis-seed=0"]
        command += [f"--basetemp={self.scratch / 'tmp'}", *args]
        options = {"cwd": self.tree, "env": os.environ | env, "stderr": subprocess.STDOUT}
        with (self.scratch / "output").open("w") as output:
            return subprocess.run(command, stdout=output, timeout=limit, **options).returncode

    def attempt(self, tests: list[str], seconds: float, limit: float) -> dict[str, Any]:
        """Outcome of these tests in a fresh process, until one fails or the time is over."""
        files, status = dict.fromkeys(map(file_of, tests)), None
        began = time.monotonic()
        try:
            chosen = [tests, seconds]
            status = self.pytest("-n0", "-x", "--tb=no", *files, chosen=chosen, limit=limit)
        except subprocess.TimeoutExpired:
            pass
        written = self.scratch / "found.json"
        found = json.loads(written.read_text()) if written.exists() else {"ran": 0, "test": ""}
        outcome = "survived" if found["ran"] else "no test"
        if status is None:
            outcome = "time-out"
        elif found.get("failed") or status not in (0, 2, 5):  # 2: stopped; 5: no tests
            outcome = "killed"
        took = round(time.monotonic() - began)
        by = {"killed_by": found["test"] or "an import"} if outcome in CAUGHT else {}
        return {"outcome": outcome, "ran": found["ran"], "seconds": took} | by

    def try_out(self, site: Site, tests: list[str], seconds: float, limit: float) -> dict[str, Any]:
        file, kept = self.tree / site.key.path, self.tree.parent / "kept.py"
        shutil.copy2(file, kept)
        file.write_text(mutated(file.read_text(), site))
        try:
            result = self.attempt(tests, seconds, limit)
        finally:
            shutil.copy2(kept, file)  # with its date, by which compiled files are known
        if result["outcome"] in CAUGHT:
            known = [test for test in tests if test == result["killed_by"]]
            limit = limit / 3 if result["outcome"] == "time-out" else limit
            if self.attempt(known or tests[:1], seconds, limit)["outcome"] != "survived":
                result["outcome"] = "broken"
        return result


def cover() -> None:
    """Runs the default tests, and writes which of those that pass run which lines."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        checkout = Checkout(Path(folder))
        checkout.pytest("-n2", "--dist=loadfile", "--tb=short")
        print((checkout.scratch / "output").read_text()[-5000:])
        parts = [json.loads(p.read_text()) for p in checkout.scratch.glob("covered_*.json")]
    costs = {test: cost for part, _, _ in parts for test, cost in part.items()}
    unfit = {test for _, part, _ in parts for test in part}
    files = {file_of(test) for test in costs}
    files = {file for file in files if not READS_SOURCE.search((ROOT / file).read_text())}
    tests = [test for test in costs if file_of(test) in files and test not in unfit]
    number = {test: i for i, test in enumerate(tests)}
    lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for _, _, part in parts:
        for path, rows in part.items():
            for row, there in rows.items():
                lines[path][row] += [number[test] for test in there if test in number]
    COVER.parent.mkdir(exist_ok=True)
    priced = [(test, round(costs[test], 2)) for test in tests]
    COVER.write_text(json.dumps({"sources": sources(), "tests": priced, "lines": lines}))
    print(f"{len(tests)} tests; {len(unfit)} that fail or are left out")


class Tests:
    """Those of a mutant, by what `cover` wrote."""

    def __init__(self) -> None:
        written = json.loads(COVER.read_text())
        self.tests, self.lines = written["tests"], written["lines"]
        if written["sources"] != sources():
            raise SystemExit("this is not the code that `cover` ran: run it again")

    def _of(self, path: str, rows: Iterable[Any], killer: str) -> dict[str, float]:
        """`killer`, then the cheapest of each file, cheapest first, then the second of each."""
        there = self.lines.get(path, {})
        numbers = {number for row in rows for number in there.get(str(row), [])}
        ranked, rank = [], Counter()
        for cost, test in sorted((self.tests[n][1], self.tests[n][0]) for n in numbers):
            file = file_of(test)
            ranked.append((test != killer, rank[file], file != file_of(killer), cost, test))
            rank[file] += 1
        return {test: cost for *_, cost, test in sorted(ranked)}

    def choose(self, site: Site, killer: str, most: int, seconds: float) -> list[str]:
        """Of its line, then of its function and module; of few files, as importing takes time."""
        path = site.key.path
        found = self._of(path, site.rows, killer)
        for rows in (site.within, self.lines.get(path, {})):
            if len(found) < FEW:
                found |= {**self._of(path, rows, killer), **found}
        chosen: list[str] = []
        for test, cost in found.items():
            seconds -= cost
            if chosen and (seconds < 0 or len(chosen) == most):
                break
            if len({file_of(t) for t in [*chosen, test]}) <= max(1, 2 * most // 3):
                chosen.append(test)
        return chosen


def run(args: argparse.Namespace) -> None:
    """Tries those that have no outcome yet, in the order in which they were drawn."""
    until = time.monotonic() + 60 * args.minutes
    given, known = load(MUTANTS), load(args.to) if args.to.exists() else {}
    results = {key: {"outcome": "not run"} | known.get(key, key._asdict()) for key in given}
    again = {"not run", *(TRIED if args.again == [] else args.again or ())}
    todo = [key for key in given if results[key]["outcome"] in again]
    texts, tests, saving = sources(), Tests(), threading.Lock()
    sites, checkouts = all_sites(texts), queue.Queue()

    def try_out(key: Key, changed: bool) -> dict[str, Any]:
        site = located(key, sites)
        if site is None:
            return {"outcome": "gone"}
        chosen = tests.choose(site, given[key].get("killed_by", ""), args.tests, args.seconds)
        if not changed:
            site = site._replace(key=site.key._replace(new=site.key.old))
        checkout = checkouts.get()
        result = {"outcome": "no test" if not chosen else "not run"}
        if chosen and time.monotonic() + args.limit < until:
            result = checkout.try_out(site, chosen, args.seconds, args.limit)
        checkouts.put(checkout)
        return result

    def note(key: Key) -> None:
        result = try_out(key, changed=True)
        with saving:
            results[key] = key._asdict() | result
            save(args.to, results.values())
            print(*result.values(), "|", *key, flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        for name in "ab":
            checkouts.put(Checkout(Path(folder) / name))
        with ThreadPoolExecutor(2) as pool:
            for result in pool.map(lambda key: try_out(key, changed=False), todo[:2]):
                print("without a mutant:", *result.values(), flush=True)
                if result["outcome"] in ("killed", "time-out", "broken"):
                    raise SystemExit("these tests fail as it is")
            list(pool.map(note, todo))
    print(Counter(result["outcome"] for result in results.values()))


def compare(before: Path, after: Path) -> int:
    """Prints what was caught and, its line being there, is not any more: 1 if there is any."""
    then, now = load(before), load(after)
    outcomes = {key: now.get(key, {}).get("outcome", "not run") for key in then}
    caught = [key for key in then if then[key].get("outcome") in CAUGHT]
    lost = [key for key in caught if outcomes[key] not in CAUGHT | {"gone"}]
    for key in lost:
        print(f"{outcomes[key]}: {key.path}, {key.scope}: {key.line}")
        print(f"    {key.old!r} -> {key.new!r} failed {then[key]['killed_by']}")
    print(f"{len(caught)} were caught; of these now:", Counter(outcomes[key] for key in caught))
    return int(bool(lost))


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw")
    commands.add_parser("cover")
    running = commands.add_parser("run")
    running.add_argument("--to", type=Path, default=MUTANTS, help="where results go")
    running.add_argument("--minutes", type=float, default=60, help="in all")
    running.add_argument("--tests", type=int, default=12, help="of a mutant, at most")
    running.add_argument("--seconds", type=float, default=25, help="that these may take")
    running.add_argument("--limit", type=float, default=60, help="seconds until they are stopped")
    running.add_argument("--again", nargs="*", help="also those of these outcomes; of all, if none")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        return compare(args.before, args.after)
    return run(args) if args.command == "run" else {"draw": draw, "cover": cover}[args.command]()


if __name__ == "__main__":
    sys.exit(main())
