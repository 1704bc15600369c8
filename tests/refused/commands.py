"""What the commands refuse: status 2, one line on standard error, nothing on standard output, no file touched."""

import contextlib
import io
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from fedpriv import experiments
from fedpriv.experiments.commands import audit, inversion, privacy, run, sweep
from fedpriv.experiments.runs.recorder import new_folder
from fedpriv.experiments.search.sweep import sweep as sweep_
from fedpriv.experiments.training.train import run as run_

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
BEST = "sweep quickstart --cohort 3 --rounds 3 --every 3 --algorithms dp_fed_avg --best-of 3"
CHOICE = f"{BEST} --delta 0.01 --grid noise-multiplier=1,2"
RUN = "run quickstart --algorithms fed_avg"
GROUPS = "privacy quickstart --groups.names a b"
LATE_CLIENTS = "privacy late --clients 20 --at-work 4 --buffer 2 --rounds 16"
UNKNOWN, SEES = "unknown field; did you mean", "a server sees every run"

# What is typed, what the line names, what it shows.
ASKED = [
    ("run nonsense", "config", "'nonsense'"),
    ("run quikstart", "config", ("'quikstart'", "did you mean quickstart?")),
    ("run nowhere.py", "config", "nowhere.py"),
    ("run quickstart --noise 4", "--noise", f"{UNKNOWN} --noise-multiplier?"),
    ("run quickstart --rounds 1e3", "--rounds", "'1e3'"),
    ("run quickstart --sampling sometimes", "--sampling", "'sometimes'"),
    ("run quickstart --algorithms", "algorithms", "()"),
    ("run quickstart --coordinator h:1", "num_processes, process_id", "not given"),
    ("run dp_scaffold_synthetic --clip-norm mean", "--clip-norm", "mean"),
    ("privacy quickstart --cohort 121", "cohort", "121"),
    ("privacy quickstart --honest 0", "--honest", "0.0"),
    ("privacy quickstart --claimed", "claimed", "True"),
    (f"privacy quickstart --rounds {'9' * 26}", "rounds", "27 digits"),
    ("privacy quickstart --rounds x\x1b[31m", "--rounds", r"'x\x1b[31m'"),
    ("privacy quickstart true", "'true'", "belongs to no field"),
    ("sweep quickstart --rounds 3", "grid", "none is given"),
    ("sweep quickstart --grid p=0.1 --secret-seed", "--secret-seed", UNKNOWN),
    (f"{GRID} rounds", "grid", ("'rounds'", "no values")),
    (f"{GRID} rounds=1,,2", "grid", ("'rounds'", "an empty one")),
    (f"{GRID} rounds=1,2 p=0.1 rounds=3", "grid", ("'rounds'", "repeats")),
    (f"{GRID} p=0.1,0.1", "grid", ("'p'", "repeats")),
    (f"{GRID} p=0.1,0.2 --p 0.3", "p", "swept"),
    (f"{GRID} local.epoch=1,2", "--local.epoch", f"{UNKNOWN} --local.epochs?"),
    (f"{GRID} p=0.1,0.2 folds=5", "grid", "give --folds VALUE"),
    (f"{GRID} p=0.1,0.2 --folds 1", "folds", "1"),
    (f"{GRID} p=0.1,0.2 --folds 2 --best-of 3", "folds: 2", "best_of"),
    (f"{GRID} p=0.1,0.2 --folds 2 --fold 1 2", "fold", "swept"),
    (f"{CHOICE} --best-of many", "--best-of", "'many'"),
    ("audit quickstart --draws 5", "--draws", "5"),
    ("audit quickstart --deltas 0.1 1", "--deltas[1]", "1.0"),
    ("inversion --victims 1", "--victims", "1"),
]
# The same, told after data are looked for, or rounds are traced.
ASKED_LATE = [
    ("run quickstart --algorithms rand_k --p 1e-9", "p", "1e-09"),
    ("run quickstart --clients 5000", "clients", "5000"),
    ("run quickstart --public-examples 1400", "public_examples", "1400"),
    (
        "run quickstart --algorithms dp_fed_avg --stop-at-epsilon 1e-3",
        "stop_at_epsilon",
        ("0.001", "raise it or the noise"),
    ),
    ("run fed_smp_fashion_mnist --data-dir there", "fashion_mnist", "there"),
    ("run fed_smp_shakespeare --data-dir there", "shakespeare", "there"),
    ("privacy mspdq_mnist --gamma 0.4", "gamma", "0.4"),
    ("privacy mspdq_mnist --consensus-step 2.5", "step", "2.5"),
    ("privacy mspdq_mnist --clients 100000", "clients", "100000"),
    ("privacy wavelet_mnist --lot 50000", "lot", "50000"),
    ("privacy wavelet_mnist --proxy 70000", "proxy", "70000"),
    ("privacy quickstart --solve noise", "solve", ("noise", "target_epsilon")),
    (
        "privacy quickstart --algorithms dp_fed_avg --solve rounds --target-epsilon 1e-6",
        "epsilon",
        "1e-06",
    ),
    (
        "privacy quickstart --solve noise --target-epsilon 1 --algorithms fed_avg",
        "algorithms",
        "none of fed_avg adds noise",
    ),
    (f"{GRID} p=0.1,0.10", "grid", "p 0.1 and p 0.10"),
    (f"{GRID} roundz=1,2", "--roundz", UNKNOWN),
    (f"{GRID} rounds=1,many", "--rounds", "'many'"),
    (f"{GRID} rounds=1,0", "rounds", ("0", "(at rounds 0)")),
    (f"{GRID} cohort=3,500", "cohort", "500"),
    (f"{GRID} sampling=poisson,sometimes", "--sampling", "'sometimes'"),
    (f"{GRID} output=a,b", "grid", "leave output out"),
    (f"{GRID} p=0.1,0.2 --record wandb", "checkpoint, record", "records in its folders"),
    (f"{GRID} p=0.1,0.2 --checkpoint.rounds 5", "checkpoint, record", "restarts the point"),
    (f"{GRID} metric=loss,accuracy", "metric", "leave it out of the grid"),
    (f"{CHOICE} --best-of 0.5", "best_of", "0.5"),
    (f"{CHOICE} --best-of inf", "best_of", "inf"),
    (f"{CHOICE} --best-of nan", "best_of", "nan"),
    (f"{CHOICE} --view server", "view", ("server", "towards a third party")),
    (f"{BEST} --grid target-epsilon=1,2", "target_epsilon", ("1.0 and 2.0", "give one")),
    ("privacy quickstart --best-of 4 --solve noise --target-epsilon 1 --view server", "view", SEES),
    ("privacy quickstart --best-of 4 --target-epsilon 1 --statistics 0.1", "best_of", "statistics"),
    (f"{GROUPS} --groups.epsilons 1 2 --best-of 4", "best_of", "groups.epsilons"),
    (f"{CHOICE} --algorithms dp_fed_avg rand_k", "best_of", "dp_fed_avg rand_k"),
    (f"{CHOICE} --algorithms fed_avg", "best_of", "fed_avg has no finite epsilon"),
    (f"{BEST} --delta 0.01 --grid seeds=1,2", "grid", "seeds 1 and seeds 2"),
    (f"{BEST} --delta 0.01 --grid sampling=poisson,fixed_size", "relation", "'replace_one'"),
    ("audit fed_smp_fashion_mnist --parts one_run --data-dir there", "fashion_mnist", "there"),
    ("inversion --data mnist --data-dir there", "mnist", "there"),
    # Public groups, integers, vanishing clients.
    (f"{GROUPS} --groups.labels a b", "groups.labels", "2"),
    (f"{GROUPS} --groups.shares 0.999 0.001", "groups.shares", "0.001"),
    ("privacy quickstart --bits 3 --algorithms rand_k", "bits", ("3", "give 9")),
    (
        "privacy quickstart --bits 14 --integer-noise discrete_gaussian --algorithms rand_k",
        "mechanism",
        "'discrete_gaussian'",
    ),
    # What single configs refuse.
    (f"{LATE_CLIENTS} --most-late 5", "delay", "6 steps"),
    (f"{LATE_CLIENTS} --at-work 19 --algorithms fed_avg_quick", "at_work", ("19", "only 18")),
    ("privacy correlated --clients 6 --cohort 2 --rounds 6 --bands 7", "bands", "7"),
]

RECORDED = Path(__file__).parents[1] / "run_of_2026" / "config.json"


def begun(**settings):
    """The folder of a run that was killed early, with other settings."""
    about = json.loads(RECORDED.read_text())
    return {"config.json": json.dumps(about | {"settings": about["settings"] | settings})}


def damaged(**about):
    return {"config.json": json.dumps({"config": "quickstart", "settings": {}} | about)}


ELSE = "--p 0.2 --keep-model true --rounds 20 --stop-at-epsilon 3 --layout.clients 2"
CODE, RESUME, HALF = {"code": {}}, "run --resume kept", {"config.json": '{"config": "quicks'}
DIFFERS = (
    "p 0.1 there, 0.2 here",
    "keep_model False there, True here",
    "rounds 4 there, 20 here",
    "stop_at_epsilon None there, 3.0 here",
    "layout.clients None there, 2 here",
)
ALGORITHMS = "algorithms dp_fed_avg rand_k there, rand_k here"
# What lies in `kept`, and then as above.
FOUND = [
    ({"metrics.jsonl": ""}, f"{RUN} --output kept", "output", ("kept", "choose another")),
    ({"mine.txt": ""}, f"{GRID} p=0.1,0.2 --output kept", "output", "no sweep"),
    ({"sweep.json": "{"}, f"{GRID} p=0.1,0.2 --output kept", "kept", "cannot read"),
    ({}, RESUME, "resume", "kept"),
    (HALF, RESUME, "resume", "JSONDecodeError"),
    (damaged(config="nonsense", environment=CODE), RESUME, "resume", "there is no 'nonsense'"),
    (damaged(), RESUME, "resume", "environment"),
    (damaged(settings={"q": 1}, environment=CODE), RESUME, "resume", "ValueError: q"),
    (begun(), f"{RESUME} {ELSE}", "resume", DIFFERS),
    (begun(), f"{RESUME} --algorithms rand_k", "resume", ALGORITHMS),
    (begun(), f"{RESUME} mspdq_mnist", "resume", "config quickstart there, mspdq_mnist here"),
    (begun(), f"{RESUME} --output elsewhere", "output", "elsewhere"),
    (begun(), f"{RESUME} --roundz 3", "--roundz", UNKNOWN),
    (begun(), f"{RESUME} --secret-seed", "secret_seed", "kept was begun without one"),
    (begun(patience=3), f"{RESUME} --metric loss", "metric", "patience decides"),
    (begun(bound=0.4, per_client=3), f"{RESUME} --metric loss", "metric", "which bound is of"),
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


def audited():
    return experiments.audit("quickstart", **OF_FEATURES)


def swept():
    return sweep_("quickstart", {"p": (0.1, 0.2)}, **OF_FEATURES, **NEW)


OF_FEATURES = {"target_epsilon": 2.0, "statistics": 0.1, "rounds": 2}
NEW = {"folder": "never", "progress": False}
CALLED = [
    ("run(roundz=)", lambda: run_("quickstart", roundz=3, **NEW), "roundz", "did you mean rounds"),
    ("run(cohort=)", lambda: run_("quickstart", cohort=121, **NEW), "cohort", "121"),
    ("run(config)", lambda: run_("quickstrat", **NEW), "config", "'quickstrat'"),
    ("sweep of nothing", lambda: sweep_("quickstart", {}, **NEW), "grid", "none is given"),
    ("sweep(p, p=)", lambda: sweep_("quickstart", {"p": [0.2]}, p=0.3, **NEW), "p", "swept"),
    ("table of no run", lambda: experiments.table([]), "runs", "there are none"),
    ("table(3)", lambda: experiments.table(3), "runs", "3"),
    ("report of no run", lambda: experiments.report([]), "runs", "there are none"),
    ("report to a PDF", lambda: experiments.report([], "x.pdf"), "path", "'x.pdf'"),
    ("figure without a suffix", lambda: experiments.figure([], "acc"), "path", "'acc'"),
    ("audit of statistics", audited, "statistics", "of training alone"),
    ("sweep of statistics", swept, "statistics", "compiles its points before"),
]
ROWS = [
    *((words, partial(asked, words), field, shown) for words, field, shown in ASKED),
    *((f"{w}, {[*there]}", partial(asked, w, there), field, s) for there, w, field, s in FOUND),
    *((f"{name}", partial(untouched, call), field, s) for name, call, field, s in CALLED),
    ("a new run beside checkpoints", partial(left, "checkpoints"), "output", "checkpoints"),
    ("a new run beside a seed", partial(left, "secret_seed"), "output", "secret seed"),
]
IN_A_FILE = partial(asked, f"{GRID} p=0.1,0.2 --output kept/x/s", {"x": ""})
LATE = [
    *((words, partial(asked, words), field, shown) for words, field, shown in ASKED_LATE),
    ("a sweep in a file", IN_A_FILE, "output: cannot write", "kept/x/s"),
]
