"""What is built and installed: library, launcher and configs; the library needs little to import and to train."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fedpriv as fp
from fedpriv.address import REPOSITORY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NEEDED = (
    "jax",
    "flax",
    "optax",
    "chex",
)  # what the library imports; everything else only where it is used
LATER = ("orbax", "scipy.optimize", "scipy.stats", "tensorstore")  # which those bring along

# The other packages' modules are not found, as in an environment that lacks them; nor is the fedpriv of this one.
ALONE = """
import json, sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
wheel, refused, later = sys.argv[1], set(json.loads(sys.argv[2])), json.loads(sys.argv[3])
class Lacking:
    @staticmethod
    def find_spec(name, path=None, target=None):
        lacks = name.partition(".")[0] in refused
        return None if lacks else PathFinder.find_spec(name, path, target)
sys.path[0] = wheel
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Lacking]
import fedpriv as fp
assert fp.__file__.startswith(wheel), fp.__file__
print(json.dumps(sorted(set(later) & set(sys.modules))))
"""

TRAIN = """
import numpy as np, optax
rng = np.random.default_rng(0)
label = rng.integers(0, 2, 40).astype(np.int32)
image = (rng.normal(size=(40, 2, 2, 1)) + 3 * label[:, None, None, None]).astype(np.float32)
data = {"image": image, "label": label}
federation = fp.Federation.from_arrays(data, fp.partition.iid(rng, 40, 8), num_classes=2)
model = fp.models.classifier(fp.models.LogisticRegression(2), (2, 2, 1))
algorithm = fp.dp_fed_avg(
    model.loss, sampler=fp.fixed_size(8, 4), batches=fp.epochs(1, 5), optimizer=lambda t: optax.sgd(0.5),
    clip_norm=1.0, noise_multiplier=0.01)
history = fp.simulate(algorithm, model.init, federation, data, score=model.score, rounds=20, every=20)
assert history.accuracy[-1, 0] > 0.9, history.accuracy
for lacking in (
    lambda: fp.certify(algorithm, model.init, federation, 6, 1e-3),
    lambda: fp.datasets.load("digits"),
    lambda: fp.datasets.load("mnist"),
    lambda: fp.attacks.infer_membership(np.zeros(200), np.ones(200)),
):
    try:
        lacking()
    except ModuleNotFoundError as error:
        print(error)
"""


def own_files(folder: str, names: Iterable[str]) -> set[str]:
    """What a copy of the checkout leaves out: caches, runs, environments, the repository."""
    kept = {".ci", ".github", ".gitignore"}
    left = {"__pycache__", *({"runs", "build", "dist", "venv"} if Path(folder) == ROOT else ())}
    return {
        x for x in names if x in left or x.endswith(".egg-info") or (x[0] == "." and x not in kept)
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the source distribution and the wheel made from it."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "checkout", ignore=own_files)
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        folder,
        folder / "checkout",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built) -> Path:
    """A folder with the wheel's packages."""
    (wheel,) = built.glob("*.whl")
    folder = built / "site-packages"
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, wheel]
    subprocess.run(command, check=True)
    return folder


def test_the_wheel_is_library_launcher_and_configs(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (x for x in names if x.endswith(".dist-info/METADATA"))
        told = archive.read(about).decode()
    info = about.removesuffix("METADATA")
    ours = {x for x in names if not x.startswith(info)}
    files = [x for x in (ROOT / "fedpriv").rglob("*") if x.suffix in (".py", ".json", ".html")]
    modules = {str(x.relative_to(ROOT)) for x in files}
    configs = {f"fedpriv/configs/{x.name}" for x in (ROOT / "configs").glob("*.py")}
    assert ours == modules | configs | {"fedpriv/py.typed"}
    assert {f"{info}licenses/LICENSE", f"{info}METADATA", f"{info}RECORD"} <= names
    assert "License-Expression: Apache-2.0" in told
    assert f"Version: {fp.__version__}\n" in told
    assert f"\nversion: {fp.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {fp.__version__} (" in (ROOT / "CHANGELOG.md").read_text()
    assert "\npip install fedpriv && fedpriv run\n" in told
    assert not re.findall(r"\]\((?!https?:)", told), (
        "a link that leads nowhere outside the repository"
    )
    assert f"\nProject-URL: Repository, {REPOSITORY}\n" in told or not REPOSITORY


def test_the_source_distribution_has_all_that_is_versioned_and_no_data(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        sizes = {x.name.partition("/")[2]: x.size for x in archive.getmembers() if x.isfile()}
    assert max(sizes.values()) < 1e6
    assert not [x for x in sizes if re.search(r"__pycache__|\.py[co]$|\.ipynb_checkpoints", x)]
    if shutil.which("git"):  # elsewhere, and outside a repository, the few named below will do
        options = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
        listed = subprocess.run(["git", "ls-files", "-z"], **options).stdout.split("\0")
        assert not {x for x in listed if x and (ROOT / x).exists()} - set(sizes)
    assert {"pyproject.toml", "tests/conftest.py", "configs/quickstart.py"} <= set(sizes)


def python_in(folder: Path, python: Path | str, *args: str) -> subprocess.CompletedProcess[str]:
    """Python without what the tests put on its path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # quick to compile
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run([python, *args], check=False, **options)


def environment(folder: Path, *what: Path | str) -> Path:
    """The Python of a new environment, in which this is installed beside the packages of the tests' own."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    here = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site / "others.pth").write_text("\n".join(here))
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    options += ["--ignore-installed"]  # the tests' own environment may have it, too
    command = [sys.executable, "-m", "pip", "--python", python, "install", *options]
    subprocess.run([*command, *what], check=True)
    return python


@pytest.fixture(scope="module")
def editable(built) -> Path:
    """Here the checkout is installed to be edited."""
    return environment(built / "venv", "-e", built / "checkout")


OWN_CONFIG = """
\"\"\"My digits.\"\"\"
from dataclasses import replace
from fedpriv.experiments import config
quickstart = config.load("quickstart")
settings = replace(quickstart.settings, rounds=1, seeds=1, algorithms=("dp_fed_avg",))
load, on, ledger = quickstart.load, quickstart.on, quickstart.ledger
"""
OWN_SCRIPT = """
from importlib.util import find_spec
import fedpriv as fp
from fedpriv import experiments
assert "site-packages" in fp.__file__, fp.__file__
assert not (find_spec("experiments") or find_spec("configs"))
run = experiments.run("quickstart", rounds=1, seeds=1, algorithms=["dp_fed_avg"], folder="r", progress=False)
assert run.summary.git_revision is None
experiments.figure(run, "curve.pdf")
print(experiments.table(run)["name"][0])
"""


def test_the_wheel_alone_runs_the_quickstart_an_own_config_and_an_own_script(built, tmp_path):
    """In the middle of a repository, which is not its own."""
    (wheel,) = built.glob("*.whl")
    python = environment(built / "alone", wheel)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=False)
    (tmp_path / "own.py").write_text(OWN_CONFIG)
    (tmp_path / "script.py").write_text(OWN_SCRIPT)
    small = ["--rounds", "1", "--seeds", "1", "--algorithms", "fed_avg"]
    fedpriv = [python.with_name("fedpriv"), "run"]
    for words in ([*fedpriv, "quickstart", *small], [*fedpriv, "own.py"], [python, "script.py"]):
        done = python_in(tmp_path, *map(str, words))
        assert done.returncode == 0, done.stderr
    assert done.stdout == "DP-FedAvg\n"
    assert len([*tmp_path.glob("runs/*/summary.json")]) == 2
    done = python_in(tmp_path, *map(str, fedpriv), "--list")  # which loads each of them
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len([*(ROOT / "configs").glob("[!_]*.py")])


def test_the_launcher_runs_in_every_folder(editable, built, tmp_path):
    """Also where a package is called as one of its own."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    small = ["--rounds", "1", "--seeds", "1", "--algorithms", "fed_avg", "--output", "r"]
    done = python_in(tmp_path, editable, "-m", "fedpriv", "run", "quickstart", *small)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "summary.json").exists()
    done = python_in(tmp_path, editable, "-m", "fedpriv")
    assert done.returncode == 0, done.stderr
    (documentation,) = re.findall(r"^documentation: (.*)$", done.stdout, re.MULTILINE)
    assert Path(documentation).is_relative_to(built / "checkout")


def required_by(names: Iterable[str]) -> set[str]:
    """The distributions, in normal form, that come with these."""
    found: set[str] = set()
    left = [x.lower() for x in names]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found.add(name)
            wanted = [Requirement(x) for x in metadata.requires(name) or ()]
            left += [x.name for x in wanted if not x.marker or x.marker.evaluate({"extra": ""})]
    return found


@cache
def lacking() -> list[str]:
    """Modules that an environment with no more than `NEEDED` has not got, and what the wheel does not hold."""
    allowed = required_by(NEEDED)
    modules = metadata.packages_distributions().items()
    foreign = {
        module
        for module, owners in modules
        if not allowed & {re.sub(r"[-_.]+", "-", x).lower() for x in owners}
    }
    return sorted((foreign | {"configs", "experiments"}) - {"fedpriv", "pip", "pkg_resources"})


def alone(installed: Path, script: str, folder: Path) -> list[str]:
    words = [installed, json.dumps(lacking()), json.dumps(LATER)]
    done = python_in(folder, sys.executable, "-c", ALONE + script, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_trains_where_only_its_four_packages_are_and_says_what_else_it_would_need(
    installed, tmp_path
):
    assert {"sklearn", "dp_accounting", "tyro", "matplotlib", "tensorflow_datasets"} <= set(
        lacking()
    )
    assert not {"jax", "jaxlib", "numpy", "scipy", "flax", "optax", "chex"} & set(lacking())
    early, *said = alone(installed, TRAIN, tmp_path)
    assert json.loads(early) == []
    assert said == [
        "No module named 'dp_accounting'",
        "sklearn is not installed; pip install scikit-learn",
        "tensorflow_datasets is not installed; pip install tensorflow-datasets",
        "sklearn is not installed; pip install scikit-learn",
    ]


def seconds_of(statement: str) -> float:
    """Processor time of a new process, which hardly depends on what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_importing_it_takes_hardly_longer_than_importing_what_it_needs():
    """On a quiet machine of today it is below 2 s, most of it JAX; here a ratio, best of up to three."""
    ratios = []
    for _ in range(3):
        ratios.append(seconds_of("import fedpriv") / seconds_of(f"import {', '.join(NEEDED)}"))
        if ratios[-1] < 1.5:
            return
    pytest.fail(f"{ratios}")
