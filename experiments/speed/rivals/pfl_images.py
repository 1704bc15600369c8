"""Workload A in pfl (PyTorch): its FedAvg with its central Gaussian mechanism."""

from __future__ import annotations

from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.hyperparam import NNTrainHyperParams
from pfl.privacy.gaussian_mechanism import GaussianMechanism

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import images
from experiments.speed.rivals.pfl_simulation import NEVER, rounds
from experiments.speed.rivals.torch_common import cnn, on_device, prepare, size


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    network = cnn(workload.side, workload.filters, workload.hidden)
    x, y = on_device(images(workload, settings.clients, workload.examples), settings)
    one_round = rounds(
        algorithm=FederatedAveraging(),
        params=NNAlgorithmParams(
            central_num_iterations=0,
            evaluation_frequency=NEVER,
            train_cohort_size=settings.clients,
            val_cohort_size=None,
        ),
        training=NNTrainHyperParams(
            local_batch_size=workload.examples,
            local_num_epochs=workload.epochs,
            local_learning_rate=workload.rate,
        ),
        network=network,
        x=x,
        y=y,
        sampling="minimize_reuse",
        momentum=workload.momentum,
        privacy=GaussianMechanism(workload.clip_norm, workload.noise_multiplier),
    )
    return Baseline({"nchw": one_round}, size(network), ("pfl", "torch"))
