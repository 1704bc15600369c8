"""Privacy ledger: from what a view sees (`Release`) to what is proved of it (`Certificate`).

Every epsilon says what it protects, from whom, under which sampling and adjacency, and whether it
is proved. The numbers of papers (`Claim`) are printed beside the certified ones and never feed
them. dp-accounting is imported on first use only.
"""

from fedpriv.privacy.certify import certify
from fedpriv.privacy.claims import fed_smp_claim
from fedpriv.privacy.release import UNITS, VIEWS, Certificate, Claim, Release
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson

__all__ = [
    "UNITS",
    "VIEWS",
    "Certificate",
    "Claim",
    "Everyone",
    "FixedSize",
    "Poisson",
    "Release",
    "certify",
    "fed_smp_claim",
]
