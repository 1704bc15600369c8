"""How messages name lines: in a script, in a notebook, and of arrays that the library's algorithms were handed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import optax
import pytest
import tiers
from mistakes import EVERYONE, FEDERATION, GAUSSIAN, PARAMS, RECORDS
from small import squared

import fedpriv as fp
from fedpriv.core.code_places import is_users_file, place
from fedpriv.core.user_code import user_line

SCRIPT = """
import jax.numpy as jnp
import fedpriv as fp

def client(key, shard):
    return {"w": shard.examples["x"] @ jnp.ones(5)}

def round(key, state, cohort):
    return cohort.sum(client, key, mechanism=fp.gaussian(1.0, 1.0))

algorithm = fp.Algorithm(fp.start, round, fp.everyone(2))
federation = fp.Federation.from_arrays({"x": jnp.ones((4, 3))}, [[0, 1], [2, 3]])
fp.certify(algorithm, {"w": jnp.zeros(3)}, federation, 1, 1e-3)
"""
AT = ["line 13, in <module>", "line 9, in round", "line 6, in client"]


@pytest.mark.slow
def test_what_python_prints_of_a_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    env = os.environ | {"PYTHONPATH": str(Path(fp.__file__).parents[1])}
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    assert len(lines) <= 12, done.stderr
    frames = [line for line in lines if line.startswith("  File")]
    assert [frame.partition(", ")[2] for frame in frames] == AT
    assert re.fullmatch(r"TypeError: dot_general .*", lines[-1])


CELLS = (
    "import jax.numpy as jnp, fedpriv as fp",
    """TABLE = jnp.ones(3)
def client(key, shard):
    return {"w": shard.examples["x"] @ jnp.ones(5)}
def round(key, state, cohort):
    total, metrics, _ = cohort.sum(client, key, mechanism=fp.gaussian(1.0, 1.0))
    params = {"w": total["w"] + TABLE}
    return fp.ModelState(params, state.round + 1), metrics
made = fp.Algorithm(fp.start, round, fp.everyone(2))
federation = fp.Federation.from_arrays({"x": jnp.ones((4, 3))}, [[0, 1], [2, 3]])
given = {"w": jnp.zeros(3)}, federation, 1, 1e-3""",
    "fp.certify(made, *given)",
    "client = lambda key, shard: shard.examples['x'][0]; client = lambda k, s, f=client: {'w': f(k, s)}",
    "said = fp.certify(made, *given).assumptions",
    "fp.certify(made._replace(init=lambda params, f: fp.start(params, int(f.size[0]))), *given)",
    "fp.certify(made._replace(init=lambda params, f: int(f.size[0])), *given)",
    "fp.certify(made._replace(round=lambda key: key), *given)",
)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["IPython", "Jupyter"])
def test_a_cell_is_named_as_the_notebook_numbers_it(host, tmp_path, monkeypatch):
    """For IPython makes up files by number, for Jupyter by a hash."""
    from ipykernel.compiler import XCachingCompiler
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    compiler = {"IPython": CachingCompiler, "Jupyter": XCachingCompiler}[host]
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance(history_length=0)
    try:
        shell.history_manager.enabled = False
        shell.compile = compiler()
        with capture_output():
            ran = [shell.run_cell(cell, store_history=True) for cell in CELLS]
        errors = [result.error_in_exec for result in ran]
        said, line = shell.user_ns["said"], user_line(errors[2])
    finally:
        InteractiveShell.clear_instance()
    assert line == 'In [2]:3, in client: return {"w": shard.examples["x"] @ jnp.ones(5)}'
    assert str(errors[6]).startswith("init: it reads the federation on the host (In [7]:1, in ")
    assert "round: it takes (key) (In [8]:1); give" in str(errors[7])
    assert any("(float32 (3,) in In [2]:6)" in text for text in said)
    assert [result.success for result in ran][:2] == [True, True]


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("/home/me/my_config.py", "my_config.py:3"),
        ("<ipython-input-14-0123456789ab>", "In [14]:3"),
        ("/anywhere/ipykernel_123/456.py", "a notebook cell:3"),
        (r"C:\Temp\ipykernel_123\456.py", "a notebook cell:3"),
        ("<stdin>", "<stdin>:3"),
    ],
)
def test_places(file, called):
    assert place(file, 3) == called
    assert is_users_file(file)


HELD = jnp.array([0.1, 0.2, 0.3])
KEPT = optax.chain(
    optax.sgd(0.1), optax.scale_by_schedule(lambda count: HELD[0]), optax.scale(HELD[1])
)


def weighed(params, example):
    return squared(params, example) * jnp.sum(HELD)


def built(loss, optimizer):
    """Name -> what builds an algorithm of the library's."""
    common = {"sampler": EVERYONE, "optimizer": optimizer, "batches": fp.full_batch()}
    private = {"clip_norm": 0.5, "noise_multiplier": 1.2}
    records = fp.fixed_size(RECORDS, 1)
    local = fp.LocalSteps(fp.per_example(loss), records, 1, optimizer, GAUSSIAN)
    split = {
        "splitting": fp.papers.splitting.uniform(0.3),
        "coupling": fp.papers.consensus.coupling(0.4, 0.1),
    }
    split |= {"exchanges": fp.papers.consensus.constant(3), "submodels": (1, 2)}
    split |= {"sampler": fp.with_replacement([1, 1, 1], 2)}
    adaptive = {"quantile": 0.5, "count_noise": 1.0}
    rand_k = fp.papers.select_rand_k(0.5)
    return {
        "fed_avg": lambda: fp.fed_avg(loss, **common, mechanism=GAUSSIAN),
        "fed_smp": lambda: fp.fed_smp(loss, **common, **private, sparsifier=rand_k),
        "adaptive": lambda: fp.adaptive_fed_avg(loss, **common, **private, **adaptive),
        "dp_scaffold": lambda: fp.dp_scaffold(local, sampler=EVERYONE),
        "dp_sgd": lambda: fp.dp_sgd(local, sampler=EVERYONE),
        "msp_fl": lambda: fp.papers.msp_fl(loss, **common | split),
        "jopeq": lambda: fp.papers.jopeq(loss, **common, bits=8, bound=0.1, epsilon=2.0),
    }


@tiers.every("name", built(weighed, lambda t: KEPT))
def test_arrays_of_a_built_in_algorithm_are_named_by_the_users_line(name):
    """That of the function which uses one, or of the call that an optimiser with one was handed to."""
    make = built(weighed, lambda t: KEPT)[name]
    texts = fp.trace_round(make(), PARAMS, FEDERATION).assumed()
    (said,) = [text for text in texts if "closes over" in text]
    lines = {int(line) for line in re.findall(r"in test_code_places\.py:(\d+)", said)}
    of_loss, of_call = weighed.__code__.co_firstlineno + 1, make.__code__.co_firstlineno
    assert said.count(" in ") == said.count(" in test_code_places.py:")
    assert {of_loss, of_call} <= lines
