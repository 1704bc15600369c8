"""What the programs with planted faults have in common, whatever library they are written with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

RECORDS, FEATURES = 100, 5
RATE, STEPS, SIGMA, CLIP, DELTA = 0.1, 10, 1.4, 0.5, 1e-3
LEARNING_RATE, DRAWN = 0.1, 0.4  # DRAWN: where RATE is declared

Faults = Mapping[str, str | Mapping[str, Mapping[str, Any]]]
"""By fault, why it cannot be planted, or by the way it is planted, the arguments of `train`."""


def answers(train: Callable[..., tuple[float, list[Any]]], faults: Faults) -> dict[str, Any]:
    """What the library says to each.

    Args:
      train: gives the library's epsilon and all numbers that leave the program.
      faults: see `Faults`.
    """
    epsilon, released, usual = _heard(train, {})
    if _heard(train, {})[1] != released:
        raise RuntimeError("the sound program does not repeat itself")
    said: dict[str, str] = {}
    for name, ways in faults.items():
        if isinstance(ways, str):
            said[name] = ways
            continue
        heard = [f"{way}: {_said(train, change, released, usual)}" for way, change in ways.items()]
        said[name] = "; ".join(heard)
    return {"epsilon": epsilon, "said": said}


def _said(train: Any, change: Any, released: list[Any], usual: list[str]) -> str:
    try:
        epsilon, faulty, messages = _heard(train, change)
    except Exception as error:
        return f"stops, `{type(error).__name__}: {_first(error)}`"
    if faulty == released:
        raise RuntimeError("the fault changes nothing")
    new = [message for message in messages if message not in usual]
    return ", ".join([f"warns, `{message}`" for message in new] + [f"{epsilon:.3g}"])


def _heard(train: Any, change: Any) -> tuple[float, list[Any], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        epsilon, released = train(**change)
    return float(epsilon), released, sorted({_first(warning.message) for warning in caught})


def _first(message: object) -> str:
    """Its first sentence, as far as a table has room."""
    said = str(message).strip().splitlines()[0].split(". ")[0].replace("|", "/")
    return said if len(said) <= 100 else said[:97] + "..."
