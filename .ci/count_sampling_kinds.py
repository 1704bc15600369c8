"""Counts the places that ask what kind of sampling, schedule or sampler something is; fails above MOST.

    python .ci/count_sampling_kinds.py            # the number
    python .ci/count_sampling_kinds.py --places   # each place

A sampling says itself what is asked of it (`fedpriv/privacy/sampling`), so that a new one touches no other file.
"""

import ast
import sys
from pathlib import Path

MOST = 20
ROOT = Path(__file__).parents[1]
SAMPLERS = {"Accounting", "Sampler", "ScheduledSampler", "Opening", "PublicSizes"}


def main() -> None:
    trees = {
        path: ast.parse(path.read_text())
        for package in ("fedpriv", "experiments")
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    kinds = kinds_of(trees.values())
    places = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if asks(node, kinds)
    ]
    if "--places" in sys.argv:
        print(*places, sep="\n")
    files = len({place.partition(":")[0] for place in places})
    print(f"{len(places)} places in {files} files ask for a kind of sampling; at most {MOST} may")
    sys.exit(len(places) > MOST)


def kinds_of(trees) -> set[str]:
    """Names of the classes, of all that inherit from them, and of unions of them."""
    kinds = set(SAMPLERS)
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = [(n.name, n.bases) for n in nodes if isinstance(n, ast.ClassDef)]
    named += [(n.target.id, [n.value]) for n in nodes if is_alias(n)]
    while True:
        more = {
            name
            for name, of in named
            if any(isinstance(x, ast.AST) and inherits(x, kinds) for x in of)
        }
        if more <= kinds:
            return kinds
        kinds |= more


def is_alias(node: ast.AST) -> bool:
    known = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    return known and "TypeAlias" in ast.unparse(node.annotation)


def inherits(node: ast.AST, kinds: set[str]) -> bool:
    """A class is named, alone or in a union."""
    if isinstance(node, ast.BinOp):
        return inherits(node.left, kinds) or inherits(node.right, kinds)
    return name_of(node) in kinds


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def asks(node: ast.AST, kinds: set[str]) -> bool:
    """`isinstance(x, Kind)`, `type(x) is Kind`, or `case Kind()`."""
    if isinstance(node, ast.Call) and name_of(node.func) in ("isinstance", "issubclass"):
        asked = node.args[1:]
    elif isinstance(node, ast.Compare) and any(is_type(x) for x in (node.left, *node.comparators)):
        asked = [node.left, *node.comparators]
    elif isinstance(node, ast.MatchClass):
        asked = [node.cls]
    else:
        return False
    return any(name_of(x) in kinds for one in asked for x in ast.walk(one))


def is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "type"


if __name__ == "__main__":
    main()
