"""JAX's flags for debugging: programs give what they give without them, and what a flag asks of a program holds."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from small import regression, squared, start

import fedpriv as fp


def test_a_key_that_is_used_twice_is_still_reported():
    def batches(key, size, capacity):
        jax.random.uniform(key)
        return fp.epochs(1, 2)(key, size, capacity)

    federation = regression([2] * 6)
    given = {"optimizer": lambda t: optax.sgd(0.1), "batches": batches}
    twice = fp.fed_avg(squared, sampler=fp.everyone(6), **given)
    state = twice.init(start(), federation)
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        jax.make_jaxpr(fp.one_round(twice))(jax.random.key(1), state, federation)


PROGRAM = """
import json, os, sys
import jax, numpy as np, optax
import fedpriv as fp

rng = np.random.default_rng(0)
image = rng.integers(0, 256, (26, 4, 4, 1), np.uint8)
data = {"image": image, "label": (image.sum((1, 2, 3)) > 2000).astype(np.int32)}
model = fp.models.classifier(fp.models.LogisticRegression(2), (4, 4, 1))
parts = fp.partition.iid(rng, 18, 6)
federation = fp.Federation.from_arrays(jax.tree.map(lambda x: x[:18], data), parts, num_classes=2)
test = jax.tree.map(lambda x: x[18:], data)
algorithm = fp.dp_fed_avg(
    model.loss, sampler=fp.poisson(6, rate=0.5), clip_norm=1.0, noise_multiplier=1.0,
    optimizer=lambda t: optax.sgd(0.1 * 0.99**t, momentum=0.5), batches=fp.epochs(1, batch_size=2))

def trained():
    history = fp.simulate(
        algorithm, model.init, federation, test, score=model.score, rounds=2, strategy=fp.Strategy())
    return [np.asarray(x, np.float64).ravel().tolist() for x in jax.tree.leaves(history.state.params)]

def main():
    if {"JAX_DEBUG_KEY_REUSE", "JAX_ENABLE_X64"} & os.environ.keys():
        fp.check_algorithm(algorithm, model.init, federation)
    epsilon = fp.certify(algorithm, model.init, federation, rounds=2, delta=1e-2).epsilon
    json.dump([epsilon, trained()], sys.stdout)
"""


def ended(*words, **flags):
    own = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} | flags
    words = [sys.executable, *(words or ("-c", f"{PROGRAM}\nmain()"))]
    return subprocess.run(words, env=os.environ | own, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def plain(compiled_once):
    """What it gives without; others find its programs, where theirs are the same."""
    return json.loads(ended().stdout)


STRICT = {
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_DEBUG_KEY_REUSE": "1",
    "JAX_DEBUG_NANS": "1",
    "JAX_CHECK_TRACER_LEAKS": "1",
    "JAX_TRACEBACK_FILTERING": "off",
    "PYTHONOPTIMIZE": "1",
    "PYTHONWARNINGS": "error",
}
OTHER_DRAWS = {"JAX_ENABLE_X64": "1", "JAX_THREEFRY_PARTITIONABLE": "0"}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [STRICT, OTHER_DRAWS, {"JAX_DISABLE_JIT": "1"}])
def test_a_program_gives_what_it_gives_without_the_flags(flags, plain):
    """To the bit, but where operations are not compiled together, and where others are drawn.

    By 64 bits, and by keys that `split` derives otherwise: those of the hidden stream are made by `fold_in` alone.
    """
    end = ended(**flags)
    assert (end.returncode, end.stderr) == (0, "")
    epsilon, params = json.loads(end.stdout)
    assert epsilon == plain[0]
    if "JAX_ENABLE_X64" in flags:
        assert all(np.isfinite(leaf).all() for leaf in params)
    elif "JAX_DISABLE_JIT" in flags:
        for one, other in zip(params, plain[1], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    else:
        assert params == plain[1]


PLACES = f"""{PROGRAM}
if __name__ == "__main__":
    import asyncio, multiprocessing
    from concurrent.futures import ThreadPoolExecutor

    async def cell():
        return trained()

    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(trained) for _ in range(2)]]
    found.append(asyncio.run(cell()))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found.append(pool.apply(trained))
    json.dump(found, sys.stdout)
"""


@pytest.mark.slow
def test_where_it_runs_makes_no_difference(plain, tmp_path):
    """In threads, in a running loop, in a process of its own."""
    file = tmp_path / "program.py"
    file.write_text(PLACES)
    end = ended(str(file))
    assert (end.returncode, end.stderr) == (0, "")
    assert json.loads(end.stdout) == [plain[1]] * 4
