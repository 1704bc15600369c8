"""Where clients' sizes are public, a run's folder, its report and its cost say how epsilons differ by client."""

import json
from dataclasses import dataclass

import numpy as np
import optax
import pytest
from reported import record_experiment, text, tree
from small import classification

import fedpriv as fp
from fedpriv import experiments
from fedpriv.experiments.config import Entry, Experiment, Settings
from fedpriv.privacy import VIEWS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = (9, 3, 20, 9)
_, TEST, MODEL = classification()


@dataclass(frozen=True)
class Unequal(Settings):
    algorithms: tuple[str, ...] = ("dp_sgd",)


class Config:
    """DP-SGD on clients of unequal size, which is public; or secret."""

    def __init__(self, records):
        self.records = records
        self.settings = Unequal(rounds=2, every=2, seeds=1)

    def build(self, settings):
        rows = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
        data = {name: np.resize(leaf, (sum(SIZES), *leaf.shape[1:])) for name, leaf in TEST.items()}
        (name,) = data.keys() - {"label"}
        data[name] = np.random.default_rng(0).normal(size=data[name].shape).astype(np.float32)
        federation = fp.Federation.from_arrays(data, rows, num_classes=3)
        gradients, mechanism = fp.per_example(MODEL.loss), fp.gaussian(1.0, 4.0)
        local = fp.LocalSteps(gradients, self.records, 2, lambda t: optax.sgd(0.1), mechanism)
        algorithm = fp.dp_sgd(local, sampler=fp.fixed_size(len(SIZES), 2))
        return Experiment(MODEL, TEST, 1e-3, {"dp_sgd": Entry(algorithm, [federation])})


@pytest.mark.slow
def test_epsilons_by_client(tmp_path):
    config = Config(fp.PublicSizes(SIZES, batch=4))
    (account,) = experiments.privacy(config)
    experiment, folder = config.build(config.settings), tmp_path / "run"
    record_experiment(folder, "own", config.settings, experiment, (2,))
    written = json.loads((folder / "summary.json").read_text())["privacy"]["dp_sgd"]
    page = text(tree(experiments.report(folder, tmp_path / "page.html")))
    entry = experiment.entries["dp_sgd"]
    shapes = entry.algorithm, MODEL.init, entry.federations[0]
    each = fp.certify(*shapes, 2, 1e-3, view="server", each_client=True).of_clients
    epsilons = sorted(certificate.epsilon for certificate in each)
    assert account.client_epsilons["server"] == (epsilons[0], epsilons[2], epsilons[3])
    assert account.client_epsilons.keys() == set(VIEWS)
    for view, (smallest, median, largest) in account.client_epsilons.items():
        assert smallest < median < largest == written["certified"][view]["epsilon"]
        assert written["client_epsilons"][view] == [smallest, median, largest]
        assert f"by client: {smallest:.4g} to {largest:.4g}, median {median:.4g}" in page


@pytest.mark.slow
def test_secret_sizes_say_nothing_of_single_clients():
    (account,) = experiments.privacy(Config(fp.poisson(max(SIZES), 0.2)))
    assert account.client_epsilons == {}
    assert account.private
