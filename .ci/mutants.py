"""Do the tests notice a fault? Small changes of the code (mutants), and which tests fail with each.

    pip install coverage
    python .ci/mutants.py draw                     # the mutants: .ci/mutants.json
    python .ci/mutants.py cover                    # which tests run which lines: build/mutants.json
    python .ci/mutants.py run                      # at most an hour; continues where it stopped
    python .ci/mutants.py cover                    # later, when the tests have changed
    python .ci/mutants.py run --to after.json      # the same mutants again
    python .ci/mutants.py compare .ci/mutants.json after.json

A mutant is found again by the text of its line, whatever lines are above it, and is gone with that text. Each has a
process of its own, which runs some tests of its line. A test that fails is run again without the mutant: if it fails
then, too, the outcome is "broken". "time-out" is a test that ends without the mutant only. The tests run in copies of
the checkout, which stays as it is.
"""

import argparse
import ast
import bisect
import contextlib
import io
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("certification", "privacy", "mechanisms", "rounds")
MUTANTS, COVER = ROOT / ".ci" / "mutants.json", ROOT / "build" / "mutants.json"
READS_SOURCE = re.compile(r"getsource|ast\.parse|glob\(\"\S*\.(py|md)\"\)")  # not tests of behaviour
CAUGHT = {"killed", "time-out"}
PER_SCOPE = 3  # mutants of one function
FEW = 10  # tests of a line: with fewer, others of its function and module are tried after them

COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not"}
COMPARED |= {"is not": "is", "in": "not in", "not in": "in"}
COMPUTED = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "**": "*"}
CHOSEN = {"min": "max", "any": "all", "minimum": "maximum"}
CHOSEN |= {new: old for old, new in CHOSEN.items()}
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


class Key(NamedTuple):
    """Names a mutant, however far its line moves."""

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
    start: int  # characters of the file
    end: int
    rows: set[int]  # of the place and of its statement
    within: range  # rows of the scope


class Source:
    """Places in a text."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, text.splitlines(keepends=True)
        self.begin = [0, *itertools.accumulate(map(len, self.lines))]
        skipped = (tokenize.COMMENT, tokenize.NL)
        found = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
        places = [(self.begin[t.start[0] - 1] + t.start[1], t) for t in found]
        self.tokens = [(p, t.string) for p, t in places if t.type not in skipped]

    def place(self, row: int, column: int) -> int:
        """Of a node's row and column, which counts bytes."""
        return self.begin[row - 1] + len(self.lines[row - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        end = self.place(node.end_lineno, node.end_col_offset)
        return self.place(node.lineno, node.col_offset), end

    def between(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """The operator's span."""
        first, last = self.span(left)[1], self.span(right)[0]
        there = self.tokens[bisect.bisect_left(self.tokens, (first, "")) :]
        there = list(itertools.takewhile(lambda token: token[0] < last, there))
        there = [token for token in there if token[1] not in "()"]
        return there[0][0], there[-1][0] + len(there[-1][1])


def changes(node: ast.AST, source: Source) -> Iterator[tuple[str, int, int, str]]:
    """Kind, span and replacement of all mutants of this node itself."""

    def swapped(kind: str, span: tuple[int, int], table: dict[str, str]) -> Iterator[Any]:
        old = " ".join(source.text[slice(*span)].split())
        if old in table:
            yield kind, *span, table[old]

    match node:
        case ast.Compare():
            for left, right in itertools.pairwise([node.left, *node.comparators]):
                yield from swapped("comparison", source.between(left, right), COMPARED)
        case ast.BinOp():
            yield from swapped("arithmetic", source.between(node.left, node.right), COMPUTED)
        case ast.AugAssign():
            table = {f"{old}=": f"{new}=" for old, new in COMPUTED.items()}
            yield from swapped("arithmetic", source.between(node.target, node.value), table)
        case ast.UnaryOp(op=ast.USub()):
            yield "arithmetic", source.span(node)[0], source.span(node)[0] + 1, "+"
        case ast.UnaryOp(op=ast.Not()):
            yield "not", source.span(node)[0], source.span(node)[0] + len("not"), ""
        case ast.BoolOp():
            for left, right in itertools.pairwise(node.values):
                span = source.between(left, right)
                yield from swapped("boolean", span, {"and": "or", "or": "and"})
        case ast.Constant(value=bool(value)):
            yield "flag", *source.span(node), str(not value)
        case ast.Constant(value=int(value)):
            yield "number", *source.span(node), str(value + 1)
        case ast.Constant(value=float(value)):
            yield "number", *source.span(node), repr(2 * value if value else 1.0)
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "statement", *source.span(node), "pass"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            pairs = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Eq, ast.Is, ast.In))
            if not pairs and not isinstance(test, ast.UnaryOp):  # those are of another kind
                start, end = source.span(test)
                yield "condition", start, end, f"not ({source.text[start:end]})"
        case ast.Call():
            end = source.span(node.func)[1]
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            yield from swapped("choice", (end - len(name), end), CHOSEN)
            for keyword in node.keywords:
                if keyword.arg not in (None, "strict"):  # zip's `strict` is seen in faulty calls alone
                    start, end = source.span(keyword)
                    comma = re.match(r"\s*,", source.text[end:])
                    yield "keyword", start, end + (comma.end() if comma else 0), ""


def walk(node: Any, scope: tuple[str, ...] = (), owner: Any = None, statement: Any = None) -> Iterator:
    """Nodes that may change, with scope, its definition and their statement: not types, not what errors say."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if isinstance(node, DEFINITIONS):
        scope, owner = (*scope, node.name), node
    yield node, ".".join(scope), owner, statement
    if not isinstance(node, ast.Raise):
        for name, children in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                for child in children if isinstance(children, list) else [children]:
                    if isinstance(child, ast.AST):
                        yield from walk(child, scope, owner, statement)


def sites_of(path: str, text: str) -> list[Site]:
    """All mutants of a file."""
    source, found, seen = Source(text), [], Counter()
    for node, scope, owner, statement in walk(ast.parse(text)):
        within = range(1, len(source.lines) + 1)
        if owner:
            first = min(part.lineno for part in [owner, *owner.decorator_list])
            within = range(first, owner.end_lineno + 1)
        for change in changes(node, source):
            found.append((change, scope, within, statement))
    sites = []
    for (kind, start, end, new), scope, within, statement in sorted(found, key=lambda x: x[0][1]):
        row = bisect.bisect_right(source.begin, start)
        line = source.lines[row - 1].strip()
        nth = sum(source.lines[r - 1].strip() == line for r in within if r < row)
        old = source.text[start:end]
        key = Key(path, scope, line, nth, kind, seen[row, kind], old, new)
        seen[row, kind] += 1
        sites.append(Site(key, start, end, {row, statement.lineno}, within))
    return sites


def files() -> dict[str, str]:
    """Path -> text, of the four folders."""
    paths = sorted(p for f in FOLDERS for p in (ROOT / "fedpriv" / f).rglob("*.py"))
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in paths}


def all_sites(texts: dict[str, str]) -> dict[Key, Site]:
    """Those that have a name of their own."""
    sites = [site for path, text in texts.items() for site in sites_of(path, text)]
    names = Counter(site.key for site in sites)
    return {site.key: site for site in sites if names[site.key] == 1}


def located(key: Key, sites: dict[Key, Site]) -> Site | None:
    """In its file or, if its function has moved, in the only other that has the line."""
    if key in sites:
        return sites[key]
    moved = [site for other, site in sites.items() if other[1:] == key[1:]]
    return moved[0] if len(moved) == 1 else None


def mutated(text: str, site: Site) -> str:
    return text[: site.start] + site.key.new + text[site.end :]


def compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def draw(to: Path, count: int, seed: int) -> None:
    """As many of a folder as it has of all sites; in a folder, kinds take turns."""
    texts, rng = files(), random.Random(seed)
    sites = list(all_sites(texts).values())
    rng.shuffle(sites)
    drawn: list[Site] = []
    per_scope, before = Counter(), 0
    for folder in FOLDERS:
        kinds = defaultdict(list)
        for site in sites:
            if site.key.path.split("/")[1] == folder:
                kinds[site.key.kind].append(site)
        before += sum(map(len, kinds.values()))
        turns = itertools.chain.from_iterable(itertools.zip_longest(*kinds.values()))
        for site in filter(None, turns):
            scope = site.key[:2]
            if len(drawn) == round(count * before / len(sites)):
                break
            if per_scope[scope] < PER_SCOPE and compiles(mutated(texts[site.key.path], site)):
                per_scope[scope] += 1
                drawn.append(site)
    for site in drawn:
        old = texts[site.key.path]
        new = mutated(old, site)
        assert ast.dump(ast.parse(old)) != ast.dump(ast.parse(new)), site
        assert located(site.key, {s.key: s for s in sites_of(site.key.path, old)}) == site
    rng.shuffle(drawn)
    save(to, [site.key._asdict() for site in drawn])
    print(f"{len(drawn)} of {len(sites)} mutants:", *Counter(s.key.kind for s in drawn).items())


def save(to: Path, mutants: list[dict[str, Any]]) -> None:
    to.parent.mkdir(exist_ok=True)
    to.with_suffix(".tmp").write_text("[\n" + ",\n".join(map(json.dumps, mutants)) + "\n]\n")
    to.with_suffix(".tmp").replace(to)


class Covering:
    """A plugin of pytest: which tests run which lines, and how long they take."""

    def __init__(self, to: Path) -> None:
        import coverage

        self.to, self.file, self.unfit = to, "", set()
        self.seconds: dict[str, float] = {}
        source = [str(ROOT / "fedpriv" / folder) for folder in FOLDERS]
        self.coverage = coverage.Coverage(data_file=None, source=source, config_file=False)
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.file != file_of(nodeid):  # what an earlier file has traced is traced, and seen, again
            self.file = file_of(nodeid)
            sys.modules["jax"].clear_caches()
        self.coverage.switch_context(nodeid)
        self.seconds[nodeid] = time.perf_counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:  # skipped, too
            self.unfit.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.perf_counter() - self.seconds[nodeid]
        self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        with warnings.catch_warnings(action="ignore"):
            self.coverage.stop()
            data = self.coverage.get_data()
        lines = {
            Path(file).relative_to(ROOT).as_posix(): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
        seconds = {test: s for test, s in self.seconds.items() if test not in self.unfit}
        found = {"seconds": seconds, "unfit": sorted(self.unfit), "lines": lines}
        self.to.write_text(json.dumps(found))


class Chosen:
    """A plugin of pytest: only these tests, in this order, for about so long; writes what happens."""

    def __init__(self, to: Path) -> None:
        self.to = to
        asked = json.loads((to / "chosen.json").read_text())
        self.place = {test: i for i, test in enumerate(asked["tests"])}
        self.until = time.monotonic() + asked["seconds"]
        self.found: dict[str, Any] = {"ran": 0, "last": "", "failed": None, "ended": False}

    def note(self, **what: Any) -> None:
        self.found |= what
        (self.to / "found.json").write_text(json.dumps(self.found))

    def pytest_sessionstart(self, session: Any) -> None:
        self.session = session

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        chosen = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(chosen, key=lambda item: self.place[item.nodeid])
        assert Path(sys.modules["fedpriv"].__file__).is_relative_to(ROOT)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note(last=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.found["failed"]:
            self.note(failed=report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logfinish(self) -> None:
        self.note(ran=self.found["ran"] + 1)
        if time.monotonic() > self.until:
            self.session.shouldstop = "enough"

    def pytest_sessionfinish(self) -> None:
        self.note(ended=True)


def pytest_configure(config: Any) -> None:
    """This file is the plugin of the processes that it starts."""
    scratch = Path(os.environ["MUTANTS"])
    if (scratch / "chosen.json").exists():
        config.pluginmanager.register(Chosen(scratch))
    elif hasattr(config, "workerinput"):
        worker = config.workerinput["workerid"]
        config.pluginmanager.register(Covering(scratch / f"cover_{worker}.json"))


def copied(folder: Path) -> Path:
    """The checkout, of which git ignores nothing."""
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "tree" / name)
    return folder / "tree"


def start(tree: Path, *args: str) -> subprocess.Popen:
    """Pytest in that copy, with this plugin; nothing is left of an earlier run's files."""
    scratch = tree.parent / "scratch"
    paths = [str(tree), str(tree / ".ci")]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "MUTANTS": str(scratch),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider"]
    command += ["--override-ini", "addopts=", "-q", "-m", "not slow", "--hypothesis-seed=0"]
    command += [f"--basetemp={scratch / 'tmp'}", *args]
    # A session of its own: what tests have started ends with it.
    with (scratch / "output").open("w") as output:
        return subprocess.Popen(
            command, cwd=tree, env=env, stdout=output, stderr=output, start_new_session=True
        )


def cover(to: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        tree = copied(Path(folder))
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        began = time.monotonic()
        start(tree, "-n", "2", "--dist", "loadfile", "--tb=short").wait()
        print((scratch / "output").read_text()[-3000:])
        parts = [json.loads(part.read_text()) for part in scratch.glob("cover_*.json")]
    texts = {file: (ROOT / file).read_text() for part in parts for file in map(file_of, part["seconds"])}
    behaviour = {file for file, text in texts.items() if not READS_SOURCE.search(text)}
    merged = [x for p in parts for x in p["seconds"].items() if file_of(x[0]) in behaviour]
    number = {test: i for i, (test, _) in enumerate(merged)}
    lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for part in parts:
        for path, rows in part["lines"].items():
            for row, tests in rows.items():
                lines[path][int(row)] += [number[test] for test in tests if test in number]
    tests = [(test, round(seconds, 2)) for test, seconds in merged]
    to.parent.mkdir(exist_ok=True)
    to.write_text(json.dumps({"texts": files(), "tests": tests, "lines": lines}))
    unfit = [test for part in parts for test in part["unfit"]]
    print(f"{len(tests)} tests, {len(unfit)} that do not pass; {time.monotonic() - began:.0f} s")


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Cover(NamedTuple):
    """What `cover` wrote."""

    tests: list[tuple[str, float]]
    lines: dict[str, dict[str, list[int]]]

    def of(self, path: str, rows: Any) -> set[tuple[str, float]]:
        there = self.lines.get(path, {})
        return {tuple(self.tests[test]) for row in rows for test in there.get(str(row), [])}

    def choose(self, site: Site, killer: str, most: int, seconds: float) -> list[str]:
        """Cheap tests of several files that run the line, then its function, then its module; `killer` first."""
        path = site.key.path
        chosen = dict.fromkeys(spread(self.of(path, site.rows), killer))
        for rows in (site.within, self.lines.get(path, {})):
            if len(chosen) < FEW:
                chosen |= dict.fromkeys(spread(self.of(path, rows), killer))
        kept: list[str] = []
        used: set[str] = set()
        for test, cost in chosen:
            seconds -= cost
            if kept and (len(kept) == most or seconds < 0):
                break
            if len(used | {file_of(test)}) <= max(1, 2 * most // 3):
                used.add(file_of(test))
                kept.append(test)
        return kept


def spread(tests: set[tuple[str, float]], killer: str) -> list[tuple[str, float]]:
    """The cheapest of each file, cheapest first, then the second of each."""
    ranked, rank = [], Counter()
    for test, cost in sorted(tests, key=lambda x: (x[1], x[0])):
        file = file_of(test)
        ranked.append((test != killer, rank[file], file != file_of(killer), cost, test))
        rank[file] += 1
    return [(test, cost) for *_, cost, test in sorted(ranked)]
