"""fedpriv: a JAX-native laboratory for differentially private federated learning."""

from typing import TYPE_CHECKING

from fedpriv import attacks, models, papers, privacy, statistics, types
from fedpriv.algorithms import fed_opt
from fedpriv.algorithms.adaptive_clipping import adaptive_fed_avg
from fedpriv.algorithms.alternating import fed_avg_alternating
from fedpriv.algorithms.dp_scaffold import dp_scaffold
from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.algorithms.fed_avg import dp_fed_avg, fed_avg, fed_sgd
from fedpriv.algorithms.fed_buff import buffered_fed_avg
from fedpriv.algorithms.fed_prox import proximal
from fedpriv.algorithms.fed_smp import fed_smp
from fedpriv.algorithms.personal import ditto, fed_per, fed_rep
from fedpriv.certification.calibration import calibrate_noise, calibrate_rounds, calibrate_together
from fedpriv.certification.certificate import certify, trace_round
from fedpriv.certification.group_budgets import calibrate_groups
from fedpriv.certification.integer_budgets import calibrate_integers
from fedpriv.certification.together import certify_together
from fedpriv.compression.codecs import qsgd, top_k
from fedpriv.core.random_losses import with_keys
from fedpriv.core.trees import dimension
from fedpriv.data import datasets, partition
from fedpriv.data.client_files import write_clients
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices import distributed
from fedpriv.devices.layout import Strategy
from fedpriv.engine import measures
from fedpriv.engine.checkpoint import Checkpoints
from fedpriv.engine.compilation_cache import cache_programs
from fedpriv.engine.history import DivergedError, History
from fedpriv.engine.secret_seeds import secret_seed
from fedpriv.engine.simulate import simulate
from fedpriv.mechanisms import clipping, noise, noise_matrices
from fedpriv.mechanisms.correlated import correlated
from fedpriv.mechanisms.integers import discrete_gaussian, skellam
from fedpriv.mechanisms.mechanisms import (
    ALREADY_PRIVATE,
    Mechanism,
    gaussian,
    joint,
    laplace,
    mechanism,
    unprotected,
)
from fedpriv.mechanisms.per_example import per_example
from fedpriv.mechanisms.schedules import dynamic
from fedpriv.pairs.numbers import verify
from fedpriv.privacy import Certificate
from fedpriv.retired import retired
from fedpriv.rounds import delays
from fedpriv.rounds.algorithm import Algorithm, ModelState, start
from fedpriv.rounds.buffered import buffered
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.grouped import grouped
from fedpriv.rounds.late_samplers import FreeClients
from fedpriv.rounds.local_dp_sgd import LocalSteps, straggling
from fedpriv.rounds.local_training import (
    epochs,
    full_batch,
    mean_grad,
    random_batches,
    train_locally,
)
from fedpriv.rounds.one_round import one_round
from fedpriv.rounds.participation_samplers import (
    cyclic_poisson,
    fixed_order,
    random_allocation,
    random_availability,
    shuffled_blocks,
)
from fedpriv.rounds.person_sampler import by_person
from fedpriv.rounds.privacy_labels import LeakError
from fedpriv.rounds.record_samplers import PublicGroups, PublicSizes
from fedpriv.rounds.samplers import (
    Opening,
    Sampler,
    capacity_for,
    dropping,
    everyone,
    fixed_size,
    poisson,
    with_replacement,
)
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.weighting import ByExamples, ByPublicSizes
from fedpriv.statistics.normalised import normalised
from fedpriv.testing.check_algorithm import check_algorithm

__version__ = "0.3.0"

__all__ = [
    "ALREADY_PRIVATE",
    "Algorithm",
    "ByExamples",
    "ByPublicSizes",
    "Certificate",
    "Checkpoints",
    "Cohort",
    "DivergedError",
    "Federation",
    "FreeClients",
    "History",
    "LeakError",
    "LocalSteps",
    "Mechanism",
    "ModelState",
    "Opening",
    "PublicGroups",
    "PublicSizes",
    "Sampler",
    "Sent",
    "Shard",
    "Strategy",
    "StreamedFederation",
    "adaptive_fed_avg",
    "attacks",
    "buffered",
    "buffered_fed_avg",
    "by_person",
    "cache_programs",
    "calibrate_groups",
    "calibrate_integers",
    "calibrate_noise",
    "calibrate_rounds",
    "calibrate_together",
    "capacity_for",
    "certify",
    "certify_together",
    "check_algorithm",
    "clipping",
    "correlated",
    "cyclic_poisson",
    "datasets",
    "delays",
    "dimension",
    "discrete_gaussian",
    "distributed",
    "ditto",
    "dp_fed_avg",
    "dp_scaffold",
    "dp_sgd",
    "dropping",
    "dynamic",
    "epochs",
    "everyone",
    "fed_avg",
    "fed_avg_alternating",
    "fed_opt",
    "fed_per",
    "fed_rep",
    "fed_sgd",
    "fed_smp",
    "fixed_order",
    "fixed_size",
    "full_batch",
    "gaussian",
    "grouped",
    "joint",
    "laplace",
    "mean_grad",
    "measures",
    "mechanism",
    "models",
    "noise",
    "noise_matrices",
    "normalised",
    "one_round",
    "papers",
    "partition",
    "per_example",
    "poisson",
    "privacy",
    "proximal",
    "qsgd",
    "random_allocation",
    "random_availability",
    "random_batches",
    "secret_seed",
    "shuffled_blocks",
    "simulate",
    "skellam",
    "start",
    "statistics",
    "straggling",
    "top_k",
    "trace_round",
    "train_locally",
    "types",
    "unprotected",
    "verify",
    "with_keys",
    "with_replacement",
    "write_clients",
]

if not TYPE_CHECKING:  # a checker of types sees the names that stay, and no others

    def __getattr__(name: str) -> object:
        return retired(name)
