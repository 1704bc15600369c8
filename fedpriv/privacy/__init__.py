"""Privacy ledger: from what a view sees (`Seen`) to what is proved of it (`Certificate`).

Every epsilon says what it protects, from whom, under which sampling and adjacency, and whether it
is proved. The numbers of papers (`Claim`) are printed beside the certified ones and never feed
them. dp-accounting is imported on first use only.
"""

import importlib
from typing import TYPE_CHECKING

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
from fedpriv.privacy.seen import SEES, UNITS, VIEWS, Seen
from fedpriv.privacy.whitening import joint_multiplier, whitened_multiplier

__all__ = [
    "SEES",
    "UNITS",
    "VIEWS",
    "Allocation",
    "Case",
    "Claim",
    "CyclicPoisson",
    "Dropping",
    "Everyone",
    "FixedSize",
    "MinimumSeparation",
    "OperationalNumbers",
    "Poisson",
    "PrivacyProfile",
    "RandomAllocation",
    "Sampling",
    "Seen",
    "Who",
    "Why",
    "WithReplacement",
    "certify_choice",
    "certify_seen",
    "declared",
    "joint_multiplier",
    "whitened_multiplier",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        table = importlib.import_module(
            "fedpriv.retired"
        )  # of the whole front door, above this package
        return table.retired(f"privacy.{name}")
