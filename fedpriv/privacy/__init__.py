"""Privacy ledger: from what a view sees (`Release`) to what is proved of it (`Certificate`).

Every epsilon says what it protects, from whom, under which sampling and adjacency, and whether it
is proved. The numbers of papers (`Claim`) are printed beside the certified ones and never feed
them. dp-accounting is imported on first use only.
"""

import importlib
from typing import TYPE_CHECKING

from fedpriv.privacy.certificate import Certificate as Certificate
from fedpriv.privacy.certificate import Claim
from fedpriv.privacy.certify import certify_choice, certify_releases
from fedpriv.privacy.operational import OperationalNumbers
from fedpriv.privacy.profile import PrivacyProfile
from fedpriv.privacy.release import SEES, UNITS, VIEWS, Release
from fedpriv.privacy.sampling import (
    Allocation,
    CyclicPoisson,
    DrawCase,
    Dropping,
    Everyone,
    FixedSize,
    MinimumSeparation,
    Poisson,
    RandomAllocation,
    Sampling,
    WithReplacement,
)
from fedpriv.privacy.whitening import joint_multiplier, whitened_multiplier

__all__ = [
    "SEES",
    "UNITS",
    "VIEWS",
    "Allocation",
    "Claim",
    "CyclicPoisson",
    "DrawCase",
    "Dropping",
    "Everyone",
    "FixedSize",
    "MinimumSeparation",
    "OperationalNumbers",
    "Poisson",
    "PrivacyProfile",
    "RandomAllocation",
    "Release",
    "Sampling",
    "WithReplacement",
    "certify_choice",
    "certify_releases",
    "joint_multiplier",
    "whitened_multiplier",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        table = importlib.import_module(
            "fedpriv.retired"
        )  # of the whole front door, above this package
        return table.retired(f"privacy.{name}")
