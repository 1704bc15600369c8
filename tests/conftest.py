"""Two host devices for every test, so that runs over several devices are tested on any machine.

Nothing is kept from one module to the next: what JAX traced and compiled takes gigabytes, and modules share little.
No cache of programs is used, neither the user's own nor one of the tests, but in modules that ask for `compiled_once`.
Most programs are tiny: to write one takes as long as to compile it.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # here, and in processes that tests start

import jax
import pytest
from costs import Costs
from flax import linen as nn
from jax.experimental.compilation_cache import compilation_cache

from fedpriv import models
from fedpriv.data.datasets.shakespeare import VOCABULARY
from fedpriv.devices.layout import split_cpu
from fedpriv.experiments.config import modules

# For the processes that tests start: configs and experiments are not installed.
root, *others = str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])
os.environ["PYTHONPATH"] = os.pathsep.join([root, *others])
if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know a flag ends the process
    own = "--xla_cpu_parallel_codegen_split_count=1"  # less work, where others keep the other cores busy
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {own}".strip()
gc.set_threshold(50_000, 20, 20)  # tracing makes many objects and few cycles
split_cpu(2)
jax.devices()  # started now: a command that a test calls first would start it with another number


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="show what each file costs")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.costs:
        config.pluginmanager.register(Costs())


def pytest_collection_finish() -> None:
    """What importing made stays, and need not be looked through after each module."""
    gc.collect()
    gc.freeze()


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
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("xla")


@pytest.fixture(scope="module")
def compiled_once(_programs: Path) -> Iterator[None]:
    """Programs that take a while to compile are kept, by this process and by those that it starts.

    For modules that train the same again, or start processes that do; most save half of their time.
    """
    kept = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(_programs)}
    kept |= {"jax_persistent_cache_min_compile_time_secs": 0.1}
    before = {name: getattr(jax.config, name) for name in kept}
    with pytest.MonkeyPatch.context() as patch:
        try:
            for name, value in kept.items():
                patch.setenv(name.upper(), str(value))
                jax.config.update(name, value)
            compilation_cache.reset_cache()  # JAX asks once, when it first compiles
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def _nothing_kept() -> Iterator[None]:
    """After each module."""
    yield
    jax.clear_caches()
    gc.collect()


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
    monkeypatch.setattr(modules.load("few_authors").FewAuthors, "NETWORK", tiny)
