"""What a public docstring owes its reader beyond what ruff looks at: shapes, units, errors, source."""

import ast
import re
from collections.abc import Iterator

from docstring_source import Definition, Package

SHAPE = re.compile(
    r"\b([fiu](8|16|32|64)|bool)\b"  # f32[d], or the type alone where the shape is said in words
    r"|(?<![\w\]])\[[^\]]*([A-Za-z]|\.\.\.)[^\]]*\]"  # leaves [n, ...]
)
TREE = re.compile(r"\b((py)?trees?|leaf|leaves|shapes of)\b|\bone\b", re.IGNORECASE)
ELSEWHERE = re.compile(r"\b(as|see|like) (in |for )?(`|the )|\blikewise\b|\balike\b")
ARRAYS = {"Array", "ndarray", "ArrayLike", "NDArray", "Floats"}
TREES = {"PyTree", "Example"}
SCALARS = {"int", "float", "bool"}

UNITS = {
    "epsilon": r"\bnats\b|\bpure epsilon\b",
    "delta": r"\bprobability\b|[\[(]0, 1[\])]",
    "clip_norm": r"\bC\b",
    "noise_multiplier": r"\b(sigma|z)\b|\bnoise over\b",
    "rate": r"\bprobability\b",
    "std": r"\bstandard deviation\b",
    "bits": r"\bB\b|\bbits\b",
    "seconds": r"\bseconds\b|\bwall-clock\b|\bspent\b",
    "timeout": r"\bseconds\b",
    "uplink_mb": r"\bmegabytes\b|\bMB\b",
    "downlink_mb": r"\bmegabytes\b|\bMB\b",
}

PUBLISHED = {  # what is made of these comes from a paper
    *("Algorithm", "Claim", "Clipping", "Codec", "Coupling", "Exchanges", "Mechanism", "Noise"),
    *("PrivateQuantizer", "Reconstruction", "Recovered", "Sparsifier", "Splitting", "Transmission"),
}
WORK = re.compile(r'arXiv[: ]\d{4}\.\d{4,5}|"[A-Z][^"]{15,}"|\b(19|20)\d\d\b')
PLACE = re.compile(
    r"\b(Algorithms?|Appendix|Figure|Lemma|Lines?|Proposition|Remark|Section|Theorem|eq\.) ([A-Z]\b|[IVX]+|\d)"
    r"|\bours\b"
)


def complaints(package: Package) -> Iterator[str]:
    """One line for each thing that a public definition leaves out or gets wrong."""
    for definition in package.public():
        for rule in (arguments, fields, shapes, units):
            yield from (f"{definition.name}: {text}" for text in rule(definition))
        for rule in (errors, source):
            yield from (f"{definition.name}: {text}" for text in rule(definition, package))


def arguments(of: Definition) -> Iterator[str]:
    """Whatever is listed is there."""
    there = set(of.arguments)
    if isinstance(of.node, ast.ClassDef):
        there |= {x.attr for x in ast.walk(of.node) if isinstance(x, ast.Attribute)}
    for name in of.entries.keys() - there:
        yield f"lists {name}, which it does not have"


def fields(of: Definition) -> Iterator[str]:
    """Every public attribute of a class is spoken of."""
    if isinstance(of.node, ast.ClassDef):
        for name in of.fields:
            if name not in of.entries and f"`{name}`" not in of.text:
                yield f"says nothing of the attribute {name}"


def shapes(of: Definition) -> Iterator[str]:
    """Arrays come with a shape or a data type, trees of them at least as trees."""
    for name, annotation in of.arguments.items():
        listed = of.entries.get(name, "")
        if not (_shaped(annotation, listed or of.text) or ELSEWHERE.search(listed)):
            yield f"gives no shape or data type of {name}"
    if isinstance(of.node, ast.FunctionDef) and not _shaped(of.node.returns, of.text):
        yield "gives no shape or data type of what it returns"


def _shaped(annotation: ast.expr | None, said: str) -> bool:
    """Whether a shape is said, or there is no need to; a plain number may be meant as well as an array."""
    names = set(_names(annotation))
    if names & SCALARS or not names & (ARRAYS | TREES):
        return True
    return bool(SHAPE.search(said) or (names & TREES and TREE.search(said)))


def _names(annotation: ast.AST | None) -> Iterator[str]:
    """The last parts of the names in an annotation, those of functions' arguments and results left out."""
    if isinstance(annotation, ast.Name | ast.Attribute):
        yield annotation.id if isinstance(annotation, ast.Name) else annotation.attr
    elif isinstance(annotation, ast.Subscript):
        if "Callable" not in (outer := set(_names(annotation.value))):
            yield from outer - {"list", "tuple", "dict"}
            yield from _names(annotation.slice)
    elif annotation is not None:
        for child in ast.iter_child_nodes(annotation):
            yield from _names(child)


def units(of: Definition) -> Iterator[str]:
    """Numbers of a kind that can be mistaken say what they are."""
    for name in of.arguments:
        said = of.entries.get(name, of.text)
        if name in UNITS and not re.search(UNITS[name], said) and not ELSEWHERE.search(said):
            yield f"does not say what unit or kind of number {name} is ({UNITS[name]})"


def errors(of: Definition, package: Package) -> Iterator[str]:
    """Every error that leaves it is named; where that is all there is to say, in the first sentence."""
    for error, where in dict(package.errors(of)).items():
        stated = error in of.raises or f"Raises {error}" in of.text
        if not stated:
            yield f"does not name {error}, raised in {where}"


def source(of: Definition, package: Package) -> Iterator[str]:
    """What implements a publication names it, in its own docstring or its file's, and the place there."""
    made = set(_names(of.node.returns)) if isinstance(of.node, ast.FunctionDef) else set()
    if of.owner is None and made & PUBLISHED:
        if not WORK.search(of.text + package.headers[of.module]):
            yield "neither it nor its file names the publication it is from"
        if not PLACE.search(of.text) and not WORK.search(of.text):
            yield "does not say where in the publication (Algorithm, Section, eq. ...)"
