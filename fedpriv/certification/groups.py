"""Certificates by group: of which kinds of units there are, where these are in public groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.arguments import require
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
    """One of each group: that of the smallest client, or of the one with fewest of its records."""
    found: dict[str, UnitKind] = {}
    for kind in dict.fromkeys(kind for own in of_clients for kind in own):
        best = found.setdefault(kind.group, kind)
        if kind.size is not None and best.size is not None and kind.size < best.size:
            found[kind.group] = kind
    return tuple(found.values())


def by_group(certificates: Mapping[UnitKind, Certificate]) -> Certificate:
    """That of the largest epsilon, with each group's.

    Raises:
      ValueError: groups are certified under different adjacencies.
    """
    groups: dict[str, list[Certificate]] = {}
    for kind, certificate in certificates.items():
        groups.setdefault(kind.group, []).append(_of_group(certificate, kind.group))
    of_groups = {name: costliest(each) for name, each in groups.items()}
    whole = costliest(list(of_groups.values()))
    relations = {name: each.relation for name, each in of_groups.items()}
    alike = len(set(relations.values())) == 1
    require(
        alike,
        "groups",
        relations,
        "certified under different adjacencies; draw all groups the same way",
    )
    return replace(whole, of_groups=of_groups) if "" not in of_groups else whole


def costliest(certificates: Sequence[Certificate]) -> Certificate:
    """The one of the largest epsilon."""
    return max(certificates, key=lambda each: each.epsilon)


def _of_group(certificate: Certificate, name: str) -> Certificate:
    """The certificate, with what it assumes of groups."""
    if not name or certificate.accountant == "none":
        return certificate
    texts = (
        f"it is of units of the public group {name!r}; in which group a unit is, and what each group is drawn by and "
        "counts, is public, fixed, and independent of records, and a unit that is replaced stays in its group",
        "why a unit is in its group is not hidden: not that it asked for more privacy, if groups are made of that",
    )
    return replace(certificate, assumptions=(*certificate.assumptions, *texts))
