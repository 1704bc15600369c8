"""configs/pfl_cifar10.py in pfl (PyTorch), as pfl-research's benchmarks/image_classification does, without and with DP.

Random pixels. Its script keeps images with their channels last and turns them in front of the first layer, which makes
PyTorch convolve in that layout; and so does this.
"""

from __future__ import annotations

import numpy as np
import torch
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.hyperparam import NNTrainHyperParams
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import NoPrivacy
from torch import Tensor, nn

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.pfl_simulation import NEVER, rounds
from experiments.speed.rivals.torch_common import prepare, size


class ChannelsFirst(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """f32[batch, height, width, channels] -> [batch, channels, height, width]."""
        return x.permute(0, 3, 1, 2)


def network() -> nn.Sequential:
    """`fedpriv.models.DropoutCNN`, from Glorot's uniform weights, without normalisation."""
    layers = nn.Sequential(
        *(ChannelsFirst(), nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


def build(settings: Settings) -> Baseline:
    """The workload has the fields of the config that `experiments.benchmark_cifar10` names."""
    prepare(settings)
    config = settings.workload
    rng = np.random.default_rng(0)
    x = rng.standard_normal((config.clients, config.images, 32, 32, 3), np.float32)
    y = rng.integers(0, 10, (config.clients, config.images))
    noise = GaussianMechanism(config.clip_norm, config.noise_multiplier)
    networks = {"fed_avg": network(), "dp_fed_avg": network()}
    runs = {
        name: rounds(
            algorithm=FederatedAveraging(),
            params=NNAlgorithmParams(
                central_num_iterations=0,
                evaluation_frequency=NEVER,
                train_cohort_size=settings.clients,
                val_cohort_size=None,
            ),
            training=NNTrainHyperParams(
                local_batch_size=config.batch_size,
                local_num_epochs=config.epochs,
                local_learning_rate=config.learning_rate,
            ),
            network=each,
            x=torch.from_numpy(x).to(settings.device),
            y=torch.from_numpy(y).to(settings.device),
            sampling="random",
            momentum=0.0,
            privacy=noise if name == "dp_fed_avg" else NoPrivacy(),
        )
        for name, each in networks.items()
    }
    return Baseline(runs, size(networks["fed_avg"]), ("pfl", "torch"))
