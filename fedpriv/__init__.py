"""fedpriv: a JAX-native laboratory for differentially private federated learning."""

from fedpriv import (
    attacks,
    clipping,
    consensus,
    datasets,
    distributed,
    measures,
    models,
    noise,
    partition,
    quantization,
    splitting,
    wavelet,
)
from fedpriv.algorithm import Algorithm, ModelState, start
from fedpriv.algorithms.adaptive_clipping import adaptive_fed_avg
from fedpriv.algorithms.dp_scaffold import dp_scaffold, dp_scaffold_steps, record_fed_avg
from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.algorithms.fed_avg import dp_fed_avg, fed_avg, fed_sgd
from fedpriv.algorithms.fed_smp import fed_avg_sparse, fed_smp, select_rand_k, select_top_k
from fedpriv.algorithms.jopeq import jopeq
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.algorithms.msp import msp_fl, mspdq_fl
from fedpriv.algorithms.wavelet import dp_fed_avg_wav, dp_sgd_wav, wavelet_mechanism
from fedpriv.calibrate import calibrate_noise, calibrate_rounds
from fedpriv.certificate import certify, looked_at
from fedpriv.checkpoint import Checkpoints
from fedpriv.client_files import write_clients
from fedpriv.codecs import Codec, Wire, fixed_interval, qsgd
from fedpriv.cohort import Cohort, Sent, Summed
from fedpriv.contract import check_algorithm
from fedpriv.dynamic import Dynamic, dynamic
from fedpriv.federation import Federation
from fedpriv.history import DivergedError, Evaluation, History
from fedpriv.local import epochs, full_batch, mean_grad, steps, train
from fedpriv.mechanisms import (
    ALREADY_PRIVATE,
    UNPROTECTED,
    Mechanism,
    gaussian,
    joint,
    laplace,
    mechanism,
    unprotected,
)
from fedpriv.per_example import MedianClipping, PerExample, per_example, private_mean
from fedpriv.per_example_dense import per_example_dense
from fedpriv.privacy import VIEWS, Certificate, Claim, Release
from fedpriv.private_steps import LocalSteps
from fedpriv.proxy import median_norm, median_update_norm
from fedpriv.records import subsets
from fedpriv.rounds import one_round
from fedpriv.samplers import (
    Draw,
    Opening,
    Sampler,
    capacity_for,
    everyone,
    fixed_size,
    poisson,
    with_replacement,
)
from fedpriv.shard import Shard
from fedpriv.simulate import simulate
from fedpriv.strategy import Strategy, split_cpu
from fedpriv.streaming import StreamedFederation
from fedpriv.traced import LeakError
from fedpriv.vectors import dimension

__all__ = [
    "ALREADY_PRIVATE",
    "UNPROTECTED",
    "VIEWS",
    "Algorithm",
    "Certificate",
    "Checkpoints",
    "Claim",
    "Codec",
    "Cohort",
    "DivergedError",
    "Draw",
    "Dynamic",
    "Evaluation",
    "Federation",
    "History",
    "LeakError",
    "LocalSteps",
    "Mechanism",
    "MedianClipping",
    "ModelState",
    "Opening",
    "PerExample",
    "Release",
    "Sampler",
    "Sent",
    "Shard",
    "Strategy",
    "StreamedFederation",
    "Summed",
    "Wire",
    "adaptive_fed_avg",
    "attacks",
    "calibrate_noise",
    "calibrate_rounds",
    "capacity_for",
    "certify",
    "check_algorithm",
    "clipping",
    "consensus",
    "datasets",
    "dimension",
    "distributed",
    "dp_fed_avg",
    "dp_fed_avg_wav",
    "dp_scaffold",
    "dp_scaffold_steps",
    "dp_sgd",
    "dp_sgd_wav",
    "dynamic",
    "epochs",
    "everyone",
    "fed_avg",
    "fed_avg_sparse",
    "fed_sgd",
    "fed_smp",
    "fixed_interval",
    "fixed_size",
    "full_batch",
    "gaussian",
    "joint",
    "jopeq",
    "laplace",
    "ldp_fed_avg",
    "looked_at",
    "mean_grad",
    "measures",
    "mechanism",
    "median_norm",
    "median_update_norm",
    "models",
    "msp_fl",
    "mspdq_fl",
    "noise",
    "one_round",
    "partition",
    "per_example",
    "per_example_dense",
    "poisson",
    "private_mean",
    "qsgd",
    "quantization",
    "record_fed_avg",
    "select_rand_k",
    "select_top_k",
    "simulate",
    "split_cpu",
    "splitting",
    "start",
    "steps",
    "subsets",
    "train",
    "unprotected",
    "wavelet",
    "wavelet_mechanism",
    "with_replacement",
    "write_clients",
]
