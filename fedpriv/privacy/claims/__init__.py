"""What papers claim, by their own formulas: printed beside a certificate, never feeding it.

One file per paper. A `Claim` says whether the formula gives the paper's printed numbers
(`reproduced`), whether it is proved for the run at hand (`sound`), and why.
"""

from fedpriv.privacy.claims.dp_scaffold_claim import dp_scaffold_claim
from fedpriv.privacy.claims.fed_smp_claim import fed_smp_claim
from fedpriv.privacy.claims.jopeq_claim import jopeq_claim, t_epsilon
from fedpriv.privacy.claims.msp_claim import msp_laplace_claim, mspdq_claim
from fedpriv.privacy.claims.noise_cohort_claim import noise_cohort_claim
from fedpriv.privacy.claims.wavelet_claim import haar_multiplier, wavelet_claim

__all__ = [
    "dp_scaffold_claim",
    "fed_smp_claim",
    "haar_multiplier",
    "jopeq_claim",
    "msp_laplace_claim",
    "mspdq_claim",
    "noise_cohort_claim",
    "t_epsilon",
    "wavelet_claim",
]
