"""Certificates by group: of which kinds of units there are, where these are in public groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed
from fedpriv.privacy import Certificate
from fedpriv.privacy.sampling.grouped import Strata
from fedpriv.rounds.record_samplers import PublicGroups, RecordSampler
from fedpriv.rounds.scheduled_samplers import AnySampler


def grouping_of(samplers: Iterable[AnySampler]) -> Strata | None:
    """The groups that samplers, of cohorts and of records, draw by; None: there are none.

    Raises:
      ValueError: two draw by other groups; one is made by hand, so that a budget could follow the data.
    """
    found: Strata | None = None
    for sampler in samplers:
        drawn: Any = sampler.accounting
        if not drawn.group_names:
            continue
        remedy = "made by hand; give fp.grouped(...) or fp.PublicGroups(...) as it is"
        require(constructed(sampler), "groups", drawn.group_names, remedy)
        same = found is None or found.members == drawn.members
        other = found.group_names if found else ()
        remedy = f"others are drawn by other groups, {other}; group clients or records, and alike everywhere"
        require(same, "groups", drawn.group_names, remedy)
        found = found or drawn
    return found


def kinds_of(
    grouping: Strata | None, records: Sequence[RecordSampler], clients: int
) -> tuple[tuple[UnitKind, ...], ...]:
    """[clients], of the units that each holds, by group, and by size where that is public.

    Args:
      records: the samplers of records.
    """
    of_places = [each for each in records if isinstance(each, PublicGroups)]
    if of_places:
        return tuple(
            tuple(UnitKind(n, name) for name, n in own.items()) for own in of_places[0].held
        )
    sizes = next((r.public_sizes for r in records if r.public_sizes is not None), None)
    labels = grouping.labels if grouping else ("",) * clients
    return tuple(
        (UnitKind(size, name),)
        for size, name in zip(sizes or [None] * clients, labels, strict=True)
    )


def costliest_kinds(of_clients: Iterable[Sequence[UnitKind]]) -> tuple[UnitKind, ...]:
    """One of each group: that of the smallest client, or of the one with fewest of its records.

    Formal guarantees: its curve is above those of the others of its group at every epsilon.

    *Proof.* A draw at a smaller rate is, for both neighbours alike, that of the larger rate or one without the unit.
    Divergences are jointly convex, and so no larger of the mixture.
    """
    found: dict[str, UnitKind] = {}
    for kind in dict.fromkeys(kind for own in of_clients for kind in own):
        best = found.setdefault(kind.group, kind)
        if kind.size is not None and best.size is not None and kind.size < best.size:
            found[kind.group] = kind
    return tuple(found.values())


def by_group(certificates: Mapping[UnitKind, Certificate]) -> Certificate:
    """That of units of all these kinds, with each group's own.

    Raises:
      ValueError: kinds of unit are certified under different adjacencies.
    """
    groups: dict[str, dict[UnitKind, Certificate]] = {}
    for kind, certificate in certificates.items():
        groups.setdefault(kind.group, {})[kind] = certificate
    of_groups = {name: _of_group(of_all(each), name) for name, each in groups.items()}
    if len(groups) == 1:
        ((name, only),) = of_groups.items()
        return replace(only, of_groups=of_groups) if name else only
    whole = of_all(certificates)
    texts = _ASSUMED if math.isfinite(whole.epsilon) and whole.accountant != "none" else ()
    return replace(whole, of_groups=of_groups, assumptions=(*whole.assumptions, *texts))


def of_all(certificates: Mapping[UnitKind, Certificate]) -> Certificate:
    """The certificate of units of all these kinds: what it says holds for a unit of any of them.

    Its epsilon is the largest, its profile has what each kind composes, and it assumes what that of any kind does.

    Raises:
      ValueError: kinds of unit are certified under different adjacencies.
    """
    costliest = max(certificates.values(), key=lambda own: (own.epsilon, own.accountant != "none"))
    relations = {
        kind.group or str(i): c.relation for i, (kind, c) in enumerate(certificates.items())
    }
    remedy = "certified under different adjacencies; draw all groups the same way"
    require(len(set(relations.values())) == 1, "groups", relations, remedy)
    compositions = tuple(
        dict.fromkeys(c for own in certificates.values() for c in own.compositions)
    )
    which = f", the costliest of {len(compositions)} kinds of unit at this delta"
    return replace(
        costliest,
        event=costliest.event + which * (len(compositions) > 1),
        compositions=compositions,
        assumptions=_assumed_of_all(certificates, costliest),
        doors=tuple(dict.fromkeys(d for own in certificates.values() for d in own.doors)),
    )


def _assumed_of_all(
    certificates: Mapping[UnitKind, Certificate], costliest: Certificate
) -> tuple[str, ...]:
    """What is assumed of every kind, and then what is assumed of some; if epsilon is infinite, why."""
    if math.isinf(costliest.epsilon):
        return costliest.assumptions
    shown = {kind: own for kind, own in certificates.items() if own.accountant != "none"}
    texts = dict.fromkeys(t for own in (costliest, *shown.values()) for t in own.assumptions)
    groups = {t: [kind.group for kind, own in shown.items() if t in own.assumptions] for t in texts}
    every = [text for text, names in groups.items() if len(names) == len(shown)]
    some = [f"of {_said(names)}: {t}" for t, names in groups.items() if len(names) < len(shown)]
    return (*every, *some)


def _said(groups: Sequence[str]) -> str:
    names = [repr(name) for name in dict.fromkeys(groups) if name]
    return f"units of group {' or '.join(names)}" if names else "some kinds of unit"


_ASSUMED = (
    "in which group a unit is, and what each group is drawn by and counts, is public, fixed, and independent of "
    "records, and a unit that is replaced stays in its group",
    "why a unit is in its group is not hidden: not that it asked for more privacy, if groups are made of that",
)


def _of_group(certificate: Certificate, name: str) -> Certificate:
    """The certificate, with what it assumes of groups."""
    if not name or certificate.accountant == "none":
        return certificate
    fixed, why = _ASSUMED
    texts = (f"it is of units of the public group {name!r}; {fixed}", why)
    return replace(certificate, assumptions=(*certificate.assumptions, *texts))
