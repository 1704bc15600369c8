"""Privacy ledger: from what a view sees (`Seen`) to what is proved of it (`Certificate`).

Every epsilon says what it protects, from whom, under which sampling and adjacency, and whether it
is proved. The numbers of papers (`Claim`) are printed beside the certified ones and never feed
them. dp-accounting is imported on first use only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedpriv.core.lazy_names import imported_when_asked

if TYPE_CHECKING:
    from fedpriv.privacy.certificate import Certificate as Certificate
    from fedpriv.privacy.certificate import Claim
    from fedpriv.privacy.certify import certify_choice, certify_seen
    from fedpriv.privacy.from_rows import declared
    from fedpriv.privacy.operational import OperationalNumbers
    from fedpriv.privacy.profile import PrivacyProfile
    from fedpriv.privacy.sampling import (
        Allocation,
        Case,
        CyclicPoisson,
        Dropping,
        Everyone,
        FixedSize,
        MinimumSeparation,
        Poisson,
        RandomAllocation,
        Sampling,
        Who,
        Why,
        WithReplacement,
    )
    from fedpriv.privacy.whitening import joint_multiplier, whitened_multiplier
    from fedpriv.proof.seen import SEES, UNITS, VIEWS, Seen

_HOMES = {
    "fedpriv.privacy.certificate": "Certificate Claim",
    "fedpriv.privacy.certify": "certify_choice certify_seen",
    "fedpriv.privacy.from_rows": "declared",
    "fedpriv.privacy.operational": "OperationalNumbers",
    "fedpriv.privacy.profile": "PrivacyProfile",
    "fedpriv.privacy.sampling": "Allocation Case CyclicPoisson Dropping Everyone "
    "FixedSize MinimumSeparation Poisson RandomAllocation Sampling Who Why WithReplacement",
    "fedpriv.privacy.whitening": "joint_multiplier whitened_multiplier",
    "fedpriv.proof.seen": "SEES UNITS VIEWS Seen",
}
__all__ = sorted({n for names in _HOMES.values() for n in names.split()} - {"Certificate"})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a checker of types sees the names that stay, and no others

    def _retired(name: str) -> Any:
        return import_module("fedpriv.retired").retired(f"privacy.{name}")

    __getattr__ = imported_when_asked(__name__, _HOMES, _retired)
