"""What belongs to one of the papers alone: its algorithms, the parts of their messages, what it claims.

- Fed-SMP (R. Hu et al., arXiv:2202.07178): sparsifiers for `fp.fed_smp`, and its training without noise.
- DP-SCAFFOLD (M. Noble et al., arXiv:2111.09278): the median of private norms as a clip norm, for `fp.dp_scaffold`.
- DP-SGD-WAV, DP-FedAvg-WAV (K. Ranaweera et al., arXiv:2503.21154): noise on Haar coefficients, clip norms from public
  data.
- MSPDQ-FL (Y. Wang et al., arXiv:2405.16058): models in two parts, of which clients agree on one by exchanging it; with
  what it is compared with, FedAvg + LDP and JoPEQ (N. Lang et al., arXiv:2208.10888).
"""

from fedpriv.algorithms import consensus, splitting
from fedpriv.algorithms.fed_smp import Sparsifier, fed_avg_sparse, select_rand_k, select_top_k
from fedpriv.algorithms.jopeq import jopeq
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.algorithms.msp import msp_fl, mspdq_fl
from fedpriv.algorithms.public_clip_norm import median_norm, median_update_norm
from fedpriv.algorithms.wavelet import dp_fed_avg_wav, dp_sgd_wav, haar_mechanism
from fedpriv.compression import quantization
from fedpriv.compression.codecs import fixed_interval
from fedpriv.mechanisms import haar
from fedpriv.mechanisms.per_example import MedianClipping
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

__all__ = [
    "MedianClipping",
    "Sparsifier",
    "consensus",
    "dp_fed_avg_wav",
    "dp_scaffold_claim",
    "dp_sgd_wav",
    "fed_avg_sparse",
    "fed_smp_claim",
    "fixed_interval",
    "haar",
    "haar_mechanism",
    "haar_multiplier",
    "jopeq",
    "jopeq_claim",
    "ldp_fed_avg",
    "median_norm",
    "median_update_norm",
    "msp_fl",
    "msp_laplace_claim",
    "mspdq_claim",
    "mspdq_fl",
    "noise_cohort_claim",
    "quantization",
    "select_rand_k",
    "select_top_k",
    "splitting",
    "t_epsilon",
    "wavelet_claim",
]
