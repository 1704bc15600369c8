"""Workload A in pfl (PyTorch): its FedAvg with its central Gaussian mechanism."""

from __future__ import annotations

import torch
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.hyperparam import NNTrainHyperParams
from pfl.privacy.gaussian_mechanism import GaussianMechanism

from experiments.baselines.child import Baseline, Settings
from experiments.baselines.pfl_simulation import NEVER, rounds
from experiments.baselines.torch_device import prepare
from experiments.baselines.torch_network import cnn, size


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    network = cnn(workload.side, workload.filters, workload.hidden)
    shape = (settings.clients, workload.examples, 1, workload.side, workload.side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
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
        x=images,
        y=torch.randint(0, 10, shape[:2]),
        sampling="minimize_reuse",
        momentum=workload.momentum,
        privacy=GaussianMechanism(workload.clip_norm, workload.noise_multiplier),
    )
    return Baseline({"nchw": one_round}, size(network), ("pfl", "torch"))
