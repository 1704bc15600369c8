"""What belongs to one of the papers alone: its algorithms, the parts of their messages, its claim.

Fed-SMP (arXiv:2202.07178), DP-SCAFFOLD (2111.09278), DP-SGD-WAV and DP-FedAvg-WAV (2503.21154), MSPDQ-FL (2405.16058)
with what it is compared with, FedAvg + LDP and JoPEQ (2208.10888).
"""

from fedpriv.algorithms import consensus, splitting
from fedpriv.algorithms.fed_smp import fed_avg_sparse
from fedpriv.algorithms.jopeq import jopeq
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.algorithms.msp import msp_fl, mspdq_fl
from fedpriv.compression import quantization

__all__ = [
    "consensus",
    "fed_avg_sparse",
    "jopeq",
    "ldp_fed_avg",
    "msp_fl",
    "mspdq_fl",
    "quantization",
    "splitting",
]
