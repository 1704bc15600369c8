"""Workload B in pfl (PyTorch): its SCAFFOLD, which comes nearest to DP-SCAFFOLD."""

from __future__ import annotations

from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from torch import nn

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import records
from experiments.speed.rivals.pfl_simulation import NEVER, rounds
from experiments.speed.rivals.torch_common import on_device, prepare, size

NOTES = (
    "noise on the sum of whole clients' updates, no gradient of a record is clipped: less work than ours",
    "batches are the same slices of the records in each epoch, clients are drawn with replacement",
    "pfl 0.6.0 inverts the sign of SCAFFOLD's correction: compare speed, not results",
)


def build(settings: Settings) -> Baseline:
    """`steps` are as many passes over the records as make that number of batches, rounded up."""
    prepare(settings)
    workload = settings.workload
    everyone = 5 * settings.clients
    network = nn.Linear(workload.features, workload.classes)
    x, y = on_device(records(workload, everyone), settings)
    per_epoch = -(-workload.records // workload.batch)
    one_round = rounds(
        algorithm=SCAFFOLD(),
        params=SCAFFOLDParams(
            central_num_iterations=0,
            evaluation_frequency=NEVER,
            train_cohort_size=settings.clients,
            val_cohort_size=None,
            population=everyone,
            use_gradient_as_control_variate=False,
            user_state_storage=InMemoryUserStateStorage(),
        ),
        training=NNTrainHyperParams(
            local_batch_size=workload.batch,
            local_num_epochs=-(-workload.steps // per_epoch),
            local_learning_rate=workload.rate,
        ),
        network=network,
        x=x,
        y=y,
        sampling="random",
        momentum=0.0,
        privacy=GaussianMechanism(workload.clip_norm, 1.0),
    )
    return Baseline({"scaffold": one_round}, size(network), ("pfl", "torch"), NOTES)
