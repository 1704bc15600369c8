"""Modules that an installation may lack, and whose name is not that of the package to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def of_package(name: str) -> Iterator[None]:
    """An import inside that finds nothing says what to install.

    Raises:
      ModuleNotFoundError: naming the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; pip install {name}", name=error.name
        ) from None
