"""Programs that tests of runs compile again and again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import several


@pytest.fixture(scope="session")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("xla")


@pytest.fixture(scope="module")
def compiled_once(_programs: Path) -> Iterator[None]:
    """For modules that train the same again, or start processes that do; most save half of their time."""
    with several.compiled_once(_programs):
        yield
