"""Small changes of the code (mutants), for `run_mutants.py`, which says whether a test notices them.

    python .ci/draw_mutants.py --to .ci/mutants.json                       # 15 of each room of `CORE`, 3 of others
    python .ci/draw_mutants.py --to build/others.json --seed 1 --core 5    # another set
    python .ci/draw_mutants.py --to after.json --replace .ci/mutants.json  # after changes

A mutant is found again by the text of its line, wherever that has moved, and is gone with it. With
`--replace`, the nearest mutant of the same kind takes its place: in the function that took over by
name, else in its file, else in its package.
"""

import argparse
import ast
import bisect
import difflib
import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fedpriv", "experiments")
CORE = [
    ("fedpriv", room)
    for room in ("certification", "mechanisms", "pairs", "privacy", "proof", "rounds")
]
PER_SCOPE = 3  # mutants of one function, at most

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


def room_of(path: str) -> tuple[str, ...]:
    """Package and folder."""
    return tuple(path.split("/")[:2])


def sources() -> dict[str, str]:
    """Path -> text, of all rooms."""
    paths = sorted(p for package in PACKAGES for p in (ROOT / package).glob("*/**/*.py"))
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


def draw(core: int, each: int, seed: int) -> list[dict[str, Any]]:
    """So many of each room of `CORE`, and of each other room; in a room, kinds take turns."""
    texts, rng = sources(), random.Random(seed)
    sites = all_sites(texts)
    order = rng.sample(list(sites.values()), len(sites))
    rooms: dict[tuple[str, ...], dict[str, list[Site]]] = defaultdict(lambda: defaultdict(list))
    for site in order:
        rooms[room_of(site.key.path)][site.key.kind].append(site)
    drawn: list[Key] = []
    for room, kinds in sorted(rooms.items()):
        left, per_scope = core if room in CORE else each, Counter()
        for site in filter(None, itertools.chain(*itertools.zip_longest(*kinds.values()))):
            if left and per_scope[site.key[:2]] < PER_SCOPE:
                text = texts[site.key.path]
                compile(mutated(text, site), site.key.path, "exec")
                assert text[site.span] == site.key.old != site.key.new
                per_scope[site.key[:2]] += 1
                drawn.append(site.key)
                left -= 1
    rng.shuffle(drawn)
    return [key._asdict() for key in drawn]


def nearest(gone: Key, sites: Collection[Key]) -> Key | None:
    """Of its kind: of the function of its name if there is one, of its file, of its package."""

    def nearness(key: Key) -> tuple:
        function = key.scope == gone.scope != ""
        package = key.path.rpartition("/")[0] == gone.path.rpartition("/")[0]
        named = key.scope.rpartition(".")[2] == gone.scope.rpartition(".")[2]
        alike = difflib.SequenceMatcher(None, key.line, gone.line).ratio()
        return function, key.path == gone.path, package, named, key[-2:] == gone[-2:], alike

    return max((key for key in sites if key.kind == gone.kind), key=nearness, default=None)


def replaced(path: Path) -> list[dict[str, Any]]:
    """A set whose mutants are all there; those that took a place say in whose."""
    sites = all_sites(sources())
    found = {key: located(key, sites) for key in load(path)}
    left = dict.fromkeys(sites.keys() - {site.key for site in found.values() if site})
    mutants = []
    for key, mutant in load(path).items():
        if found[key] is None and (other := nearest(key, sorted(left))):
            del left[other]
            mutant = other._asdict() | {"replaces": key}
        mutants.append(mutant)
    return mutants


def save(to: Path, mutants: Iterable[dict[str, Any]]) -> None:
    unfinished = to.with_suffix(".unfinished")
    unfinished.write_text("[\n" + ",\n".join(map(json.dumps, mutants)) + "\n]\n")
    unfinished.replace(to)


def load(path: Path) -> dict[Key, dict[str, Any]]:
    mutants = json.loads(path.read_text())
    return {Key(*(mutant[name] for name in Key._fields)): mutant for mutant in mutants}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True, help="a new file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--core", type=int, default=15, help="of each room that an epsilon rests on"
    )
    parser.add_argument("--each", type=int, default=3, help="of each other room")
    parser.add_argument(
        "--replace", type=Path, help="draw none but for those that are gone of this"
    )
    args = parser.parse_args()
    if args.to.exists():
        raise SystemExit(f"{args.to} is there, with what became of its mutants")
    mutants = replaced(args.replace) if args.replace else draw(args.core, args.each, args.seed)
    save(args.to, mutants)
    print(f"{len(mutants)}:", Counter("/".join(room_of(mutant["path"])) for mutant in mutants))
    print(Counter(mutant["kind"] for mutant in mutants))
    print(sum("replaces" in mutant for mutant in mutants), "in the place of one that is gone")


if __name__ == "__main__":
    main()
