"""Two host devices for every test, so that runs over several devices are tested on any machine.

Tests compile the same programs again and again: the latest are kept in memory, and large ones in pytest's own cache,
for later runs, too. Each worker has a folder of its own, as JAX writes entries in place. Small programs are left out
there: to compress and write one takes as long as to compile it. `--cache-clear` removes them. The user's own
compilation cache is left alone, and the processes that tests start have none.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from costs import Costs
from flax import linen as nn
from jax._src import compiler
from jax.experimental.compilation_cache import compilation_cache

import fedpriv as fp
from experiments.config import modules
from fedpriv import models
from fedpriv.data.datasets.shakespeare import VOCABULARY
from fedpriv.devices.layout import split_cpu

os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
# For the processes that tests start: configs and experiments are not installed.
root, *others = str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])
os.environ["PYTHONPATH"] = os.pathsep.join([root, *others])
if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know a flag ends the process
    own = "--xla_cpu_parallel_codegen_split_count=1"  # less work, where others keep the other cores busy
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {own}".strip()
gc.set_threshold(50_000, 20, 20)  # tracing makes many objects and few cycles
split_cpu(2)
jax.devices()  # started now: a command that a test calls first would start it with another number


def remember_programs(most: int = 512) -> None:
    """Keeps the latest programs in memory, small ones too, by the key of JAX's cache: a digest of text and options.

    Those that call back into Python are left out, as each has functions of its own.
    """
    read, write = compiler._cache_read, compiler._cache_write
    kept: dict[str, Any] = {}

    def read_memory(name: str, key: str, *rest: Any) -> Any:
        return (kept[key], 0) if key in kept else read(name, key, *rest)

    def write_memory(key: str, seconds: float, name: str, backend: Any, program: Any, calls: Any):
        if not calls:
            kept[key] = program
        if len(kept) > most:
            del kept[next(iter(kept))]
        write(key, seconds, name, backend, program, calls)

    compiler._cache_read, compiler._cache_write = read_memory, write_memory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="show what each file costs")


def pytest_configure(config: pytest.Config) -> None:
    if jax.__version_info__[:2] == (0, 10):  # others call the cache differently
        remember_programs()
    if config.option.costs:
        config.pluginmanager.register(Costs())


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Up to four processes, each with files of its own, as compiling keeps one processor busy: 0 is this one alone.

    A single file is not worth starting any; slow tests, of which many start processes themselves, get two.
    """
    single = len(config.args) == 1 and Path(config.args[0].partition("::")[0]).is_file()
    most = 4 if config.option.markexpr == "not slow" else 2
    found = 0 if single else min(most, os.cpu_count() or 1)
    return found if found > 1 else 0


@pytest.fixture(scope="module")
def quick_to_compile() -> Iterator[None]:
    """Programs that XLA hardly optimises: for modules that spend their time compiling tiny ones.

    Numbers are the same up to rounding. The modules of convolutions and models use what users get.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def compiled_once(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of this worker's compilation cache."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    if hasattr(pytestconfig, "cache"):
        return str(pytestconfig.cache.mkdir(f"xla-{worker}"))
    return str(tmp_path_factory.mktemp("xla"))  # with -p no:cacheprovider


def _use(folder: str) -> None:
    """Keeps programs there from now on."""
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    fp.cache_programs(folder)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def _with_cache(compiled_once: str) -> None:
    """For every module, as those before may have changed JAX's settings."""
    _use(compiled_once)


@pytest.fixture(autouse=True)
def _with_cache_again(compiled_once: str) -> None:
    """After a test whose command turned it off."""
    if not jax.config.jax_enable_compilation_cache:
        _use(compiled_once)


@pytest.fixture
def tiny_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the configs', where nothing depends on their size."""
    shapes = {
        "small_mnist_cnn": (28, 28, 1),
        "small_cifar10_cnn": (32, 32, 3),
        "fashion_mnist_cnn": (28, 28, 1),
        "svhn_cnn": (32, 32, 3),
    }
    for name, shape in shapes.items():
        network = models.classifier(models.MLP((4,), 10), shape)
        monkeypatch.setattr(models, name, lambda *weights, network=network: network)


class Bigrams(nn.Module):
    """A network that is traced at once."""

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        return nn.Dense(VOCABULARY, name="head")(nn.Embed(VOCABULARY, 8)(characters))


@pytest.fixture
def tiny_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the configs', which take long to trace, whatever their size."""
    bigrams = models.next_character(Bigrams())
    monkeypatch.setattr(modules.load("correlated_text"), "MODEL", bigrams)
    monkeypatch.setattr(modules.load("fine_tuning_text").ToOtherPlays, "NETWORK", bigrams)
    tiny = models.next_character(models.Transformer(VOCABULARY, width=4, heads=1, layers=2))
    monkeypatch.setattr(modules.load("adapters").ToLastPlays, "NETWORK", tiny)
