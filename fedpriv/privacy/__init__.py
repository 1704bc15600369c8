"""Privacy ledger: from what a view sees (`Release`) to what is proved of it (`Certificate`).

Every epsilon says what it protects, from whom, under which sampling and adjacency, and whether it
is proved. The numbers of papers (`Claim`) are printed beside the certified ones and never feed
them. dp-accounting is imported on first use only.
"""

from fedpriv.privacy.certificate import Certificate, Claim
from fedpriv.privacy.certify import certify_choice, certify_releases
from fedpriv.privacy.claims import (
    dp_scaffold_claim,
    fed_smp_claim,
    haar_multiplier,
    jopeq_claim,
    msp_laplace_claim,
    mspdq_claim,
    noise_cohort_claim,
    t_epsilon,
    wavelet_claim,
)
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
    "Certificate",
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
    "dp_scaffold_claim",
    "fed_smp_claim",
    "haar_multiplier",
    "joint_multiplier",
    "jopeq_claim",
    "msp_laplace_claim",
    "mspdq_claim",
    "noise_cohort_claim",
    "t_epsilon",
    "wavelet_claim",
    "whitened_multiplier",
]
