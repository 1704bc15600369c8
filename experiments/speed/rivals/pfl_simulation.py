"""What the pfl baselines share: its simulated backend, asked for one more round at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedNNAlgorithm, NNAlgorithmParams
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.privacy_mechanism import (
    CentrallyApplicablePrivacyMechanism,
    CentrallyAppliedPrivacyMechanism,
)
from torch import Tensor, nn, optim
from torch.nn import functional

NEVER = 2**31  # rounds until pfl evaluates again, after its first


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
    x: Tensor,
    y: Tensor,
    sampling: str,
    momentum: float,
    privacy: CentrallyApplicablePrivacyMechanism,
) -> Callable[[], Any]:
    """A call runs one more round of `algorithm` on `network`; the server's step size is 1.

    Args:
      params: of the algorithm; its number of rounds is counted here.
      training: the clients'.
      x, y: [clients, examples, ...].
      sampling: of clients, "minimize_reuse" (one after another) or "random".
      momentum: of the clients' SGD.
      privacy: the clipping and the noise of the server's sum.
    """
    users = [PyTorchTensorDataset((x[i], y[i]), user_id=str(i)) for i in range(len(x))]
    sampler = get_user_sampler(sampling, range(len(users)))
    data = FederatedDataset(users.__getitem__, sampler)
    backend = SimulatedBackend(data, data, [CentrallyAppliedPrivacyMechanism(privacy)])
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
