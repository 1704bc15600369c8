"""Files that cannot be made, and how often other records are found to be others."""

import os
from dataclasses import replace

import jax
import numpy as np
import pytest
import tiers
from scipy import stats
from several import ended, started
from small import assert_identical

import fedpriv as fp
from fedpriv.engine import fingerprint
from fedpriv.engine.serialization import to_device, to_host


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there are no limits of size")
def test_a_file_that_the_system_cuts_off(tmp_path):
    """By a limit of the process's own, in place of a full disk."""
    with started([["-W", "error", "-W", "ignore:test", "-c", CUT_OFF, tmp_path]]) as processes:
        (end,) = ended(processes)
    assert (end.code, end.err) == (0, "")
    said = end.out.splitlines()
    assert len(said) == 1
    assert "File too large" in said[0]
    assert list(tmp_path.iterdir()) == []


CUT_OFF = """
import resource, sys
import fedpriv as fp
fp.distributed.split_cpu(2)
import checkpointed
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
checkpointed.run(checkpoints=fp.Checkpoints(sys.argv[1], rounds=1, say=print))
"""


@tiers.every("held", ["trained on", "held out", "public"])
def test_how_often_a_replaced_record_is_found(held):
    """One of 4,000, in 1,000 that are compared: within bounds of false-alarm rate 1e-6 in 400 draws of the seeds."""
    clients, held_out, public = np.split(np.arange(4000).reshape(4, 1000), [2, 3])
    wrong = {"trained on": 0, "held out": 2000, "public": 3999}[held]

    def of(x):
        given = {"held_out": [*held_out[:, :500], *held_out[:, 500:]], "public": public[0]}
        return fp.StreamedFederation.from_arrays({"x": x}, clients, **given)

    one, other = of(np.zeros(4000)), of(np.arange(4000) == wrong)
    other = replace(other, examples={"x": other.examples["x"].astype(float)})

    def digest(f, seed):
        return bytes(fp.distributed.digest(fingerprint.records_of([f], [seed])))

    found = sum(digest(one, seed) != digest(other, seed) for seed in range(400))
    low, high = stats.binom(400, fingerprint.SAMPLED / 4000).interval(1 - 1e-6)
    assert low <= found <= high
    assert digest(one, 3) == digest(one, 3)


def test_a_stored_state_with_a_key_still_loads():
    """No round may keep one any more."""
    state = {"key": jax.random.split(jax.random.key(1)), "n": np.arange(3)}
    loaded = to_device(to_host(jax.tree.map(jax.numpy.asarray, state)), state)
    assert_identical(jax.random.key_data(loaded["key"]), jax.random.key_data(state["key"]))
    assert_identical(loaded["n"], state["n"])
