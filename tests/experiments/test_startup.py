"""What a start may cost, counted rather than timed: modules that are imported, programs that are compiled."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = {
    "array_record",
    "dp_accounting",
    "jax_privacy",
    "jinja2",
    "matplotlib",
    "orbax",
    "pandas",
    "scipy.stats",
    "sklearn",
    "tensorflow_datasets",
    "tyro",
}

IMPORT = f"""
import json, sys
import fedpriv
print(json.dumps(sorted({HEAVY!r} & set(sys.modules))))
"""

FIRST = f"""
import json, os, sys
import jax
programs = []
def compiled(name, seconds, fun_name="", **_):
    if name == "/jax/core/compile/backend_compile_duration":
        programs.append(fun_name)
jax.monitoring.register_event_duration_secs_listener(compiled)
from fedpriv.experiments.runs import recorder
from fedpriv.experiments.commands.run import main
def first(*_):
    heavy = sorted(({HEAVY!r} - {{"tyro"}}) & set(sys.modules))
    print(json.dumps({{"programs": programs, "heavy": heavy}}), flush=True)
    os._exit(0)
recorder.Recorder.evaluation = first
main(["--rounds", "1", "--output", sys.argv[1]])
"""


def said_by(script, *args):
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *args], env=quick, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_importing_fedpriv_imports_nothing_heavy():
    assert said_by(IMPORT) == []


@pytest.fixture(scope="module")
def first_evaluation(tmp_path_factory):
    """Of the quickstart as it is configured, but for the number of rounds: 3 seeds, FedAvg first."""
    return said_by(FIRST, str(tmp_path_factory.mktemp("start") / "run"))


def test_the_quickstart_reaches_its_first_evaluation_without_heavy_imports(first_evaluation):
    assert first_evaluation["heavy"] == []


def test_few_programs_are_compiled_before_it(first_evaluation):
    """The rounds, a model's initialisation, keys, seeds put side by side; 51 before these were counted.

    The `stage`s put an array on the device and compile in milliseconds.
    """
    programs = [p for p in first_evaluation["programs"] if "stage" not in p]
    assert sum("chunk" in p for p in programs) == 1
    assert len(programs) <= 14, programs
    assert len(first_evaluation["programs"]) <= 24, first_evaluation["programs"]
