"""What is proved of a run (`Certificate`), and what a paper says of it (`Claim`)."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from fedpriv.core.arguments import Probability, checked
from fedpriv.core.cards import Card, Folded, in_a_line
from fedpriv.core.complaints import require, shown
from fedpriv.core.json_values import as_json, plain, typed
from fedpriv.pairs.events import Event, NoEventError, event
from fedpriv.pairs.numbers import VERSION
from fedpriv.privacy.operational import OperationalNumbers, operational_numbers
from fedpriv.privacy.profile import Composition, PrivacyProfile, profile_of
from fedpriv.proof.pairs import SEEN
from fedpriv.proof.seen import NO_NOISE, NOT_RELEASED, SEES, View

NOT_COVERED = "not covered: "
"""How an assumption begins that says which choice by private numbers makes epsilon infinite."""
_BASIS = {
    "constructed": "constructed: the releases were read off the round that runs",
    "declared": "declared: something in it is somebody's word",
}


@dataclass(frozen=True)
class Certificate:
    """A proved (epsilon, delta), with everything needed to read it.

    Attributes:
        epsilon: privacy loss, in nats; infinity if nothing is guaranteed.
        delta: probability, in (0, 1).
        view: against whom the guarantee holds; one of `VIEWS`.
        unit: "client", "record" or "person".
        relation: adjacency, how neighbouring data sets differ in one unit: "add_or_remove", "replace_one" or
            "zero_out".
        event: what was composed: rounds, noise, multiplier and sampling of each release; where kinds of unit differ, of
            the one that costs most at `delta`, and it says so.
        accountant: the accountant whose epsilon is smallest: "PLD", "RDP" or "none".
        bound: on which side of the truth the number lies, and why.
        assumptions: what must hold for the number to be true; if epsilon is infinite, why.
        epsilons: accountant -> its epsilon, for accountants that cover this noise and sampling; as `event`, of the kind
            of unit that costs most, and so not too low for any.
        basis: "constructed" if the releases were read off the round that runs, "declared" if somebody wrote them down.
        compositions: what is proved of each kind of unit, as far as these differ; empty if the certificate was read
            from a file of an older version. The profile, and all that is taken from it, is the largest of theirs at
            every point.
        of_clients: certificates of each client's records, [clients], if `certify` was asked for them. This one is of
            all of them; they differ where clients' sizes are public.
        of_groups: name -> the certificate of a unit of that public group, where units are in groups that are drawn, or
            count, differently. This one is of all of them: its epsilon is the largest, and its profile theirs.
        programs: digests of the rounds that it was read off, of each part of the sampler; (): it was declared. Those of
            a run are `History.programs`. They are of one version of JAX.
        version: of how it is written.
        doors: what from outside `fedpriv.proof` was used, each as "door: class", such as a noise, or draws, of a
            feature's or somebody's own; (): nothing, or the file is of an older version.
    """

    epsilon: float
    delta: float
    view: str
    unit: str
    relation: str
    event: str
    accountant: str
    bound: str
    assumptions: tuple[str, ...]
    epsilons: dict[str, float] = field(default_factory=dict)
    basis: str = "declared"
    compositions: tuple[Composition, ...] = field(
        default=(), compare=False, repr=False, metadata=as_json()
    )
    of_clients: tuple[Certificate, ...] = field(default=(), compare=False, repr=False)
    of_groups: Mapping[str, Certificate] = field(default_factory=dict, compare=False, repr=False)
    programs: tuple[str, ...] = field(default=(), compare=False, repr=False, metadata=as_json())
    version: int = VERSION
    doors: tuple[str, ...] = field(default=(), compare=False, repr=False, metadata=as_json())

    def __post_init__(self) -> None:
        known = self.version == VERSION
        require(known, "version", self.version, f"this version of fedpriv reads {VERSION}")

    def to_json(self) -> str:
        """All that a check of the numbers needs, as a `summary.json` has it; without `of_clients` and `of_groups`."""
        return json.dumps(plain(self))

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """What `to_json` wrote.

        Raises:
            ValueError: it is none; says what of it.
        """
        return read_certificate(text)

    def profile(self) -> PrivacyProfile:
        """The proved epsilon at every delta, of every unit; that of `delta` is `epsilon`.

        Raises:
            ValueError: the certificate was read from a file of an older version, which lacks what was composed.
        """
        if not self.compositions:
            raise ValueError(
                "certificate: read from a file of an older version; certify again for its profile"
            )
        return profile_of(self.compositions, self.delta)

    def dp_event(self) -> Event:
        """The event of dp-accounting, and which of its accountants computes it, to check the number.

        Where a unit is replaced, the event is as its RDP accountant reads it; the PLD accountant doubles the distance
        once more. Neither knows `assumptions`.

        Raises:
            ValueError: as `profile`; units of several kinds, of which no event is; dp-accounting has no event for the
                sampling, or for what the view knows of it.
        """
        if not self.compositions:
            raise ValueError(
                "certificate: read from a file of an older version; certify again for its event"
            )
        remedy = (
            "give that of each group, certificate.of_groups[name].dp_event()"
            if self.of_groups
            else "give that of each, fp.trace_round(...).certify(..., kind=kind).dp_event()"
        )
        (composition, *others) = self.compositions
        if others:
            raise ValueError(
                f"certificate: of {len(self.compositions)} kinds of unit, and an event is of one; {remedy}"
            )
        try:
            return event(composition.pair, composition.relation)
        except NoEventError as why:
            under = composition.relation.replace("_", "-")
            raise ValueError(
                f"certificate: dp-accounting has no event for {self.event}, under {under} adjacency: {why}; check it "
                "with fp.verify(certificate.to_json())"
            ) from None

    def operational_numbers(self) -> OperationalNumbers:
        """How well an attacker with this view can do at best.

        Raises:
            ValueError: as `profile`.
        """
        return operational_numbers(self.profile())

    def in_words(self) -> str:
        """What the certificate means, in one sentence.

        Raises:
            ValueError: as `profile`.
        """
        return self.operational_numbers().in_words(self.unit, self.view, self.relation)

    def not_covered(self, names: Collection[str], chosen: str = "the last round") -> Certificate:
        """This certificate where private numbers chose what is released: nothing is guaranteed, and it says why.

        Args:
            names: of these numbers, such as `History.not_covered`; without any, the certificate stays as it is.
            chosen: what they chose.
        """
        require(not isinstance(names, str), "not_covered", names, "give several names, ('loss',)")
        if not names:
            return self
        why = f"{NOT_COVERED}{chosen} was chosen by {', '.join(names)}"
        held = [text for text in self.assumptions if text != NOT_RELEASED]
        return replace(
            self,
            epsilon=math.inf,
            accountant="none",
            bound="no finite bound",
            assumptions=tuple(dict.fromkeys([why, *held])),
            epsilons={},
            compositions=tuple(Composition(SEEN, each.relation) for each in self.compositions),
            of_clients=tuple(each.not_covered(names, chosen) for each in self.of_clients),
            of_groups={n: own.not_covered(names, chosen) for n, own in self.of_groups.items()},
        )

    def __repr__(self) -> str:
        return in_a_line(f"Certificate({_headline(self, f'certified ({self.basis})')})")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card_of(self).html()

    def __str__(self) -> str:
        headline = _headline(self, f"certified ({self.basis})")
        why = f"; {self.why_infinite()}" if math.isinf(self.epsilon) else ""
        groups = ", ".join(f"{name} {own.epsilon:.4g}" for name, own in self.of_groups.items())
        by_group = f"; epsilon by group: {groups}" if groups else ""
        return f"{headline}, {self.accountant}; {self.event}{by_group}{why}"

    def why_infinite(self) -> str:
        """Why nothing is guaranteed, in words; only where epsilon is infinite."""
        reasons = ("not private: ", NOT_COVERED)
        bare = [text for text in self.assumptions if text.startswith(reasons)]
        if any(text.startswith(f"not private: {NO_NOISE}") for text in bare):
            bare.append("noise that a round adds itself does not count; give it as the mechanism")
        return "; ".join(bare or self.assumptions[:1])


def card_of(certificate: Certificate) -> Card:
    """A certificate's epsilon with all that this needs beside it; what was composed and assumed is folded."""
    rows = [
        *_card_rows(certificate),
        ("basis", _BASIS.get(certificate.basis, certificate.basis)),
    ]
    if math.isinf(certificate.epsilon):
        rows.append(("nothing is guaranteed", certificate.why_infinite()))
    rows += [("accountant", certificate.accountant)] * math.isfinite(certificate.epsilon)
    rows += [(f"ε of {name}", f"{own.epsilon:.4g}") for name, own in certificate.of_groups.items()]
    if own := [each.epsilon for each in certificate.of_clients]:
        rows.append(("ε by client", f"{min(own):.4g} to {max(own):.4g}"))
    by = [f"{name}: ε = {epsilon:.4g}" for name, epsilon in certificate.epsilons.items()]
    folded = [Folded("event", [certificate.event, f"bound: {certificate.bound}", *by])]
    if certificate.doors:
        folded.append(
            Folded(
                f"doors: what is from outside fedpriv.proof ({len(certificate.doors)})",
                certificate.doors,
            )
        )
    folded.append(Folded(f"assumptions ({len(certificate.assumptions)})", certificate.assumptions))
    return Card("Certificate", _title(certificate), rows, folded=folded)


def read_certificate(text: str) -> Certificate:
    """As `Certificate.from_json`."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"certificate: {shown(text)}; give the text of one, JSON ({error})"
        ) from None
    try:
        found = typed(Certificate, value)
        checked("delta", found.delta, Probability)
        checked("view", found.view, View)
        require(found.epsilon >= 0, "epsilon", found.epsilon, "give one from 0 on")
        return found
    except ValueError as error:
        raise ValueError(f"certificate: {error}; give what certificate.to_json() wrote") from None


@dataclass(frozen=True)
class Claim:
    """A paper's own (epsilon, delta), with its source and whether it holds for the run at hand.

    Attributes:
        epsilon: privacy loss by the paper's formula, in nats.
        delta: probability; 0 if the paper claims pure privacy, else whatever the paper's formula gives.
        unit: "client" or "record".
        view: against whom the formula is taken to hold; one of `VIEWS`.
        relation: the adjacency that the paper states.
        source: citation of the formula.
        reproduced: whether the formula, as computed here, gives the epsilons that the paper prints.
        sound: whether epsilon is an upper bound for this view, relation and sampling.
        reasons: why epsilon is or is not such a bound, in words.
        status: "claimed" for this run, or "extrapolation" to a run that was not made.
    """

    epsilon: float
    delta: float
    unit: str
    view: str
    relation: str
    source: str
    reproduced: bool
    sound: bool
    reasons: tuple[str, ...]
    status: str = "claimed"

    def __repr__(self) -> str:
        return in_a_line(f"Claim({_headline(self, self.status)})")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        verdict = "holds for this run" if self.sound else "not proved for this run"
        rows = [*_card_rows(self), ("basis", f"{self.status}, {verdict}"), ("source", self.source)]
        folded = [Folded(f"reasons ({len(self.reasons)})", self.reasons)]
        return Card("Claim", _title(self), rows, folded=folded).html()

    def __str__(self) -> str:
        verdict = "holds for this run" if self.sound else "not proved for this run"
        return f"{_headline(self, self.status)}, {self.source}; {verdict}"


def _title(number: Certificate | Claim) -> str:
    epsilon = "∞" if math.isinf(number.epsilon) else f"{number.epsilon:.4g}"
    return f"ε = {epsilon} at δ = {number.delta:.3g}"


def _card_rows(number: Certificate | Claim) -> list[tuple[str, str]]:
    """Unit, view and adjacency."""
    return [
        ("unit", number.unit),
        ("view", f"{number.view} ({SEES[number.view]})"),
        ("adjacency", number.relation.replace("_", "-")),
    ]


def _headline(number: Certificate | Claim, status: str) -> str:
    """Epsilon, delta, status, unit, view and adjacency, in one line."""
    return (
        f"epsilon {number.epsilon:.4g} at delta {number.delta:.3g} {status}: {number.unit}-level, "
        f"{number.view} ({SEES[number.view]}), {number.relation.replace('_', '-')} adjacency"
    )
