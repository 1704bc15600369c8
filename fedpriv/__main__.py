"""python -m fedpriv: where the commands are, which a wheel has not got."""

import sys
from importlib.util import find_spec


def main() -> int:
    """Says it; the exit code is 2 where they are not installed."""
    if find_spec("experiments") and find_spec("experiments.run"):
        print("fedpriv is the library; `python -m experiments` lists the commands")
        return 0
    print(
        "error: this is the library alone; its commands (python -m experiments.run, ...) are in the repository: clone "
        "it and run `pip install -e .` there",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
