"""Programs for readers, run with few rounds and draws, where no number that they print is asserted."""

from collections.abc import Callable
from typing import Any

import pytest

import fedpriv as fp
from fedpriv import experiments


def brief(patch: pytest.MonkeyPatch, **most: int) -> None:
    """Trainings, audits and attacks have at most so many `rounds`, `draws` or `steps`."""
    attacks = [(fp.attacks, name) for name in ("draw_scores", "invert_view")]
    for where, name in [(fp, "simulate"), (experiments, "run"), (experiments, "audit"), *attacks]:
        patch.setattr(where, name, fewer(getattr(where, name), most))


def fewer(do: Callable[..., Any], most: dict[str, int]) -> Callable[..., Any]:
    """With at most so much of each option."""

    def done(*given: Any, **options: Any) -> Any:
        for name in most.keys() & options.keys():
            options[name] = min(options[name], most[name])
        return do(*given, **options)

    return done
