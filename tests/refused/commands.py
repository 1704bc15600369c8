"""What the commands refuse: status 2, one line on standard error, nothing on standard output, no file touched."""

import contextlib
import io
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from commands import audit, privacy, run, sweep

import experiments
from experiments import inversion
from experiments import run as run_
from experiments import sweep as sweep_
from experiments.runs.recorder import new_folder
from refused.row import Refusal

COMMANDS = {
    "run": run.main,
    "privacy": privacy.main,
    "sweep": sweep.main,
    "audit": audit.main,
    "inversion": inversion.main,
}
WRITING = {"run", "sweep", "inversion"}


def files():
    """What is there: folders, and files with what they hold."""
    return {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}


def refused(main, *words):
    """Raises the line that a command prints, as an error of the table's law."""
    before, out, err = files(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words])
    assert (code, out.getvalue()) == (2, "")
    assert files() == before
    said = err.getvalue()
    assert said.startswith("error: ")
    assert said.endswith("\n")
    raise ValueError(said.removeprefix("error: ").removesuffix("\n"))


def asked(words, there=None):
    """A command in words as they are typed, where the folder `kept` has these files.

    Those that write are given a folder that is not there.
    """
    for name, text in (there or {}).items():
        (Path("kept") / name).parent.mkdir(parents=True, exist_ok=True)
        (Path("kept") / name).write_text(text)
    name, *rest = words.split()
    if name in WRITING and "--output" not in rest and "--resume" not in rest:
        rest += ["--output", "never"]
    return refused(COMMANDS[name], *rest)


GRID = "sweep quickstart --algorithms rand_k --grid"
BEST = (
    "sweep quickstart --cohort 3 --local.epochs 1 --rounds 3 --every 3 --algorithms dp_fed_avg"
    " --best-of 3"
)
CHOICE = f"{BEST} --delta 0.01 --grid noise-multiplier=1,2"
RUN = "run quickstart --algorithms fed_avg"
GROUPS = "privacy quickstart --groups.names a b"
LATE = "privacy late --clients 20 --at-work 4 --buffer 2 --rounds 16"

# What is typed, what the line names, what it shows, what it advises where people act on it.
ASKED = [
    ("run nonsense", "config", "'nonsense'"),
    ("run quikstart", "config", "'quikstart'", "did you mean quickstart?"),
    ("run quickstart --noise 4", "--noise", "unknown", "did you mean --noise-multiplier?"),
    ("run nowhere.py", "config", "nowhere.py"),
    ("run quickstart --rounds many", "--rounds", "'many'"),
    ("run quickstart --rounds 1e3", "--rounds", "'1e3'"),
    ("run quickstart --sampling sometimes", "--sampling", "'sometimes'"),
    ("run quickstart --algorithms", "algorithms"),
    ("run quickstart --num-processes 0.5", "--num-processes", "0.5"),
    ("run quickstart --num-processes two", "--num-processes", "'two'"),
    ("run quickstart --process-id nan", "--process-id", "nan"),
    ("run quickstart --coordinator h:1", "num_processes", "process_id"),
    ("run quickstart --coordinator h:1 --num-processes 2 --process-id 2", "process_id", "2"),
    ("run quickstart --coordinator h --num-processes 2 --process-id 1", "coordinator", "'h'"),
    ("run quickstart --algorithms rand_k --p 1e-9", "p", "1e-09"),
    ("run quickstart --clients 5000", "clients", "5000"),
    ("run quickstart --public-examples 1400", "public_examples", "1400"),
    (
        "run quickstart --algorithms dp_fed_avg --stop-at-epsilon 1e-3",
        "stop_at_epsilon",
        "0.001",
    ),
    ("run fed_smp_fashion_mnist --data-dir there", "fashion_mnist", "there"),
    ("run fed_smp_svhn --data-dir there", "svhn_cropped", "there"),
    ("run fed_smp_shakespeare --data-dir there", "shakespeare", "there"),
    ("run dp_scaffold_synthetic --clip-norm mean", "--clip-norm", "mean"),
    ("privacy mspdq_mnist --gamma 0.4", "gamma", "0.4"),
    ("privacy mspdq_mnist --consensus-step 2.5", "step", "2.5"),
    ("privacy wavelet_mnist --lot 50000", "lot", "50000"),
    (f"privacy quickstart --rounds {'9' * 26}", "rounds", "27 digits"),
    ("privacy quickstart --cohort 121", "cohort", "121"),
    ("privacy quickstart --honest 0", "--honest", "0.0"),
    ("privacy quickstart --solve luck", "--solve", "'luck'"),
    ("privacy quickstart --solve noise", "solve", "noise"),
    ("privacy quickstart --claimed", "claimed", "True"),
    (
        "privacy quickstart --algorithms dp_fed_avg --solve rounds --target-epsilon 1e-6",
        "epsilon",
        "1e-06",
    ),
    ("privacy quickstart --solve noise --target-epsilon 1 --algorithms fed_avg", "fed_avg"),
    ("sweep quickstart --rounds 3", "grid", "none"),
    ("sweep quickstart --grid p=0.1 --secret-seed", "--secret-seed", "unknown"),
    (f"{GRID} rounds", "grid", "'rounds'"),
    (f"{GRID} rounds=1,,2", "grid", "'rounds'"),
    (f"{GRID} rounds=1,2 p=0.1 rounds=3", "grid", "'rounds'"),
    (f"{GRID} p=0.1,0.1", "grid", "'p'"),
    (f"{GRID} p=0.1,0.10", "grid", "p 0.10"),
    (f"{GRID} p=0.1,0.2 --p 0.3", "p", "swept"),
    (f"{GRID} roundz=1,2", "--roundz", "unknown"),
    (f"{GRID} local.epoch=1,2", "local.epoch", "did you mean --local.epochs"),
    (f"{GRID} rounds=1,many", "rounds", "many"),
    (f"{GRID} rounds=1,0", "rounds", "0", "(at rounds 0)"),
    (f"{GRID} cohort=3,500", "cohort", "500"),
    (f"{GRID} sampling=poisson,sometimes", "sampling", "sometimes"),
    (f"{GRID} output=a,b", "output"),
    (f"{GRID} p=0.1,0.2 folds=5", "grid", "folds"),
    (f"{GRID} p=0.1,0.2 --record wandb", "record"),
    (f"{GRID} p=0.1,0.2 --checkpoint.rounds 5", "checkpoint"),
    (f"{GRID} p=0.1,0.2 --folds 1", "folds", "1"),
    (f"{GRID} p=0.1,0.2 --folds many", "--folds", "'many'"),
    (f"{GRID} p=0.1,0.2 --folds 2 --best-of 3", "best_of"),
    (f"{GRID} p=0.1,0.2 --folds 2 --fold 1 2", "fold", "swept"),
    (f"{GRID} metric=loss,accuracy", "metric"),
    (f"{GRID} p=0.1,0.2 --rouns 3", "--rouns", "unknown"),
    (f"{CHOICE} --best-of 0.5", "best_of", "0.5"),
    (f"{CHOICE} --best-of inf", "best_of", "inf"),
    (f"{CHOICE} --best-of nan", "best_of", "nan"),
    (f"{CHOICE} --best-of many", "--best-of", "'many'"),
    (f"{CHOICE} --view server", "view"),
    (f"{CHOICE} --target-epsilon 2", "target_epsilon"),
    (f"{CHOICE} --algorithms dp_fed_avg rand_k", "best_of", "dp_fed_avg rand_k"),
    (f"{CHOICE} --algorithms fed_avg", "fed_avg"),
    (f"{BEST} --delta 0.01 --grid seeds=1,2", "seeds", "2"),
    (f"{BEST} --delta 0.01 --grid sampling=poisson,fixed_size", "relation", "replace_one"),
    ("audit nowhere", "config", "'nowhere'"),
    ("audit quickstart --draws 5", "--draws", "5"),
    ("audit quickstart --canaries 0", "--canaries", "0"),
    ("audit quickstart --parts all", "--parts", "all"),
    ("audit quickstart --runs 99", "--runs", "99"),
    ("audit quickstart --deltas 0.1 1", "--deltas[1]", "1.0"),
    ("audit quickstart --audit-seed -1", "--audit-seed", "-1"),
    ("audit quickstart --roundz 5", "--roundz", "unknown"),
    ("audit fed_smp_fashion_mnist --parts one_run --data-dir there", "fashion_mnist", "there"),
    ("inversion --victims 1", "--victims", "1"),
    ("inversion --steps 0", "--steps", "0"),
    ("inversion --data imagenet", "--data", "'imagenet'"),
    ("inversion --seed -1", "--seed", "-1"),
    ("inversion --data mnist --data-dir there", "mnist", "there"),
    # What fuzzing found.
    ("privacy mspdq_mnist --clients 100000", "clients", "100000"),
    ("privacy wavelet_mnist --proxy 70000", "proxy", "70000"),
    ("privacy quickstart --rounds x\x1b[31m", "--rounds", r"'x\x1b[31m'"),
    ("privacy quickstart true", "'true'"),
    # Public groups, integers, vanishing clients.
    (f"{GROUPS} --groups.labels a b", "groups.labels", "2"),
    (f"{GROUPS} --groups.shares 0.999 0.001", "groups.shares", "0.001"),
    ("privacy quickstart --bits 3 --algorithms rand_k", "bits", "3"),
    (
        "privacy quickstart --bits 14 --integer-noise discrete_gaussian --algorithms rand_k",
        "mechanism",
    ),
    # What single configs refuse.
    (f"{LATE} --most-late 5", "delay", "6 steps"),
    (f"{LATE} --at-work 19 --algorithms fed_avg_quick", "at_work", "19"),
    ("privacy correlated --clients 6 --cohort 2 --rounds 6 --bands 7", "bands", "7"),
]

RECORDED = Path(__file__).parents[1] / "run_of_2026" / "config.json"


def begun(**settings):
    """The folder of a run that was killed early, with other settings."""
    about = json.loads(RECORDED.read_text())
    return {"config.json": json.dumps(about | {"settings": about["settings"] | settings})}


def damaged(**about):
    return {"config.json": json.dumps({"config": "quickstart", "settings": {}} | about)}


CODE = {"code": {}}
# What lies in `kept`, its files, and then as above.
FOUND = [
    ("a run", {"metrics.jsonl": ""}, f"{RUN} --output kept", "output", "kept", "choose another"),
    ("my file", {"mine.txt": ""}, f"{GRID} p=0.1,0.2 --output kept", "output", "no sweep"),
    ("half a sweep", {"sweep.json": "{"}, f"{GRID} p=0.1,0.2 --output kept", "kept", "cannot read"),
    ("a file", {"x": ""}, f"{GRID} p=0.1,0.2 --output kept/x/s", "output", "kept/x/s"),
    ("nothing", {}, "run --resume kept", "resume", "kept"),
    ("half a run", {"config.json": '{"config": "quicks'}, "run --resume kept", "resume", "JSON"),
    ("another's", damaged(config="nonsense", environment=CODE), "run --resume kept", "resume"),
    ("no environment", damaged(), "run --resume kept", "resume", "environment"),
    ("old", damaged(settings={"q": 1}, environment=CODE), "run --resume kept", "resume", "q: "),
    ("a run", begun(), "run --resume kept --p 0.2 --local.epochs 2", "p", "0.1 there, 0.2 here"),
    ("a run", begun(), "run --resume kept --local.epochs 2", "local.epochs", "1 there, 2 here"),
    ("a run", begun(), "run --resume kept --keep-model true", "keep_model", "False there"),
    ("a run", begun(), "run --resume kept --rounds 20", "rounds", "4 there, 20 here"),
    ("a run", begun(), "run --resume kept --algorithms rand_k", "algorithms", "rand_k here"),
    ("a run", begun(), "run --resume kept --stop-at-epsilon 3", "stop_at_epsilon", "3.0 here"),
    ("a run", begun(), "run --resume kept --layout.clients 2", "layout.clients", "2 here"),
    ("a run", begun(), "run --resume kept mspdq_mnist", "config", "mspdq_mnist here"),
    ("a run", begun(), "run --resume kept --output elsewhere", "output", "elsewhere"),
    ("a run", begun(), "run --resume kept --roundz 3", "--roundz", "unknown"),
    ("a run", begun(), "run --resume kept --secret-seed", "secret_seed", "kept"),
    ("patience", begun(patience=3), "run --resume kept --metric loss", "metric", "patience"),
    (
        "a bound",
        begun(bound=0.4, per_client=3),
        "run --resume kept --metric loss",
        "metric",
        "bound",
    ),
]


def untouched(call):
    """A call that leaves no file behind."""
    before = files()
    try:
        call()
    finally:
        assert files() == before


def left(name):
    """A folder with this of a run whose config.json is gone."""
    (Path("kept") / name).mkdir(parents=True)
    untouched(lambda: new_folder(SimpleNamespace(output=Path("kept")), "quickstart"))


OF_FEATURES = {"target_epsilon": 2.0, "statistics": 0.1, "rounds": 2}
NEW = {"folder": "never", "progress": False}
CALLED = [
    ("run(roundz=)", lambda: run_("quickstart", roundz=3, **NEW), "roundz", "did you mean rounds"),
    ("run(cohort=)", lambda: run_("quickstart", cohort=121, **NEW), "cohort", "121"),
    ("run(config)", lambda: run_("quickstrat", **NEW), "config", "'quickstrat'"),
    ("sweep of nothing", lambda: sweep_("quickstart", {}, **NEW), "grid"),
    ("sweep(p, p=)", lambda: sweep_("quickstart", {"p": [0.2]}, p=0.3, **NEW), "p", "swept"),
    ("table of no run", lambda: experiments.table([]), "runs", "none"),
    ("table(3)", lambda: experiments.table(3), "runs", "3"),
    ("report of no run", lambda: experiments.report([]), "runs", "none"),
    ("report to a PDF", lambda: experiments.report([], "x.pdf"), "path", "'x.pdf'"),
    ("figure without a suffix", lambda: experiments.figure([], "acc"), "path", "'acc'"),
    ("audit of statistics", lambda: experiments.audit("quickstart", **OF_FEATURES), "statistics"),
    (
        "sweep of statistics",
        lambda: sweep_("quickstart", {"p": (0.1, 0.2)}, **OF_FEATURES, **NEW),
        "statistics",
    ),
]


def _short(words):
    return words if len(words) < 80 else f"{words[:20]} .. {words[-50:]}"


def _rows():
    for words, field, *more in ASKED:
        call = partial(asked, words)
        yield Refusal(_short(words), call, field, *more[:1], remedy="".join(more[1:]))
    for what, there, words, field, *more in FOUND:
        call = partial(asked, words, there)
        name = f"{_short(words)}, where {what} is"
        yield Refusal(name, call, field, *more[:1], remedy="".join(more[1:]))
    for name, call, field, *more in CALLED:
        yield Refusal(f"experiments.{name}", partial(untouched, call), field, *more)
    for name, shown in (("checkpoints", "checkpoints"), ("secret_seed", "secret seed")):
        yield Refusal(f"a new run beside {shown}", partial(left, name), "output", shown)


ROWS = [*_rows()]
