"""Every command of the guides and of the results pages runs, at a tiny scale and on made-up data.

The settings of all runs and sweeps are made, which says what is wrong with what they give. Of each kind of config a
sweep trains, the first and the last algorithm that it names.
"""

import contextlib
import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import loaded, sweep
from every_config import CONFIGS, FIRST, kind
from prepared import write_random
from test_shakespeare import LONG, write_plays
from tiers import cases

from experiments.config import modules
from experiments.config.options import parse, split_options
from experiments.papers.reproduce import work
from experiments.search import race
from experiments.search.sweep_grid import points
from experiments.speed import growth, haar_speed, round_speed, rounds
from experiments.speed.growth_point import here
from experiments.speed.haar_speed import Transform
from experiments.speed.workloads import Images, Records

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

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SHORT = ["--rounds", "2", "--seeds", "1", "--layout.devices", "1", "--every", "2"]
FED_SMP = ["--clients", "8", "--cohort", "2", "--public-examples", "16", "--public-epochs", "1"]
FED_SMP += ["--train-loss-examples", "8", "--local.epochs", "1", "--local.batch-size", "5"]
SCAFFOLD = ["--clients", "20", "--records", "25", "--local-steps", "1", "--warm-start", "1"]
SMALL = {
    "quickstart": [],
    "fed_smp_fashion_mnist": FED_SMP,
    "dp_scaffold_synthetic": [*SCAFFOLD, "--records", "50"],
    "tumours.py": [],
    "who_is_hurt": ["--clients", "9", "--cohort", "4", "--epochs", "1", "--hidden", "2"],
    "own_budgets": [
        *FED_SMP,
        "--clients",
        "20",
        "--cohort",
        "4",
        "--images",
        "100",
        "--image-steps",
        "1",
    ],
    "personal": ["--clients", "8", "--cohort", "2", "--per-client", "8"],
    "correlated": ["--clients", "8", "--cohort", "2", "--bands", "2", "--buffers", "1"],
    "late": ["--clients", "20", "--at-work", "2", "--buffer", "2", "--most-late", "24"],
    "audited": ["--clients", "20", "--cohort", "5"],
    "mspdq_mnist": ["--clients", "8", "--cohort", "3", "--local-epochs", "1", "--exchanges", "2"],
}
LATE = ("secret_8", "known_8", "known_2")  # runs that are drawn in one figure
# What a test of this size sets itself, or what other tests have.
SCALES = (
    "--rounds",
    "--every",
    "--seeds",
    "--output",
    "--layout.devices",
    "--repeats",
    "--devices",
    "--cohort",
    "--data-dir",
    "--datasets",
)
SCALES += (
    "--only",
    "--scale",
    "--parts",
    "--runs",
    "--deltas",
    "--learning-rate",
    "--noise-multiplier",
    "--clip-norm",
    "--eta-0",
    "--local-steps",
    "--gamma",
)
# What makes any other command small; later options win.
OWN = {
    "audit": ["--draws", "100", "--canaries", "40", "--runs", "100"],
    "reproduce": ["--only", "top_k p=0.005", "--seeds", "1"],
    "benchmark rounds": ["--clients", "2", "--repeats", "1", "--devices", "1"],
    "benchmark growth": ["--repeats", "1"],
    "race": ["--datasets", "digits", "--rounds", "2", "--seeds", "1", "--entrants", "DP-FedAvg"],
}
# test_any_argument, test_inversion_command, test_scale_out, test_start, test_benchmark, test_gpu_parts,
# test_cifar10_speed, test_large_speed, test_integer_speed
ELSEWHERE = {"odd_calls", "inversion"}
OF_SPEED = ("scale_out", "start", "page", "gpu", "cifar10", "large", "integers")
ELSEWHERE |= {f"benchmark {part}" for part in OF_SPEED}


def documented() -> list[tuple[str, tuple[str, ...]]]:
    """(module, arguments), once each, of the shell blocks and of commands within a sentence."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
        shell = "\n".join(block for kind, block in blocks if kind in ("", "bash", "sh"))
        inline = re.findall(r"`((?:taskset -c 1 )?python -m experiments\.[^`]+)`", text)
        lines = shell.replace("\\\n", " ").splitlines() + [x.replace("\n", " ") for x in inline]
        named = dict(re.findall(r'^(\w+)="(.*)"$', "\n".join(lines), re.MULTILINE))
        for line in lines:
            values = named | dict(re.findall(r"for (\w+) in (\S+)", line))
            for command in re.findall(r"python -m experiments\.([^;&#|>]*)", line):
                for name, value in values.items():
                    command = command.replace(f"${name}", value)
                command = command.replace("CONFIG", "quickstart")
                module, *args = shlex.split(command.replace("[", "").replace("]", ""))
                if module == "benchmark":
                    module = f"benchmark {args.pop(0)}"
                found[module, tuple(args)] = None
    return list(found)


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Of those with the same config and options, one. Other tests have what needs PyTorch, other simulators or several
    processes, the items of other papers than Fed-SMP (test_reproduce_trained), and the findings
    (test_findings)."""
    kept: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    for module, given in documented():
        args = tuple(a for a in given if a not in ("--torch", "--peers"))
        elsewhere = module in ELSEWHERE
        if module == "reproduce":
            elsewhere = args[:1] not in (("--list",), ("fed_smp",)) or "--findings" in args
        if not elsewhere:
            options = sorted(a for a in args if a.startswith("--") and a not in SCALES)
            configs = () if module.startswith("benchmark") else args[:1]
            named = next((a for a in configs if not a.startswith("--")), "quickstart")
            kept.setdefault((module, named, *options), (module, args))
    return list(kept.values())


COMMANDS = commands()


def two_algorithms(args: tuple[str, ...]) -> tuple[str, ...]:
    """With the first and the last of those that are named; the configs' own tests train the others."""
    if "--algorithms" not in args:
        return args
    first = args.index("--algorithms") + 1
    end = next((i for i in range(first, len(args)) if args[i].startswith("--")), len(args))
    return (*args[: first + 1], *args[max(first + 1, end - 1) : end], *args[end:])


def config_of(args: tuple[str, ...]) -> str:
    return args[0] if args and not args[0].startswith("--") else "quickstart"


def kind_of(args: tuple[str, ...]) -> object:
    """Of the command's config; a guide's own is one by itself."""
    name = config_of(args)
    return kind(CONFIGS[name]) if name in CONFIGS else name


def rank(command: tuple[str, tuple[str, ...]]) -> tuple[bool, int]:
    """The first config of its kind comes first, and of one config the command of most options."""
    _, args = command
    return config_of(args) in FIRST.values(), " ".join(args).count("--")


def trained_ones() -> list[tuple[str, tuple[str, ...]]]:
    """Of each kind of config a sweep, and the guides' own; test_every_config trains the others."""
    chosen: dict[object, tuple[str, tuple[str, ...]]] = {}
    for module, args in MADE:
        if module == "sweep" or config_of(args) not in CONFIGS:
            one = chosen.setdefault((module, kind_of(args)), (module, args))
            chosen[module, kind_of(args)] = max(one, (module, args), key=rank)
    return [*chosen.values()]


NOT_MADE = {
    "--resume",
    "--help",
    "--list",
    "--coordinator",
}  # of runs that need a folder or processes, or are none
MADE = [x for x in COMMANDS if x[0] in ("run", "sweep") and not NOT_MADE & {*x[1]}]
DONE = [x for x in COMMANDS if x not in MADE] + trained_ones()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Prepared data sets of random images, and two plays."""
    folder = tmp_path_factory.mktemp("data")
    names = ("mnist", "fashion_mnist", "cifar10", "emnist/balanced", "emnist/bymerge")
    write_random(folder, *names, train=1000, test=700)
    speeches = [(play, f"ROLE {i}", LONG) for play in "AB" for i in range(20) for _ in range(10)]
    write_plays(folder / "shakespeare" / "plays.jsonl", speeches)
    return folder


def write_configs(folder):
    """The guides' own configs, and the file that one of them reads."""
    for page in ("own_config", "cross_silo"):
        text = (DOCS / "how_to" / f"{page}.md").read_text()
        (config,) = OWN_CONFIG.findall(text)
        (folder / config.split(maxsplit=2)[1]).write_text(config)
    with contextlib.chdir(folder):
        exec(EXAMPLE.search(text)[1], {})


def launch(module: str, *args: object) -> int:
    try:
        name, *part = module.split()
        return loaded(name).main([*part, *map(str, args)])
    except SystemExit as end:  # --help
        return int(end.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_dir):
    """Runs to compare and to report, two of them client by client, one whose messages are counted, one by bits."""
    folder = tmp_path_factory.mktemp("trained")
    write_configs(folder)
    for name, config, *algorithms in (
        ("A", "dp_scaffold_synthetic", "dp_scaffold", "dp_fed_avg"),
        ("B", "dp_scaffold_synthetic", "dp_scaffold"),
        ("MSP", "mspdq_mnist", "mspdq_fl"),
        ("late", "late", "dp_fed_avg", "dp_fed_avg_quick"),
        ("hurt", "who_is_hurt", "fed_avg", "no_noise"),
        ("clients/personal", "personal", "dp_fed_avg", "fed_per"),
        ("clients/tumours", "tumours.py", "dp_sgd", "dp_scaffold"),
    ):
        small = ["--algorithms", *algorithms, *SHORT, *SMALL[config], "--data-dir", data_dir]
        with contextlib.chdir(folder):
            assert launch("run", config, *small, "--output", folder / name) == 0
    for name in LATE:
        shutil.copytree(folder / "late", folder / name)
    small = [*SHORT, *SMALL["own_budgets"], "--groups.names", "--data-dir", data_dir]
    bits = ["--algorithms", "rand_k", "--grid", "bits=None,16", "--output", folder / "bits"]
    assert launch("sweep", "own_budgets", *small, *bits) == 0
    return folder


def test_the_pages_have_commands():
    modules = {module for module, _ in COMMANDS}
    assert len(COMMANDS) > 35
    expected = {"run", "sweep", "compare", "report", "privacy", "audit"}
    assert expected | {"reproduce", "benchmark rounds", "benchmark growth"} <= modules


@pytest.fixture
def tiny(monkeypatch, tiny_networks, tiny_transformers):
    """Sizes that no option changes: of networks, the benchmark, the growth command, the race and the papers.

    test_every_config trains the transformers.
    """
    workloads = {
        "A": Images(clients=2, side=4, filters=(2, 3), hidden=(4,), examples=2, epochs=2),
        "B": Records(2, 10, 4, 3),
    }
    for name, small in workloads.items():
        monkeypatch.setitem(rounds.WORKLOADS, name, small)
    transform = Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,))
    monkeypatch.setattr(haar_speed, "WORKLOAD", transform)
    monkeypatch.setattr(round_speed, "PRODUCT", 8)
    axis = growth.Axis(("dp_fed_avg",), {"clients": 8, "parameters": 100}, (2, 4))
    monkeypatch.setattr(race, "BUDGETS", race.BUDGETS[:1])
    entrant = race.Entrant("dp_fed_avg", {race.CLIP: (0.1, 0.3)})
    monkeypatch.setitem(race.ENTRANTS, "DP-FedAvg", entrant)
    monkeypatch.setattr(growth, "AXES", {"cohort": axis})
    # On a busy machine measured times of tiny rounds may grow steeper than linearly, which is exit code 1.
    steady = {"peak_mb": 1.0, "seconds": [1.0]}
    monkeypatch.setattr(growth, "measured", lambda *given: here(*given) | steady)
    words, settings_of = [*SHORT, *SMALL["fed_smp_fashion_mnist"]], work.settings_of
    small = dict(zip((flag[2:] for flag in words[::2]), map(int, words[1::2]), strict=True))
    monkeypatch.setattr(work, "settings_of", lambda *given: settings_of(*given) | small)
    monkeypatch.setattr(work, "result", lambda *given: None)  # it would refuse other settings


def shrunk(module: str, args: list[str], data_dir: Path, trained: Path) -> list[str]:
    """The command on what is there, with options that make it small after its own."""
    there = {
        "DIR": data_dir,
        "runs/noise": trained,
        "runs/budgets": trained,
        "runs/personal": trained / "clients" / "personal",
        "runs/at_2": trained / "clients" / "tumours",
        "runs/fashion": trained / "hurt",
        "runs/late": trained / "late",
        "runs/late_plain": trained / "late",
        **{f"runs/late/{name}": trained / name for name in LATE},
    }
    there |= dict.fromkeys(["runs/A", "syn_0", "mnist_0", "femnist_0"], trained / "A")
    there |= dict.fromkeys(["runs/B", "syn_1", "syn_5", "mnist_10", "mnist_100"], trained / "B")
    there |= dict.fromkeys(["femnist_10", "femnist_100"], trained / "B")
    there |= dict.fromkeys(["sweeps/fashion-8-dense", "sweeps/fashion-8-sparse"], trained / "bits")
    exchanges = module == "uploads"
    there |= {"FOLDER": trained / ("MSP" if exchanges else "A"), "runs/long": trained / "A"}
    there |= {"...": trained / ("MSP" if exchanges else "B")}
    if "--coordinator" in args:  # test_processes starts several
        args = []
    before = ["", *args][: len(args)]
    args = [
        a if b == "--output" else str(there.get(a, fewer(a)))
        for a, b in zip(args, before, strict=True)
    ]
    trains = module in ("run", "sweep", "audit", "privacy")
    if module == "benchmark rounds" and "C" in args:  # it has no clients
        return [*args, "--repeats", "1"]
    if {"--list", "--help", "--resume"} & set(args) or not trains:
        return args + OWN.get(module, [])
    if args[:1] == [] or args[0].startswith("--"):
        args = ["quickstart", *args]
    small = [] if module == "privacy" else SHORT + SMALL.get(args[0], [])
    few = [] if module == "privacy" or "--algorithms" in args else fewest(module, args[0])
    few += ["--folds", "2"] if "--folds" in args else []
    return args + small + few + OWN.get(module, [])


def fewer(word: str) -> str:
    """Of an axis of numbers the first and the last; whatever else stays as it is."""
    axis = re.fullmatch(r"([\w.-]+=[\d.e+-]+,)(?:[\d.e+-]+,)+([\d.e+-]+)", word)
    return "".join(axis.groups()) if axis else word


def fewest(module: str, config: str) -> list[str]:
    """One of a config's algorithms; other tests train them all."""
    own = getattr(modules.load(config).settings, "algorithms", ())
    if module == "sweep":
        return ["--algorithms", "rand_k" if "rand_k" in own else own[-1]]
    return ["--algorithms", *(own[1:2] or own)] if own else []


@pytest.mark.parametrize(
    "command", cases(MADE, lambda x: (x[0], kind_of(x[1]))), ids=lambda x: str(x)[:60]
)
def test_its_settings_are_made(command, tmp_path, monkeypatch):
    """Of a run, and of every point of a sweep."""
    monkeypatch.chdir(tmp_path)
    write_configs(tmp_path)
    module, args = command
    words = list(args) if args and not args[0].startswith("--") else ["quickstart", *args]
    if module == "run":
        _, rest = split_options(loaded("run").Options, words)
        assert parse(modules.load(rest[0]), rest[0], rest[1:])
    else:
        options, rest = split_options(sweep.AllOptions, words)
        asked = sweep._asked(rest, options)
        assert not asked.grid or len(points(asked.grid, asked.settle)) > 1


# Two rounds of two clients, mostly noise, may end in models whose gradients are not finite.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*NaN or infinite:RuntimeWarning")
@pytest.mark.parametrize(("module", "args"), DONE, ids=lambda x: str(x)[:60])
def test_it_runs(module, args, data_dir, trained, tmp_path, monkeypatch, capsys, tiny):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    write_configs(tmp_path)
    small = shrunk(module, list(two_algorithms(args)), data_dir, trained)
    assert launch(module, *small) == 0, capsys.readouterr().err
