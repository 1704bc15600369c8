"""pfl (PyTorch), by its simulated backend: workloads A, D and E, B, and the rounds of configs/pfl_cifar10.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedNNAlgorithm, NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import (
    CentrallyApplicablePrivacyMechanism,
    CentrallyAppliedPrivacyMechanism,
    NoPrivacy,
)
from torch import Tensor, nn, optim
from torch.nn import functional

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.rivals.torch import on_device, prepare
from experiments.speed.rivals.torch_networks import cnn, size

NEVER = 2**31  # rounds until pfl evaluates again, after its first
PACKAGES = ("pfl", "torch")
NOTES = (
    "noise on the sum of whole clients' updates, no gradient of a record is clipped: less work than ours",
    "batches are the same slices of the records in each epoch, clients are drawn with replacement",
    "pfl 0.6.0 inverts the sign of SCAFFOLD's correction: compare speed, not results",
)


def images(settings: Settings) -> Baseline:
    """pfl's FedAvg with its central Gaussian mechanism."""
    prepare(settings)
    workload = settings.workload
    network = cnn(workload)
    x, y = examples.images(workload, settings.clients, workload.examples)
    one_round = rounds(
        algorithm=FederatedAveraging(),
        params=NNAlgorithmParams(**common(settings)),
        training=NNTrainHyperParams(
            local_batch_size=workload.examples,
            local_num_epochs=workload.epochs,
            local_learning_rate=workload.rate,
        ),
        network=network,
        data=on_device(x, y, settings),
        sampling="minimize_reuse",
        momentum=workload.momentum,
        privacy=GaussianMechanism(workload.clip_norm, workload.noise_multiplier),
    )
    return Baseline({"nchw": one_round}, size(network), PACKAGES)


def records(settings: Settings) -> Baseline:
    """pfl's SCAFFOLD, which comes nearest to DP-SCAFFOLD.

    `steps` are as many passes over the records as make that number of batches, rounded up.
    """
    prepare(settings)
    workload = settings.workload
    everyone = 5 * settings.clients
    network = nn.Linear(workload.features, workload.classes)
    x, y = examples.records(workload, everyone)
    per_epoch = -(-workload.records // workload.batch)
    one_round = rounds(
        algorithm=SCAFFOLD(),
        params=SCAFFOLDParams(
            **common(settings),
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
        data=on_device(x, y, settings),
        sampling="random",
        momentum=0.0,
        privacy=GaussianMechanism(workload.clip_norm, 1.0),
    )
    return Baseline({"scaffold": one_round}, size(network), PACKAGES, NOTES)


def cifar10(settings: Settings) -> Baseline:
    """As pfl-research's benchmarks/image_classification does, without and with DP, on random pixels.

    Its script keeps images with their channels last and turns them in front of the first layer, which makes PyTorch
    convolve in that layout; and so does this. The workload has the fields of the config that
    experiments.benchmark cifar10 names.
    """
    prepare(settings)
    config = settings.workload
    rng = np.random.default_rng(0)
    x = rng.standard_normal((config.clients, config.images, 32, 32, 3), np.float32)
    y = rng.integers(0, 10, (config.clients, config.images))
    mechanisms = {
        "fed_avg": NoPrivacy(),
        "dp_fed_avg": GaussianMechanism(config.clip_norm, config.noise_multiplier),
    }
    networks = {name: dropout_cnn() for name in mechanisms}
    runs = {
        name: rounds(
            algorithm=FederatedAveraging(),
            params=NNAlgorithmParams(**common(settings)),
            training=NNTrainHyperParams(
                local_batch_size=config.batch_size,
                local_num_epochs=config.epochs,
                local_learning_rate=config.learning_rate,
            ),
            network=networks[name],
            data=on_device(x, y, settings),
            sampling="random",
            momentum=0.0,
            privacy=privacy,
        )
        for name, privacy in mechanisms.items()
    }
    return Baseline(runs, size(networks["fed_avg"]), PACKAGES)


class ChannelsFirst(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """f32[batch, height, width, channels] -> [batch, channels, height, width]."""
        return x.permute(0, 3, 1, 2)


def dropout_cnn() -> nn.Sequential:
    """For pfl: `fedpriv.models.DropoutCNN`, from Glorot's uniform weights, without normalisation."""
    layers = nn.Sequential(
        *(ChannelsFirst(), nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


def common(settings: Settings) -> dict[str, Any]:
    """What pfl's algorithms are told; how many rounds they run is counted in `rounds`."""
    return {
        "central_num_iterations": 0,
        "evaluation_frequency": NEVER,
        "train_cohort_size": settings.clients,
        "val_cohort_size": None,
    }


class Classifier(nn.Module):
    """The two methods that pfl asks of a network."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = x.float() / 255 if not x.is_floating_point() else x
        return functional.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def rounds(
    *,
    algorithm: FederatedNNAlgorithm,
    params: NNAlgorithmParams,
    training: NNTrainHyperParams,
    network: nn.Module,
    data: tuple[Tensor, Tensor],
    sampling: str,
    momentum: float,
    privacy: CentrallyApplicablePrivacyMechanism,
) -> Callable[[], Any]:
    """A call runs one more round of pfl's `algorithm` on `network`; the server's step size is 1.

    Args:
      params: of the algorithm; its number of rounds is counted here.
      training: the clients'.
      data: inputs and labels, [clients, examples, ...].
      sampling: of clients, "minimize_reuse" (one after another) or "random".
      momentum: of the clients' SGD.
      privacy: the clipping and the noise of the server's sum.
    """
    users = [
        PyTorchTensorDataset(each, user_id=str(i)) for i, each in enumerate(zip(*data, strict=True))
    ]
    sampler = get_user_sampler(sampling, range(len(users)))
    federation = FederatedDataset(users.__getitem__, sampler)
    backend = SimulatedBackend(federation, federation, [CentrallyAppliedPrivacyMechanism(privacy)])
    module = Classifier(network)
    model = PyTorchModel(
        module,
        lambda parameters, lr: optim.SGD(parameters, lr, momentum),
        optim.SGD(module.parameters(), lr=1.0),
    )
    done = 0

    def one_round() -> None:
        """Goes on from the model that the last one left."""
        nonlocal done
        done += 1
        until = replace(params, central_num_iterations=done)
        algorithm.run(until, backend, model, training, training, send_metrics_to_platform=False)

    return one_round


WORKLOADS = dict.fromkeys("ADE", images) | {"B": records, "pfl_cifar10": cifar10}
