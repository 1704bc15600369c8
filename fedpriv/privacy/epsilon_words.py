"""How epsilons are written, for people: never without what they need beside them."""

from __future__ import annotations

from fedpriv.privacy.certificate import NOT_COVERED, Certificate, Claim

OF_ONE_MODEL = "of ONE model (one seed) released alone"


def short_epsilon(value: float) -> str:
    """An epsilon while training."""
    return f"{value:.2f}" if 0.1 <= value < 100 else f"{value:.3g}"


def meaning_of_epsilon(number: Certificate | Claim) -> str:
    """What an epsilon needs beside it."""
    said = (
        f"{number.unit} level, view {number.view.replace('_', ' ')}, {hyphenated(number.relation)} adjacency, "
        f"δ = {number.delta:.3g}, "
    )
    if isinstance(number, Certificate):
        return said + f"certified ({number.basis})"
    return (
        said
        + f"{number.status} by {number.source}"
        + ", not proved for this run" * (not number.sound)
    )


def why_infinite(number: Certificate | Claim | None) -> list[str]:
    """Why nothing is certified, each reason once; empty where it is not known."""
    said = number.assumptions if isinstance(number, Certificate) else ()
    return [text for text in said if text.startswith(("not private: ", NOT_COVERED))]


def only_not_covered(number: Certificate | Claim | None) -> bool:
    """Whether there is noise, and epsilon is infinite only because private numbers chose what is released."""
    why = why_infinite(number)
    return bool(why) and all(text.startswith(NOT_COVERED) for text in why)


def hyphenated(relation: str) -> str:
    """An adjacency in words."""
    return relation.replace("_", "-")
