"""Every rival's file: its imports and the building of all its workloads, with what is not installed faked; and real
rounds of those that are there."""

import importlib.util
import json
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace

import pytest

from experiments.speed.attention_speed import Characters
from experiments.speed.haar_speed import Transform
from experiments.speed.rivals import runner
from experiments.speed.rivals.runner import RIVALS, Rival, Settings
from experiments.speed.workloads import Images, Records, Texts

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """To compile."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


IMAGES = Images(side=8, filters=(2, 3), hidden=(4,), examples=2, epochs=2)
WORKLOADS = {
    "A": IMAGES,
    "B": Records(records=10, batch=4, steps=3),
    "C": Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,)),
    "D": IMAGES,
    "E": replace(IMAGES, filters=()),
    "F": Texts(length=5, epochs=1, hidden=8),
    "G": Characters(2, length=4, vocabulary=5, width=4, heads=2, layers=1),
    "H": Characters(2, length=4, vocabulary=5, width=4, heads=2, layers=1),
}
BUILT = [(name, workloads[0]) for name, workloads in RIVALS.items()]
PACKAGES = {
    "torch": ["torch"],
    "torch_vmap": ["torch"],
    "fedjax": ["fedjax", "haiku"],
    "pfl": ["pfl", "torch"],
}
PACKAGES |= {"flower": ["flwr", "ray", "torch"], "opacus": ["opacus", "torch"], "jax_privacy": []}

FAKED = '''
import importlib.abc, importlib.machinery, json, sys
from types import SimpleNamespace

class Names(type):
    """A class whose attributes are classes like it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(name, (Fake,), {})

class Fake(metaclass=Names):
    """Takes any arguments, and is whatever is asked of it; has no elements."""

    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Fake()
    def __call__(self, *args, **kwargs): return Fake()
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __getitem__(self, index): return Fake()
    def __radd__(self, other): return Fake()
    def __enter__(self): return self
    def __exit__(self, *error): pass

class Module(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec): return None
    def exec_module(self, module):
        module.__getattr__ = lambda name: getattr(Fake, name)

packages, rivals = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.meta_path.insert(0, Module())
from experiments.speed.rivals.runner import Settings
found = {}
for name, settings in rivals.items():
    file, built = importlib.import_module(f"experiments.speed.rivals.{name}"), {}
    for workload, fields in settings.items():
        given = Settings(workload, SimpleNamespace(**fields), 2, 1, "cpu")
        try:
            built[workload] = list(file.WORKLOADS[workload](given).runs)
        except RuntimeError as error:  # flower's simulation, which runs on
            built[workload] = str(error)
    found[name] = [sorted(file.WORKLOADS), built]
print(json.dumps(found))
'''


def test_files_and_what_they_build_know_what_they_call():
    """All in one process, which has fakes of what is not installed."""
    needed = {package for of in PACKAGES.values() for package in of}
    faked = [package for package in needed if importlib.util.find_spec(package) is None]
    settings = {n: {w: asdict(WORKLOADS[w]) for w in of} for n, of in RIVALS.items()}
    given = [json.dumps(faked), json.dumps(settings)]
    done = subprocess.run([sys.executable, "-c", FAKED, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, (names, built) in json.loads(done.stdout).items():
        assert {workload for workload in names if len(workload) == 1} == set(RIVALS[name])
        assert all(built.values())


@pytest.mark.parametrize(("name", "workload"), BUILT)
def test_a_rival_that_is_there_runs(name, workload):
    if not runner.built(name):
        pytest.skip(f"{name} has no environment here")
    if name.startswith("torch"):
        pytest.importorskip("torch")
    settings = Settings(workload, asdict(WORKLOADS[workload]), 2, 1, "cpu")
    module = f"experiments.speed.rivals.{name}"
    with closing(Rival(module, settings, runner.python_of(name))) as rival:
        about = rival.about()
        assert about["parameters"] > 0
        assert all(rival.run(run)["seconds"] > 0 for run in about["runs"])
