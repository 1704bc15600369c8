"""The experiments on model splitting, end to end on tiny prepared data sets."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from prepared import write_random

from fedpriv import models
from fedpriv.experiments.commands import privacy, run
from fedpriv.experiments.config import image, modules
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.papers import mspdq
from fedpriv.experiments.papers.mspdq import Jopeq, Ldp, Msp, Name
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables import uploads
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "4", "--cohort", "2", "--local-epochs", "1", "--rounds", "2", "--every", "1"]
NAMES = Name.__args__
NETWORK = models.classifier(models.MLP((4,), 10), (8, 8, 1))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", "cifar10", train=48, test=20)
    return folder


def summary_of(config, prepared, folder, *options):
    given = [*SMALL, *options, "--data-dir", str(prepared), "--output", str(folder)]
    assert run.main([config, *given]) == 0
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_what_is_sent_and_what_it_costs(prepared, tmp_path, capsys):
    names = ("msp_fl", "mspdq_fl", "ldp_fed_avg", "jopeq")
    found = summary_of("mspdq_mnist", prepared, tmp_path / "r", "--algorithms", *names)
    shown = capsys.readouterr().out
    assert list(found["rounds"]) == list(names)
    d, up, down = (
        784 * 4 + 4 + 4 * 10 + 10,
        found["uplink_mb_per_client_not_private"],
        found["downlink_mb_per_client_not_private"],
    )
    share = 2 * 2 / 4 / 8e6  # rounds, clients per round, of the clients, megabytes
    assert up["msp_fl"] == pytest.approx(5 * 32 * d * share)
    assert up["mspdq_fl"] == pytest.approx(11 * (8 * d + 32) * share)
    assert down["mspdq_fl"] == pytest.approx(11 * (32 * d + 32) * share)
    assert up["jopeq"] == pytest.approx(8 * d * share)
    for name in names:
        for certificate in found["privacy"][name]["certified"].values():
            if name == "ldp_fed_avg":  # two messages of Laplace noise 2 C / (12 records x 10)
                assert float(certificate["epsilon"]) == pytest.approx(120, rel=1e-3)
            else:
                assert math.isinf(float(certificate["epsilon"]))
    assert "MSPDQ-FL" in uploads.table([read(tmp_path / "r")], 0.0)
    # An epsilon is not shown without its delta, where that is another one.
    shown = " ".join(shown.split())
    assert "δ = 1," in shown
    assert "δ = 0," in shown


OTHERS = "--interval 3.0 --submodels 1 3 --gamma 0.05 --decay root --exchanges 0 --msp-exchanges 0"
OTHERS += " --jopeq.noise t --ldp.noise gaussian --weights submodel --least-weight 0.5"


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
@pytest.mark.parametrize(("name", "options"), [("mspdq_mnist", ""), ("mspdq_cifar10", OTHERS)])
def test_a_round_of_every_algorithm_can_be_traced(name, options, prepared):
    given = ["--algorithms", *NAMES, *SMALL, *options.split(), "--data-dir", str(prepared)]
    config = modules.load(name)
    experiment = experiment_of(config, parse(config, name, given))
    assert list(experiment.entries) == list(NAMES)
    for name in NAMES:
        experiment.ledger.trace(name)


def made(name, **changes):
    """The ledger of one algorithm on 600 records of each client."""
    config = Msp(algorithms=(name,), **changes)
    return mspdq.ledger(config, NETWORK, image(8, 8, 1), 60_000)


def multiplier(ledger):
    (name,) = ledger.entries
    return plays_of(ledger.trace(name).seen(1)[0]).used.certified_multiplier


def test_the_noise_of_ldp():
    """b = 2 C / (m eps), or 2 C / eps; the client's certificate is finite for neither at these epsilons and d."""
    assert multiplier(made("ldp_fed_avg")) == pytest.approx(2 / 600 / 10)
    whole = made("ldp_fed_avg", ldp=Ldp(epsilon=10.0, sensitivity="client"))
    assert multiplier(whole) == pytest.approx(2 / 10)
    server = dataclasses.replace(whole, delta=1e-9).certify("ldp_fed_avg", 1, view="server")
    # One client zeroed out moves by C where one replaced moves by 2 C.
    assert server.epsilon <= 5.0 * (1 + 1e-6)
    gauss = made("ldp_fed_avg", ldp=Ldp(epsilon=1.0, noise="gaussian", sensitivity="client"))
    assert multiplier(gauss) == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)))


@pytest.mark.slow
def test_the_noise_of_msp_with_gauss():
    chosen = Msp(ldp=Ldp(epsilon=1.0, clip_norm=3.0, sensitivity="client"))
    w = jnp.ones(100_000)
    drawn = mspdq._splitting("msp_gaussian", chosen, 600).draw(jax.random.key(0), w, jnp.int32(1))
    std = 2 * 3.0 * math.sqrt(2 * math.log(1.25e5))
    assert abs(np.std(drawn) / std - 1) < 0.02  # nine standard deviations
    ledger = made("msp_gaussian")
    assert ledger.claim("msp_gaussian", 5) is None
    assert math.isinf(ledger.certify("msp_gaussian", 1, view="server").epsilon)


@pytest.mark.parametrize("whose", ["equal", "client", "submodel"])
def test_the_weights_of_a_config(whose):
    own = Msp(weights=whose, least_weight=0.5)
    drawn = np.asarray(mspdq._weights(own)(jax.random.key(0), (50, 4)))
    assert np.all((drawn >= 0.5) & (drawn <= 1))
    assert len(np.unique(drawn)) == {"equal": 1, "client": 50, "submodel": 200}[whose]


@pytest.mark.slow
def test_the_interval_by_columns(prepared, tmp_path):
    options = ["--algorithms", "mspdq_fl", "--interval", "columns", "--bits", "4", "--seeds", "1"]
    found = summary_of("mspdq_mnist", prepared, tmp_path / "r", *options)
    wide = summary_of("mspdq_mnist", prepared, tmp_path / "w", *options[:2], *options[4:])
    assert found["settings"]["interval"] == "columns"
    widths = [last_interval(tmp_path / name) for name in ("r", "w")]
    assert 0 < 20 * widths[0] < widths[1]
    assert found["uplink_mb_per_client_not_private"] == wide["uplink_mb_per_client_not_private"]


def last_interval(folder):
    line = (folder / "metrics.jsonl").read_text().splitlines()[-1]
    return json.loads(line)["diagnostics_not_private"]["interval"]["mean"]


def test_claims():
    laplace = made("msp_laplace", ldp=Ldp(epsilon=3.0))
    assert laplace.claim("msp_laplace", 5).epsilon == 3
    assert made("jopeq", jopeq=Jopeq(epsilon=4.0)).claim("jopeq", 5).epsilon == 4
    assert made("msp_fl").claim("msp_fl", 5) is None


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_the_ledger_needs_no_data(capsys, tmp_path):
    names = ["--algorithms", "msp_fl", "msp_laplace"]
    assert privacy.main(["mspdq_cifar10", *names, "--output", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "without fresh noise" in told
    assert "not proved" in told
