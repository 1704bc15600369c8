"""What a round sends between hosts, and what follows for many; nothing here is a timing test."""

import json

import jax
import jax.numpy as jnp
import pytest
from small import sgd, squared, start

import fedpriv as fp
from experiments import benchmark
from experiments.speed import scale_out
from experiments.speed.scale_out import Network, traffic
from fedpriv.experiments.papers.dp_scaffold import local_steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


def federated(clients, **options):
    example = {"x": jnp.zeros(3), "y": jnp.zeros(())}
    return fp.Federation.blank(example, clients, 2, **options)


def test_a_sum_is_sent_whole_and_clients_own_states_by_the_client():
    """Of d parameters: DP-FedAvg's noisy sum; DP-SCAFFOLD's two, and the control variates of a cohort of six."""
    d = fp.dimension(start())
    drawn = fp.fixed_size(10, 6)
    averaged = fp.dp_fed_avg(
        squared,
        sampler=drawn,
        optimizer=sgd,
        batches=fp.epochs(1, 2),
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    local = local_steps(
        fp.per_example(squared), fp.fixed_size(2, 1), 1, 0.1, clip_norm=1.0, noise_multiplier=1.0
    )
    controlled = fp.dp_scaffold(local, sampler=drawn)
    of_averaged = traffic(averaged, start(), federated(10))
    of_controlled = traffic(controlled, start(), federated(10))
    few = (4 * 2 + 9) * 6  # norms and masks of a cohort, and counts of what was not finite
    assert 4 * d <= of_averaged["added"] <= 4 * d + few
    assert of_averaged["gathered"] <= few
    assert 8 * d <= of_controlled["added"] <= 8 * d + few
    assert 6 * 4 * d <= of_controlled["gathered"] <= 6 * 4 * d + few


def test_sums_in_a_loop_count_as_often():
    def looped(x):
        def step(x, _):
            return jax.lax.cond(
                x[0] > 0, lambda x: jax.lax.psum(x, "clients"), lambda x: x, x
            ), None

        return jax.lax.scan(step, x, length=5)[0]

    program = jax.make_jaxpr(looped, axis_env=[("clients", 2)])(jnp.ones(7))
    found = list(scale_out._exchanged(program.jaxpr))
    assert found == [("psum", 5, 4 * 7)]


def test_a_ring():
    """By hand: of 1 GB at 1 GB/s four hosts send 3/4 twice, in six messages."""
    assert Network(0.1, 1e9).seconds(1e9, 4) == pytest.approx(6 * 0.1 + 1.5)
    assert Network(0.1, 1e9).seconds(1e9, 1) == 0
    fast = scale_out._rounds(Network(0.0, 1e30), client=1.0, summed=4)
    assert fast["seconds"]["512"] == pytest.approx(2)
    assert fast["pays_up_to"] == 512
    slow = scale_out._rounds(Network(0.0, 1.0), client=1.0, summed=10_000)
    assert slow["pays_up_to"] == 1


def test_two_processes_beside_one(capsys, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    words = ["scale_out", "mspdq_mnist", "--clients", "2", "--repeats", "1", "--json"]
    assert benchmark.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    one, two = (found[f"{n}_seconds"]["all"][0] for n in ("one_process", "two_processes"))
    assert found["speed_of_two_processes"]["all"] == [pytest.approx(one / two)]
    assert found["bytes"]["mspdq_mnist"]["mspdq_fl"]["gathered"] > 1e6
    assert "times as fast as one" in scale_out.table(found)
