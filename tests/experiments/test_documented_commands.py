"""Every command of the guides and of the results pages is understood, and those that read run folders run.

What trains, solves or measures runs in the tests of each command, and every config in `test_every_config.py`.
"""

import contextlib
import importlib
import re
import shlex
from pathlib import Path

import pytest
import recorded
from every_config import CONFIGS, kind
from reported import edit, record
from tiers import cases

from fedpriv.experiments import commands as launcher
from fedpriv.experiments.commands import sweep
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.options import only_options, parse, split_options
from fedpriv.experiments.papers.reproduce.reproduce import chosen, find
from fedpriv.experiments.search.sweep_grid import points

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "ARTIFACT.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts),
]
PAGES += sorted((ROOT / "experiments" / "results").glob("*.md"))
OWN_CONFIG = re.compile(r"```python\n(# (?:hospitals|tumours).py\n.*?)```", re.DOTALL)
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
READERS = ("compare", "report", "uploads")
LATE = ("late_plain", "late/secret_8", "late/known_8", "late/known_2")  # drawn in one figure
NUMBER = re.compile(r"[\d.e+,-]+")
DEAR = ("wavelet", "least_error")
"""What a command has a word of whose ledger takes seconds: it computes budgets, or optimises the noise."""


def documented() -> list[tuple[str, tuple[str, ...]]]:
    """(module, arguments), once each, of the shell blocks and of commands within a sentence."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
        shell = "\n".join(block for kind, block in blocks if kind in ("", "bash", "sh"))
        inline = re.findall(
            r"`((?:taskset -c 1 )?(?:python -m experiments\.|fedpriv )[a-z][^`]+)`", text
        )
        lines = shell.replace("\\\n", " ").splitlines() + [x.replace("\n", " ") for x in inline]
        named = dict(re.findall(r'^(\w+)="(.*)"$', "\n".join(lines), re.MULTILINE))
        for line in lines:
            values = named | dict(re.findall(r"for (\w+) in (\S+)", line))
            for command in re.findall(
                r"(?:python -m experiments\.|\bfedpriv )([a-z][^;&#|>]*)", line
            ):
                for name, value in values.items():
                    command = command.replace(f"${name}", value)
                command = command.replace("CONFIG", "quickstart").replace(
                    " FILE ", " hospitals.py "
                )
                module, *args = shlex.split(command.replace("[", "").replace("]", ""))
                if module == "benchmark":
                    module = f"benchmark {args.pop(0)}"
                found[module, tuple(args)] = None
    return list(found)


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Of those that differ in numbers alone, one."""
    kept: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    for module, args in documented():
        words = (word for word in args if not NUMBER.fullmatch(word))
        kept.setdefault((module, *words), (module, args))
    return list(kept.values())


COMMANDS = commands()
READ = [x for x in COMMANDS if x[0] in READERS or {"--list", "--help"} & {*x[1]}]
OTHERS = [x for x in COMMANDS if x not in READ]


def words_of(args: tuple[str, ...]) -> list[str]:
    """Of a command that takes a config."""
    return [*args] if args and not args[0].startswith("--") else ["quickstart", *args]


def kind_of(command: tuple[str, tuple[str, ...]]) -> object:
    """Of a run or a sweep its config's, a guide's own is one by itself; all other commands are alike."""
    module, args = command
    name = words_of(args)[0]
    return module in ("run", "sweep") and (module, kind(CONFIGS[name]) if name in CONFIGS else name)


def write_configs(folder: Path) -> None:
    """The guides' own configs, and the file that one of them reads."""
    for page in ("own_config", "cross_silo"):
        text = (DOCS / "how_to" / f"{page}.md").read_text()
        (config,) = OWN_CONFIG.findall(text)
        (folder / config.split(maxsplit=2)[1]).write_text(config)
    with contextlib.chdir(folder):
        exec(EXAMPLE.search(text)[1], {})


def test_the_pages_have_commands():
    modules = {module for module, _ in COMMANDS}
    assert len(OTHERS) > 60
    assert {"run", "sweep", "privacy", "audit", "race", "uplink", "inversion"} <= modules
    assert {"reproduce", "benchmark rounds", "benchmark growth", *READERS} <= modules


@pytest.mark.parametrize("command", cases(OTHERS, kind_of), ids=lambda x: str(x)[:60])
def test_its_settings_are_made(command, tmp_path, monkeypatch):
    """Also of every point of a sweep; where a config says without its data what is released, the algorithms are built.

    But for `DEAR` ones, and for budgets, which are solved for.
    """
    monkeypatch.chdir(tmp_path)
    write_configs(tmp_path)
    module, args = command
    name, *part = module.split()
    of = importlib.import_module(
        f"experiments.speed.{part[0]}" if part else f"{launcher.__name__}.{name}"
    )
    if not hasattr(of, "split_options"):
        options = only_options(of.Options, args, module, of.__doc__)
        if module == "reproduce" and not options.findings:
            chosen(find(options.paper, options.item), options.only)
    elif module == "sweep":
        options, rest = split_options(sweep.AllOptions, words_of(args))
        asked = sweep._asked(rest, options)
        assert not asked.grid or points(asked.grid, asked.settle)
    else:
        _, (config, *rest) = split_options(of.Options, words_of(args))
        found = modules.load(config)
        settings = parse(found, config, rest)
        solves = settings.target_epsilon is not None or "--groups.epsilons" in args
        dear = any(word.startswith(DEAR) for word in args)
        if hasattr(found, "ledger") and not solves and not dear:
            assert ledger_of(found, settings).entries


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Run folders by the names that pages give them."""
    folder = tmp_path_factory.mktemp("runs")
    measured = {"log_dissimilarity": 0.5, "user_drift": 0.1}
    of_records = recorded.RECORDS | {"measured": measured}
    pair = ("dp_scaffold", "dp_fed_avg")
    record(folder / "A", algorithms=pair, **of_records)
    record(folder / "B", algorithms=pair[:1], beta=5.0, seed=1, **of_records)
    record(folder / "exchanges", name="mspdq_mnist", algorithms=("mspdq_fl",))
    lines = folder / "exchanges" / "metrics.jsonl"
    lines.write_text(lines.read_text().replace("mean_update_norm", "exchanges"))
    names = ("dp_fed_avg", "dp_fed_avg_quick")
    for seed, name in enumerate(LATE):
        record(folder / name, name="late", algorithms=names, rounds=(5, 10), seed=seed)
        hours = {name: {"hours_per_round": 2.0} for name in names}
        edit(folder / name / "summary.json", algorithm_settings=hours)
    for bits in (None, 16):
        record(folder / "bits" / f"{bits}", algorithms=("rand_k",), bits=bits, seed=bits or 0)
    clients = recorded.CLIENTS | {"algorithms": ("fed_avg", "dp_fed_avg")}
    measured = {"personal_accuracy_mean": 0.6}
    record(folder / "clients", of_groups=recorded.GROUPS, measured=measured, **clients)
    return folder


def there(word: str, module: str, folders: Path) -> str:
    """The folder that a page's word stands for; other words stand for themselves."""
    named = dict.fromkeys(["runs/A", "theirs", "syn_0", "mnist_0", "femnist_0"], "A")
    named |= dict.fromkeys(["runs/B", "syn_1", "syn_5", "mnist_10", "mnist_100"], "B")
    named |= dict.fromkeys(["femnist_10", "femnist_100"], "B")
    named |= dict.fromkeys(["runs/personal", "runs/at_2", "runs/fashion"], "clients")
    named |= {f"runs/{name}": name for name in LATE} | {"runs/late": LATE[0]}
    named |= {"FOLDER": "exchanges" if module == "uploads" else "A", "...": "B"}
    named |= {"sweeps/fashion-8-dense": "bits", "sweeps/fashion-8-sparse": "bits"}
    if word in ("runs/noise", "runs/budgets"):
        return str(recorded.made("sweep").path)
    return str(folders / named[word]) if word in named else word


@pytest.mark.slow
@pytest.mark.parametrize(("module", "args"), READ, ids=lambda x: str(x)[:60])
def test_it_reads_run_folders(module, args, folders, tmp_path, monkeypatch, capsys):
    """Those of the names that the page gives; protected records are clients' here."""
    monkeypatch.chdir(tmp_path)
    args = [there(word, module, folders) for word in args]
    recorded_here = {"dp_sgd": "fed_avg", "no_noise": "fed_avg", "banded": "dp_fed_avg"}
    args = [recorded_here.get(word, word) for word in args]
    try:
        code = launcher.call(module, args)
    except SystemExit as end:  # --help
        code = int(end.code or 0)
    assert code == 0, capsys.readouterr().err
