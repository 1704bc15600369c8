"""Which bundles of functions carry a proof: those sealed by who proved it, with their class and all their parts."""

from __future__ import annotations

from typing import Any, TypeVar

Bundle = TypeVar("Bundle", bound=Any)
"""A named tuple whose last field is `seal: tuple = ()`."""


def sealed(bundle: Bundle) -> Bundle:
    """The same, marked as one whose bounds are proved for its functions."""
    return bundle._replace(seal=(type(bundle), *bundle[:-1]))


def constructed(bundle: Any) -> bool:
    """Whether it is as it was when it was sealed; what is made by hand, changed, or of a subclass is not."""
    complete = len(bundle.seal) == len(bundle) and bundle.seal[0] is type(bundle)
    return complete and all(a is b for a, b in zip(bundle.seal[1:], bundle, strict=False))
