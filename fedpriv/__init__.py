"""fedpriv: a JAX-native laboratory for differentially private federated learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedpriv.core.lazy_names import imported_when_asked

if TYPE_CHECKING:
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
    from fedpriv.certification.calibration import (
        calibrate_noise,
        calibrate_rounds,
        calibrate_together,
    )
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
    from fedpriv.proof.labels import LeakError
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

_MODULES = (
    "fedpriv.attacks",
    "fedpriv.models",
    "fedpriv.papers",
    "fedpriv.privacy",
    "fedpriv.statistics",
    "fedpriv.types",
    "fedpriv.algorithms.fed_opt",
    "fedpriv.data.datasets",
    "fedpriv.data.partition",
    "fedpriv.devices.distributed",
    "fedpriv.engine.measures",
    "fedpriv.mechanisms.clipping",
    "fedpriv.mechanisms.noise",
    "fedpriv.mechanisms.noise_matrices",
    "fedpriv.rounds.delays",
)
_HOMES = {
    "fedpriv.algorithms.adaptive_clipping": "adaptive_fed_avg",
    "fedpriv.algorithms.alternating": "fed_avg_alternating",
    "fedpriv.algorithms.dp_scaffold": "dp_scaffold",
    "fedpriv.algorithms.dp_sgd": "dp_sgd",
    "fedpriv.algorithms.fed_avg": "dp_fed_avg fed_avg fed_sgd",
    "fedpriv.algorithms.fed_buff": "buffered_fed_avg",
    "fedpriv.algorithms.fed_prox": "proximal",
    "fedpriv.algorithms.fed_smp": "fed_smp",
    "fedpriv.algorithms.personal": "ditto fed_per fed_rep",
    "fedpriv.certification.calibration": "calibrate_noise calibrate_rounds calibrate_together",
    "fedpriv.certification.certificate": "certify trace_round",
    "fedpriv.certification.group_budgets": "calibrate_groups",
    "fedpriv.certification.integer_budgets": "calibrate_integers",
    "fedpriv.certification.together": "certify_together",
    "fedpriv.compression.codecs": "qsgd top_k",
    "fedpriv.core.random_losses": "with_keys",
    "fedpriv.core.trees": "dimension",
    "fedpriv.data.client_files": "write_clients",
    "fedpriv.data.federation": "Federation",
    "fedpriv.data.streaming": "StreamedFederation",
    "fedpriv.devices.layout": "Strategy",
    "fedpriv.engine.checkpoint": "Checkpoints",
    "fedpriv.engine.compilation_cache": "cache_programs",
    "fedpriv.engine.history": "DivergedError History",
    "fedpriv.engine.secret_seeds": "secret_seed",
    "fedpriv.engine.simulate": "simulate",
    "fedpriv.mechanisms.correlated": "correlated",
    "fedpriv.mechanisms.integers": "discrete_gaussian skellam",
    "fedpriv.mechanisms.mechanisms": "ALREADY_PRIVATE Mechanism gaussian joint laplace mechanism unprotected",
    "fedpriv.mechanisms.per_example": "per_example",
    "fedpriv.mechanisms.schedules": "dynamic",
    "fedpriv.pairs.numbers": "verify",
    "fedpriv.privacy": "Certificate",
    "fedpriv.proof.labels": "LeakError",
    "fedpriv.rounds.algorithm": "Algorithm ModelState start",
    "fedpriv.rounds.buffered": "buffered",
    "fedpriv.rounds.client_shard": "Shard",
    "fedpriv.rounds.cohort": "Cohort",
    "fedpriv.rounds.grouped": "grouped",
    "fedpriv.rounds.late_samplers": "FreeClients",
    "fedpriv.rounds.local_dp_sgd": "LocalSteps straggling",
    "fedpriv.rounds.local_training": "epochs full_batch mean_grad random_batches train_locally",
    "fedpriv.rounds.one_round": "one_round",
    "fedpriv.rounds.participation_samplers": "cyclic_poisson fixed_order random_allocation "
    "random_availability shuffled_blocks",
    "fedpriv.rounds.person_sampler": "by_person",
    "fedpriv.rounds.record_samplers": "PublicGroups PublicSizes",
    "fedpriv.rounds.samplers": "Opening Sampler capacity_for dropping everyone fixed_size poisson with_replacement",
    "fedpriv.rounds.sent": "Sent",
    "fedpriv.rounds.weighting": "ByExamples ByPublicSizes",
    "fedpriv.statistics.normalised": "normalised",
    "fedpriv.testing.check_algorithm": "check_algorithm",
}
__all__ = sorted(
    [module.rpartition(".")[2] for module in _MODULES]
    + [name for names in _HOMES.values() for name in names.split()]
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a checker of types sees the names that stay, and no others

    def _retired(name: str) -> Any:
        return import_module("fedpriv.retired").retired(name)

    __getattr__ = imported_when_asked(__name__, _HOMES, _retired, _MODULES)
