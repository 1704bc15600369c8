"""What a run waits for before its first numbers, said by Python's logger `fedpriv.engine` at level INFO."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOG = logging.getLogger("fedpriv.engine")


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Says what runs inside, then how many seconds it took."""
    LOG.info("%s", what)
    began = time.perf_counter()
    yield
    LOG.info("%s: %.1f s", what, time.perf_counter() - began)
