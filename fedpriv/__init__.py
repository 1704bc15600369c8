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
from fedpriv.algorithms._shared import client_releases
from fedpriv.algorithms.adaptive_clipping import adaptive_fed_avg
from fedpriv.algorithms.dp_scaffold import dp_scaffold, dp_scaffold_steps, record_fed_avg
from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.algorithms.fed_avg import dp_fed_avg, fed_avg, fed_sgd
from fedpriv.algorithms.fed_smp import fed_avg_sparse, fed_smp, select_rand_k, select_top_k
from fedpriv.algorithms.jopeq import jopeq
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.algorithms.msp import msp_fl, mspdq_fl
from fedpriv.algorithms.wavelet import dp_fed_avg_wav, dp_sgd_wav, wavelet_mechanism
from fedpriv.checkpoint import Checkpoints
from fedpriv.client_files import write_clients
from fedpriv.codecs import Codec, Wire, fixed_interval, qsgd
from fedpriv.cohort import (
    Cohort,
    Sampler,
    Shard,
    capacity_for,
    everyone,
    fixed_size,
    for_each_client,
    poisson,
    put,
    take,
    with_replacement,
)
from fedpriv.contract import check_algorithm
from fedpriv.dynamic import Dynamic, dynamic
from fedpriv.federation import Federation
from fedpriv.history import DivergedError, Evaluation, History
from fedpriv.local import epochs, full_batch, mean_grad, steps, train
from fedpriv.mechanisms import Mechanism, gaussian, laplace, mechanism
from fedpriv.per_example import MedianClipping, PerExample, per_example, private_mean
from fedpriv.per_example_dense import per_example_dense
from fedpriv.privacy import (
    VIEWS,
    Certificate,
    Claim,
    Release,
    calibrate_noise,
    calibrate_rounds,
    certify,
    nothing_hidden,
)
from fedpriv.private_steps import LocalSteps
from fedpriv.proxy import median_norm, median_update_norm
from fedpriv.records import subsets
from fedpriv.simulate import simulate
from fedpriv.strategy import Strategy, split_cpu
from fedpriv.streaming import StreamedFederation
from fedpriv.types import Algorithm, ModelState
from fedpriv.vectors import dimension

__all__ = [
    "VIEWS",
    "Algorithm",
    "Certificate",
    "Checkpoints",
    "Claim",
    "Codec",
    "Cohort",
    "DivergedError",
    "Dynamic",
    "Evaluation",
    "Federation",
    "History",
    "LocalSteps",
    "Mechanism",
    "MedianClipping",
    "ModelState",
    "PerExample",
    "Release",
    "Sampler",
    "Shard",
    "Strategy",
    "StreamedFederation",
    "Wire",
    "adaptive_fed_avg",
    "attacks",
    "calibrate_noise",
    "calibrate_rounds",
    "capacity_for",
    "certify",
    "check_algorithm",
    "client_releases",
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
    "for_each_client",
    "full_batch",
    "gaussian",
    "jopeq",
    "laplace",
    "ldp_fed_avg",
    "mean_grad",
    "measures",
    "mechanism",
    "median_norm",
    "median_update_norm",
    "models",
    "msp_fl",
    "mspdq_fl",
    "noise",
    "nothing_hidden",
    "partition",
    "per_example",
    "per_example_dense",
    "poisson",
    "private_mean",
    "put",
    "qsgd",
    "quantization",
    "record_fed_avg",
    "select_rand_k",
    "select_top_k",
    "simulate",
    "split_cpu",
    "splitting",
    "steps",
    "subsets",
    "take",
    "train",
    "wavelet",
    "wavelet_mechanism",
    "with_replacement",
    "write_clients",
]
