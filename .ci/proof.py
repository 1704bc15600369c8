"""How much has to be trusted for a plain run: the size of all that `fedpriv.proof` loads.

    python .ci/proof.py                 # each module, in code lines and tokens
    python .ci/proof.py --below 1900    # ends with 1 where it is more, or where a feature is among them

A new process imports every module of `fedpriv.proof`, and then counts each module of fedpriv that is loaded. Blank
lines, comments and docstrings are no code.
"""

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOADED = """
import pkgutil, sys
from importlib import import_module
import fedpriv.proof
for each in pkgutil.walk_packages(fedpriv.proof.__path__, "fedpriv.proof."):
    import_module(each.name)
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "fedpriv":
        print(name, module.__file__)
"""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def loaded() -> dict[str, Path]:
    """Module -> its file."""
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name: Path(file) for name, file in map(str.split, done.stdout.splitlines())}


def size(text: str) -> tuple[int, int]:
    """(lines of code, tokens)."""
    told = set()
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str):
            told |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        and not told.issuperset(range(token.start[0], token.end[0] + 1))
    ]
    lines = {row for token in tokens for row in range(token.start[0], token.end[0] + 1)}
    return len(lines), len(tokens)


def is_feature(module: str) -> bool:
    """Whether it is neither of the proof nor of the core."""
    return module != "fedpriv" and module.split(".")[1] not in ("proof", "core")


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--below", type=int, metavar="LINES")
    below = parser.parse_args().below
    modules = loaded()
    sizes = {name: size(file.read_text()) for name, file in modules.items()}
    for name, (lines, tokens) in sizes.items():
        print(f"{lines:6} lines {tokens:7} tokens  {name}")
    lines, tokens = (sum(each) for each in zip(*sizes.values(), strict=True))
    print(f"{lines:6} lines {tokens:7} tokens  in {len(sizes)} modules")
    features = [name for name in modules if is_feature(name)]
    if features:
        print(f"features that are loaded with it: {', '.join(features)}")
    if below is not None and (features or lines > below):
        sys.exit(1)


if __name__ == "__main__":
    main()
