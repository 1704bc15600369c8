"""pfl-research's CIFAR-10 benchmark: its network, its pixels, and that it trains."""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from jax import lax
from prepared import write_random
from small import assert_close, filled

import fedpriv as fp
from configs import pfl_cifar10
from fedpriv.experiments.commands import privacy
from fedpriv.experiments.config.made import experiment_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

MEAN, STD = (0.2, 0.5, 0.7), (0.3, 0.2, 0.1)
SMALL = fp.models.classifier(fp.models.DropoutCNN(4, MEAN, STD), (8, 8, 3))


@pytest.fixture(scope="module")
def params():
    return filled(SMALL.init)


@pytest.mark.slow
def test_the_network_is_that_of_unpadded_convolutions(params):
    """Layer by layer, in the order that pfl-research gives: ReLU before pooling, no padding."""
    x = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    layers = params["params"]
    y = (x / 255 - np.array(MEAN)) / np.array(STD)
    y = jnp.asarray(y, jnp.float32)[None]
    for name in ("Conv_0", "Conv_1"):
        order = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(
            y, layers[name]["kernel"], (1, 1), "VALID", dimension_numbers=order
        )
        y = nn.relu(y + layers[name]["bias"])
    y = nn.max_pool(y, (2, 2), (2, 2)).reshape(-1)
    y = nn.relu(y @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"])
    y = y @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]
    assert_close(SMALL.apply(params, x), y, rtol=1e-4)


@pytest.mark.slow
def test_dropout_is_for_training_alone(params):
    example = {"image": np.full((8, 8, 3), 9, np.uint8), "label": np.int32(1)}
    losses = [float(SMALL.loss(params, example, jax.random.key(s))) for s in (0, 1, 1)]
    assert losses[0] != losses[1] == losses[2]
    assert float(SMALL.loss(params, example)) == float(SMALL.score(params, example)["loss"])


def test_planes_are_the_bytes_of_the_files_read_as_pixels():
    """A record of CIFAR-10's files is its red plane, row by row, then the green and the blue one."""
    record = np.arange(3 * 4 * 4, dtype=np.uint8)
    seen = {"image": record.reshape(3, 4, 4).transpose(1, 2, 0)[None]}
    assert np.array_equal(pfl_cifar10.planes(seen)["image"][0], record.reshape(4, 4, 3))


MEANT = replace(pfl_cifar10.settings, algorithms=("dp_fed_avg",), noise_cohort=1000)


def test_a_noise_cohort_is_extrapolated_as_pfl_research_does():
    """Its accountant is dp-accounting's, called as here, for Poisson cohorts of 1,000 of a million."""
    sigma = 0.8
    ledger = pfl_cifar10.ledger(replace(MEANT, noise_multiplier=sigma))
    claim = ledger.claim("dp_fed_avg", 1500)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(sigma, sampling_prob=1e-3)
    expected = theirs.self_compose(1500).get_epsilon_for_delta(1e-6)
    assert claim.epsilon == pytest.approx(expected, rel=2e-3)
    assert not claim.sound
    assert "extrapolation" in str(claim)
    assert "certified" not in str(claim)


@pytest.mark.slow
def test_what_runs_with_a_noise_cohort_is_certified_as_it_runs():
    """At 50 / 1,000 of the noise; no cohort larger than the run's, no claim of a paper."""
    as_run = replace(MEANT, noise_cohort=None, noise_multiplier=MEANT.noise_multiplier / 20)
    meant, run_as_it_is = pfl_cifar10.ledger(MEANT), pfl_cifar10.ledger(as_run)
    found = [ledger.certify("dp_fed_avg", 2).epsilon for ledger in (meant, run_as_it_is)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] > 5 > meant.claim("dp_fed_avg", 2).epsilon
    same = pfl_cifar10.ledger(replace(MEANT, noise_cohort=50, noise_population=1000))
    plain = pfl_cifar10.ledger(replace(MEANT, noise_cohort=None))
    found = [replace(ledger.certify("dp_fed_avg", 2), assumptions=()) for ledger in (same, plain)]
    assert found[0] == found[1]  # but for the line that made it


@pytest.mark.slow
def test_tables_say_extrapolation(tmp_path, capsys):
    words = "--noise-cohort 1000 --rounds 2 --algorithms dp_fed_avg"
    assert privacy.main(["pfl_cifar10", *words.split(), "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "(extrapolation)" in said
    assert "extrapolation: client level" in said
    assert "claimed:" not in said


@pytest.mark.slow
def test_a_round_on_dirichlet_clients_can_be_traced(tmp_path):
    """Both rows, on 40 images; test_every_config.py trains one of them."""
    write_random(tmp_path, "cifar10", train=40, test=8)
    given = {"clients": 8, "cohort": 2, "batch_size": 5, "partition": "dirichlet"}
    made = experiment_of(pfl_cifar10, replace(pfl_cifar10.settings, data_dir=tmp_path, **given))
    assert list(made.entries) == ["fed_avg", "dp_fed_avg"]
    for name in made.entries:
        made.ledger.trace(name)
