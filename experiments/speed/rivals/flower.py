"""flower, workloads A, D and E: FedAvg with its server-side clipping and noise, PyTorch clients on Ray.

What is timed is a round inside one simulation that keeps running: from the server's sending of the model to the new
model, with the messages, the clients' training, the aggregation and up to 0.2 s of flower's waiting for messages, but
without the start of Ray and without a first round. A client's images are made where it trains.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from ray import cloudpickle

from experiments.speed import examples
from experiments.speed.rivals import runner
from experiments.speed.rivals import torch as pytorch
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.rivals.torch import local_training
from experiments.speed.rivals.torch_networks import cnn, size

FOREVER = 2**31  # rounds

NOTES = ("rounds of one running simulation; the start of Ray is not counted",)


def images(settings: Settings) -> Baseline:
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    for module in (sys.modules[__name__], runner, examples, pytorch):
        cloudpickle.register_pickle_by_value(module)  # Ray's workers cannot import them
    rounds = Rounds()
    simulation = {
        "server_app": server(settings, rounds.done),
        "client_app": client(settings),
        "num_supernodes": settings.clients,
        "backend_config": {
            "init_args": {"num_cpus": settings.threads},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    }
    rounds.start(simulation)
    return Baseline(
        {"ray": rounds.one}, size(cnn(settings.workload)), ("flwr", "ray", "torch"), NOTES
    )


class Rounds:
    """A simulation in a thread of its own, which waits before every round until it is asked for."""

    def __init__(self) -> None:
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def start(self, simulation: dict[str, Any]) -> None:
        """Returns when the first round can be asked for."""

        def run() -> None:
            try:
                run_simulation(**simulation)
                self._done.put(RuntimeError("the simulation ended"))
            except BaseException as error:
                self._done.put(error)

        threading.Thread(target=run, daemon=True).start()
        self._wait()

    def one(self) -> None:
        self._wanted.put(None)
        self._wait()

    def done(self, server_round: int, arrays: ArrayRecord) -> None:
        """What flower calls after each round and before the first, to evaluate."""
        self._done.put(None)
        self._wanted.get()

    def _wait(self) -> None:
        error = self._done.get()
        if error:
            raise error


def server(settings: Settings, after_round: Callable[[int, ArrayRecord], None]) -> ServerApp:
    app = ServerApp()
    workload, clients = settings.workload, settings.clients

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        fed_avg = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        private = DifferentialPrivacyServerSideFixedClipping(
            fed_avg, workload.noise_multiplier, workload.clip_norm, clients
        )
        start = ArrayRecord(cnn(workload).state_dict())
        private.start(grid, start, num_rounds=FOREVER, evaluate_fn=after_round)

    return app


def client(settings: Settings) -> ClientApp:
    app = ClientApp()
    workload = settings.workload

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)  # one client per core
        torch.manual_seed(context.node_config["partition-id"])
        model = cnn(workload)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        shape = (workload.examples, 1, workload.side, workload.side)
        pixels = torch.randint(0, 256, shape, dtype=torch.uint8).float() / 255
        local_training(model, pixels, torch.randint(0, 10, shape[:1]), workload)
        reply = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": workload.examples}),
        }
        return Message(RecordDict(reply), reply_to=message)

    return app


WORKLOADS = dict.fromkeys("ADE", images)
