"""What is recorded of a certificate, a refusal or a budget, in plain values of JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import fedpriv as fp

Recorded = dict[str, Any]


class Row(NamedTuple):
    """One certificate, refusal or budget.

    Attributes:
      name: what it is of, in words, which no other row has.
      make: () -> a certificate; a number, or several by name; a pair of both; or it raises ValueError or LeakError.
    """

    name: str
    make: Callable[[], Any]


def recorded(row: Row) -> Recorded:
    """Field -> what was found, as it comes back from JSON."""
    try:
        found = row.make()
    except (ValueError, fp.LeakError) as error:  # the sentence has tests of its own
        if not _is_refusal(error):
            raise
        return {"refused": True}
    if isinstance(found, fp.Certificate):
        return of_certificate(found)
    if isinstance(found, tuple):
        return {"found": plain(found[0]), **of_certificate(found[1])}
    return {"found": plain(found)}


def _is_refusal(error: Exception) -> bool:
    """Whether it is the library's line, `field: value; remedy`, and no mistake in a row."""
    return isinstance(error, fp.LeakError) or bool(re.fullmatch(r"[^\n]+: [^\n]+", str(error)))


def of_certificate(certificate: fp.Certificate) -> Recorded:
    """What has to stay."""
    fields = {
        "epsilon": certificate.epsilon,
        "epsilons": certificate.epsilons,
        "delta": certificate.delta,
        "view": certificate.view,
        "unit": certificate.unit,
        "relation": certificate.relation,
        "accountant": certificate.accountant,
        "basis": certificate.basis,
        "bound": certificate.bound,
        "event": certificate.event,
        "dp_event": event_of(certificate),
        "profile": points_of(certificate),
        "assumptions": sorted(certificate.assumptions),
    }
    if certificate.of_groups:
        fields["of_groups"] = {g: own.epsilon for g, own in certificate.of_groups.items()}
    if certificate.of_clients:
        fields["of_clients"] = [own.epsilon for own in certificate.of_clients]
    return plain(fields)


def points_of(certificate: fp.Certificate) -> list[list[float]]:
    """[[epsilon, delta]] at 0, a quarter, half, once and twice the certificate's epsilon, or at 0 to 4."""
    whole = certificate.epsilon if 0 < certificate.epsilon < math.inf else 2.0
    with np.errstate(invalid="ignore"):  # no bound at all makes NumPy warn
        profile = certificate.profile()
    return [[e, float(profile.delta(e))] for e in (0.0, whole / 4, whole / 2, whole, 2 * whole)]


def event_of(certificate: fp.Certificate) -> str:
    """That of dp-accounting and its neighbouring relation, as text; "none" where it has none."""
    try:
        event, relation, _ = certificate.dp_event()
    except ValueError:
        return "none"
    return f"{relation.name}: {event}"


def plain(value: Any) -> Any:
    """As JSON gives it back: infinity as a text, every other number to the bit."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
