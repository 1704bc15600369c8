"""python -m fedpriv: version, devices, and where the commands and the documentation are."""

import sys
from importlib.util import find_spec
from pathlib import Path

import jax

from fedpriv import __version__


def main() -> int:
    """Prints versions, devices, and where the commands and the documentation are: a line for each."""
    devices = jax.devices()
    print(f"fedpriv {__version__}, JAX {jax.__version__}")
    print(f"devices: {len(devices)} {devices[0].platform} ({devices[0].device_kind})")
    if not (find_spec("experiments") and find_spec("experiments.run")):
        print("commands, documentation: in the repository; clone it, run `pip install -e .` there")
        return 0
    docs = Path(__file__).parents[1] / "docs"
    site = docs / "_build" / "docs" / "index.html"
    print("commands: python -m experiments")
    print(f"documentation: {site if site.exists() else docs / 'start.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
