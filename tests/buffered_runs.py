"""Buffered rounds of a small federation that the tests share."""

import optax
from correlated_runs import CLIP, FEDERATION, ROUNDS, SIGMA, N
from small import squared, start

import fedpriv as fp

K, DELTA = 3, 1e-5
FREE = fp.FreeClients(N, buffer=K)
LATE = fp.delays.geometric(1.0, 3)
GAUSSIAN = fp.gaussian(CLIP, SIGMA)
TRAINING = {"optimizer": lambda t: optax.sgd(0.1 * 0.9**t), "batches": fp.full_batch()}


def old(d):
    """A staleness weight."""
    return 1 / (1 + d) ** 0.5


def fed_buff(sampler=FREE, delay=LATE, mechanism=GAUSSIAN, **options):
    """FedAvg, buffered."""
    given = {"sampler": sampler, "delay": delay, "mechanism": mechanism} | TRAINING | options
    return fp.buffered_fed_avg(squared, **given)


def certified(algorithm, rounds=ROUNDS, **options):
    """Its certificate."""
    return fp.certify(algorithm, start(), FEDERATION, rounds, DELTA, **options)
