"""A notebook's cells in a kernel, as Jupyter runs them, where fedpriv is installed alone: without a checkout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
SECONDS = 900
WITHOUT_THE_CHECKOUT = """
import sys
from pathlib import Path
sys.path[:] = [path for path in sys.path if not Path(path, "experiments", "speed").is_dir()]
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one)]
from importlib.util import find_spec
assert find_spec("experiments") is None and find_spec("configs") is None
import fedpriv
assert fedpriv.__file__.startswith({site!r}), fedpriv.__file__
sys.path.append({tests!r})
import pytest
from brief import brief
brief(pytest.MonkeyPatch(), **{most!r})
sys.path.remove({tests!r})
"""


class CellError(AssertionError):
    """A cell has failed."""


class Kernel:
    """Runs cells, one after the other.

    Attributes:
      outputs: what Jupyter would show of all cells so far, as of the format of notebooks.
    """

    def __init__(self, client: Any):
        self._client = client
        self.outputs: list[dict[str, Any]] = []

    def run(self, source: str) -> list[dict[str, Any]]:
        """What Jupyter would show of a cell; raises `CellError` if it fails."""
        shown: list[dict[str, Any]] = []

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] in ("stream", "display_data", "execute_result"):
                shown.append(message["content"])

        reply = self._client.execute_interactive(source, timeout=SECONDS, output_hook=keep)
        self.outputs += shown
        if reply["content"]["status"] != "ok":
            raise CellError("\n".join(reply["content"].get("traceback", ["it was aborted"])))
        return shown

    @property
    def text(self) -> str:
        """What was printed, on either stream, and what values are in a terminal."""
        streams = (each.get("text", "") for each in self.outputs)
        values = (each.get("data", {}).get("text/plain", "") for each in self.outputs)
        return "".join((*streams, *values))

    def shown_as(self, kind: str) -> list[str]:
        """What was shown in a format, such as "text/html"."""
        return [each["data"][kind] for each in self.outputs if kind in each.get("data", {})]


def installed(site: Path) -> Path:
    """The folder `site`, in which fedpriv is as in a wheel."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fedpriv", site / "fedpriv", ignore=unwanted)
    shutil.copytree(ROOT / "configs", site / "fedpriv" / "configs", ignore=unwanted)
    return site


@contextmanager
def kernel(folder: Path, site: Path, **most: int) -> Iterator[Kernel]:
    """A kernel in `folder` that finds fedpriv in `site`; its trainings are as `brief` makes them."""
    environment = os.environ | {"PYTHONPATH": str(site), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    manager, client = start_new_kernel(cwd=str(folder), env=environment)
    try:
        one = Kernel(client)
        names = {"tests": str(TESTS), "site": str(site), "most": most}
        one.run(WITHOUT_THE_CHECKOUT.format(**names))
        yield one
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
