"""What a config or a command refuses: in one line that names the field or option, before anything is read or built.

A config's fields are tried by their kind; `WRONG` has what a kind does not tell, `ASKED` what commands are asked.
"""

import contextlib
import dataclasses
import io
import math
import re
import typing
from pathlib import Path

import pytest
from commands import audit, privacy, run, sweep
from prepared import write_random

from experiments import inversion
from experiments.config import modules
from experiments.config.settings import changed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ODD = [object(), {}, "no such thing", math.nan, -1, -1.0, 10**400]
FREE = {"bound": (math.nan, -1.0)}  # read where the metric is known
TEXT = {str, Path}


def fields_of(cls, group=""):
    """(class that declares it, field, nested ones by dots; its kind), of a config's class."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind, name = hints[field.name], group + field.name
        if dataclasses.is_dataclass(kind):
            yield from fields_of(kind, f"{name}.")
        owner = next(c for c in cls.__mro__ if field.name in vars(c).get("__annotations__", {}))
        yield owner, name, kind


def by_class():
    """Class -> {field: (a config that has it, its kind)}."""
    found = {}
    for config in modules.names():
        for owner, field, kind in fields_of(type(modules.load(config).settings)):
            found.setdefault(owner.__qualname__, {}).setdefault(field, (config, kind))
    return found


FIELDS = by_class()


def refusal(config, given):
    """The line with which a config refuses settings."""
    with pytest.raises(ValueError, match=r"^[^\n]{1,300}$") as error:
        changed(modules.load(config).settings, given)
    return str(error.value)


@pytest.mark.parametrize("owner", FIELDS)
def test_what_is_not_of_its_kind_is_refused_by_its_name(owner):
    for field, (config, kind) in FIELDS[owner].items():
        fine = [*FREE.get(field, ())]
        fine += ["no such thing"] if TEXT & {kind, *typing.get_args(kind)} else []
        fine += [{}] if dataclasses.is_dataclass(kind) else []
        given = {"weighting.cap": 9.0} if field == "weighting.mean" else {}  # goes with it
        for value in ODD:
            if value not in fine:
                said = refusal(config, given | {field: value})
                named = re.escape(field.rpartition(".")[2])
                assert re.match(rf"([a-z0-9_]+\.)?{named}\b", said), (field, value, said)
    assert FIELDS[owner]


WRONG = [
    ("quickstart", {"rounds": 0}, "rounds: 0; give a whole number from 1"),
    ("quickstart", {"every": 0}, "every: 0"),
    ("quickstart", {"seeds": 0}, "seeds: 0"),
    ("quickstart", {"stop_at_epsilon": math.inf}, "stop_at_epsilon: inf is not above 0 and finite"),
    ("quickstart", {"target_epsilon": 0}, "target_epsilon: 0.0 is not above 0"),
    (
        "quickstart",
        {"target_epsilon": 1, "stop_at_epsilon": 1},
        "stop_at_epsilon: 1.0 ends training early",
    ),
    ("quickstart", {"bound": 0.5}, "bound: 0.5 has no effect without per_client"),
    ("quickstart", {"fold": (1, 1)}, "fold: 1 1 is not a part of several"),
    ("quickstart", {"fold": (4, 3)}, "fold: 4 3 is not a part of several"),
    ("quickstart", {"layout.devices": 0}, "layout.devices: 0"),
    ("quickstart", {"layout.clients": 0}, "layout.clients: 0"),
    ("quickstart", {"checkpoint.minutes": math.inf}, "checkpoint.minutes: inf"),
    ("quickstart", {"local.batch_size": 0}, "batch_size: 0"),
    ("quickstart", {"local.micro": 0}, "micro: 0"),
    ("quickstart", {"local.micro": 6}, "local.micro: 6 exceeds local.batch_size, 5"),
    ("quickstart", {"p": 0}, "p: 0"),
    ("quickstart", {"p": 1.5}, "p: 1.5"),
    ("quickstart", {"clip_norm": 0}, "clip_norm: 0"),
    ("quickstart", {"clip_norm": math.inf}, "clip_norm: inf"),
    ("quickstart", {"noise_multiplier": math.inf}, "noise_multiplier: inf"),
    ("quickstart", {"delta": 1}, "delta: 1"),
    ("quickstart", {"capacity": 0}, "capacity: 0"),
    ("quickstart", {"public_epochs": 0}, "public_epochs: 0"),
    ("quickstart", {"algorithms": ()}, "algorithms: (); name at least one, and each once"),
    ("quickstart", {"algorithms": ("rand_k", "rand_k")}, "algorithms: ('rand_k', 'rand_k'); name"),
    ("quickstart", {"algorithms": ("fed_avg", "best")}, "algorithms: 'best' is not one of fed_avg"),
    ("quickstart", {"server.second_momentum": 1}, "second_momentum: 1.0; give"),
    ("quickstart", {"server.decay": 0}, "decay: 0.0; give"),
    ("quickstart", {"weighting.mean": 0.5}, "cap: none is given, so that nothing bounds"),
    ("quickstart", {"weighting.cap": math.inf}, "cap: inf; give a finite number above 0"),
    ("quickstart", {"weighting": {"cap": 9.0, "mean": 2.0}}, "mean: 2.0; give"),
    ("quickstart", {"roundz": 3}, "roundz: there is no such setting; did you mean rounds"),
    ("quickstart", {"local": {"epoch": 3}}, "local.epoch: there is no such setting; did you mean"),
    ("quickstart", {"rounds": True}, "rounds: True is not an integer"),
    ("mspdq_mnist", {"submodels": (0, 1)}, "submodels[0]: 0; give"),
    ("mspdq_mnist", {"bits": 0}, "bits: 0; give"),
    ("mspdq_mnist", {"least_weight": 0}, "least_weight: 0.0; give"),
    ("mspdq_mnist", {"cohort": 0}, "cohort: 0; give"),
    ("mspdq_mnist", {"learning_rate": 0}, "learning_rate: 0.0; give"),
    ("mspdq_mnist", {"delta": 1}, "delta: 1.0; give"),
    ("dp_scaffold_synthetic", {"client_rate": 0}, "client_rate: 0.0; give"),
    ("dp_scaffold_synthetic", {"client_rate": 1e-3}, "client_rate: 0.001 of 100 is less than one"),
    ("dp_scaffold_synthetic", {"record_rate": 2}, "record_rate: 2.0; give"),
    ("dp_scaffold_synthetic", {"clip_norm": 0}, "clip_norm: 0.0; give"),
    (
        "dp_scaffold_synthetic",
        {"warm_start": 0, "authors.everyone_first": True},
        "authors.everyone_first: there is no",
    ),
    ("dp_scaffold_synthetic", {"rounds": 6, "warm_start": 6}, "warm_start: 6 of 6 rounds leave"),
    ("dp_scaffold_mnist", {"gamma": 101}, "gamma: 101"),
    ("wavelet_mnist", {"clients": 4, "cohort": 5}, "cohort: 5 exceeds the 4 clients"),
    ("wavelet_mnist", {"clip_norm": 0}, "clip_norm: 0.0; give"),
    ("wavelet_mnist", {"noise_multiplier": 0}, "noise_multiplier: 0.0; give"),
    ("wavelet_mnist", {"delta": 2}, "delta: 2.0; give"),
    ("wavelet_mnist", {"dyn.parts": 0}, "parts: 0; give"),
    ("wavelet_mnist", {"dyn.clip_decay": 0}, "clip_decay: 0.0; give"),
    ("wavelet_mnist", {"quantile": 1}, "quantile: 1.0; give"),
    ("pfl_cifar10", {"cohort": 2000}, "cohort: 2000"),
    ("pfl_cifar10", {"noise_cohort": 40}, "noise_cohort: 40"),
    ("pfl_cifar10", {"alpha": 0}, "alpha: 0.0"),
    ("pfl_cifar10", {"delta": 1}, "delta: 1"),
    (
        "race",
        {"algorithms": ("ldp_fed_avg",), "weighting.cap": 3.0},
        "weighting.cap: ldp_fed_avg counts all clients equally",
    ),
    ("personal", {"held_out": 1.5}, "held_out: 1.5; give a probability"),
]


@pytest.mark.parametrize(("config", "given", "said"), WRONG)
def test_a_config_refuses(config, given, said):
    assert refusal(config, given).startswith(said)


SCAFFOLD = "run dp_scaffold_synthetic --clients 10 --records 50 --rounds 6 --every 3 --warm-start 1"
MSP = (
    "run mspdq_mnist --clients 4 --cohort 2 --local-epochs 1 --rounds 2 --algorithms mspdq_fl"
    " --data-dir {data}"
)
WAVELET = (
    "run wavelet_mnist --clients 4 --cohort 2 --lot 5 --proxy 12 --rounds 2 --delta 1e-3"
    " --algorithms dp_sgd dp_fed_avg_adaptive --data-dir {data}"
)
GRID = "sweep quickstart --algorithms rand_k --grid"
BEST = (
    "sweep quickstart --cohort 3 --local.epochs 1 --rounds 3 --every 3 --algorithms dp_fed_avg"
    " --best-of 3"
)
CHOICE = f"{BEST} --delta 0.01 --grid noise-multiplier=1,2"
TINY = (
    "--rounds 2 --seeds 2 --clients 40 --cohort 10 --local.epochs 1 --layout.devices 1 --draws 2000"
)
ONE_RUN = f"audit quickstart {TINY} --parts one_run"

ASKED = [
    ("run nonsense", "config: there is no 'nonsense'; choose one of adapters, audited, "),
    ("run quikstart", "config: there is no 'quikstart'; did you mean quickstart? Choose one of "),
    ("run quickstart --noise 4", "--noise: unknown field; did you mean --noise-multiplier?"),
    ("run quickstart --epochs 4", "--epochs: unknown field; did you mean --local.epochs?"),
    ("run nowhere.py", "nowhere.py; give the path of a Python file"),
    ("run quickstart --rounds many", "--rounds"),
    ("run quickstart --rounds 1e3", "--rounds: '1e3' is not an integer"),
    ("run quickstart --rounds 0", "rounds: 0"),
    ("run quickstart --sampling sometimes", "'sometimes' for argument '--sampling'"),
    ("run quickstart --algorithms sgd", "'sgd' for argument '--algorithms'"),
    ("run quickstart --algorithms", "algorithms"),
    ("run quickstart --server.optimizer adamw", "server.optimizer"),
    ("run quickstart --num-processes 0.5", "num-processes"),
    ("run quickstart --process-id nan", "process-id"),
    ("run quickstart --p 1e-9", "k = 0"),
    ("run quickstart --clients 5000", "5000"),
    ("run quickstart --public-examples 1400", "public_examples: 1400"),
    (
        "run quickstart --clients 30 --cohort 6 --stop-at-epsilon 1e-3",
        "stop_at_epsilon: 0.001 is less than the certified",
    ),
    ("run fed_smp_fashion_mnist --data-dir {tmp}", "fashion_mnist is not in {tmp}"),
    ("run fed_smp_svhn --data-dir {tmp}", "svhn_cropped is not in {tmp}"),
    ("run fed_smp_shakespeare --data-dir {tmp}", "shakespeare"),
    (f"{SCAFFOLD} --records 3", "records: 3; give"),
    (f"{SCAFFOLD} --sizes secret", "record_sampling: subsets of one size show how many records"),
    (f"{SCAFFOLD} --clip-norm mean", "clip-norm"),
    (f"{SCAFFOLD} --unit user", "unit"),
    (f"{MSP} --gamma 0.4", "gamma: 0.4 for up to 1 invisible submodels"),
    (f"{MSP} --consensus-step 2.5", "step: 2.5 is not in"),
    (f"{MSP} --splitting-factor 1", "factor: 1.0; give"),
    (f"{MSP} --interval sideways", "sideways"),
    (f"{MSP} --shards 30", "shards_per_client: 30 for 4 clients, but there are"),
    (f"{WAVELET} --lot 50", "lot: 50 exceeds the 10 records of a client"),
    (f"{WAVELET} --proxy 50", "proxy: 50 of 52 images leave none for 4 clients"),
    ("privacy nonsense", "config: there is no 'nonsense'"),
    (f"privacy quickstart --rounds {'9' * 26}", "rounds: a whole number of about 27 digits; give"),
    ("privacy quickstart --cohort 121", "cohort: 121 exceeds the 120 clients"),
    ("privacy quickstart --view phone", "'phone' for argument '--view'"),
    ("privacy quickstart --honest 0", "--honest: 0.0; give a number above 0"),
    ("privacy quickstart --solve luck", "'luck' for argument '--solve'"),
    ("privacy quickstart --solve noise", "solve: noise needs a target"),
    ("privacy quickstart --claimed", "claimed: True; needs to know"),
    ("privacy quickstart --solve rounds --target-epsilon 1e-6", "a single round costs"),
    (
        "privacy quickstart --solve noise --target-epsilon 1 --algorithms fed_avg",
        "none of fed_avg adds noise",
    ),
    ("sweep quickstart --rounds 3", "grid: none is given"),
    (f"{GRID} rounds", "grid: 'rounds' has no values, or an empty one"),
    (f"{GRID} rounds=1,,2", "grid: 'rounds' has no values, or an empty one"),
    (f"{GRID} rounds=1,2 p=0.1 rounds=3", "'rounds' repeats a field or a value"),
    (f"{GRID} p=0.1,0.1", "'p' repeats a field or a value"),
    (f"{GRID} p=0.1,0.10", "p 0.1 and p 0.10 are the same settings"),
    (f"{GRID} p=0.1,0.2 --p 0.3", "p: swept by the grid, too"),
    (f"{GRID} roundz=1,2", "--roundz: unknown field; did you mean --rounds"),
    (f"{GRID} local.epoch=1,2", "did you mean --local.epochs"),
    (f"{GRID} rounds=1,many", "many"),
    (f"{GRID} rounds=1,0", "rounds: 0; give a whole number from 1 to 16777216 (at rounds 0)"),
    (f"{GRID} cohort=3,500", "cohort: 500 exceeds the 120 clients; choose fewer (at cohort"),
    (f"{GRID} sampling=poisson,sometimes", "sometimes"),
    (f"{GRID} p=0.1,1e-9", "k = 0"),
    (f"{GRID} output=a,b", "leave output out"),
    (f"{GRID} p=0.1,0.2 folds=5", "grid: folds is an option of the command"),
    (f"{GRID} p=0.1,0.2 --record wandb", "leave these out"),
    (f"{GRID} p=0.1,0.2 --checkpoint.rounds 5", "leave these out"),
    (f"{GRID} p=0.1,0.2 --folds 1", "folds: 1; give"),
    (f"{GRID} p=0.1,0.2 --folds many", "--folds: 'many' is not"),
    (f"{GRID} p=0.1,0.2 --folds 2 --best-of 3", "leave best_of out"),
    (f"{GRID} p=0.1,0.2 --folds 2 --fold 1 2", "fold: swept by the grid"),
    (f"{GRID} metric=loss,accuracy", "metric: one metric compares all points"),
    (f"{GRID} p=0.1,0.2 --rouns 3", "--rouns: unknown field; did you mean --rounds"),
    (f"{CHOICE} --best-of 0.5", "best_of: 0.5 is not a finite mean above 1"),
    (f"{CHOICE} --best-of inf", "best_of: inf is not a finite mean"),
    (f"{CHOICE} --best-of nan", "best_of: nan is not a finite mean"),
    (f"{CHOICE} --best-of many", "--best-of: 'many' is not"),
    (f"{CHOICE} --view server", "target_epsilon, view: best_of certifies"),
    (f"{CHOICE} --target-epsilon 2", "target_epsilon, view: best_of certifies"),
    (f"{CHOICE} --algorithms dp_fed_avg rand_k", "dp_fed_avg rand_k are several algorithms; name"),
    (f"{CHOICE} --algorithms fed_avg", "fed_avg has no finite epsilon (not private"),
    (f"{BEST} --delta 0.01 --grid seeds=1,2", "seeds 1 and seeds 2 are the same settings"),
    (f"{BEST} --grid delta=0.01,0.02", "delta and clients must be those of the other points"),
    (f"{BEST} --delta 0.01 --grid clients=60,120", "delta and clients must be those of the other"),
    (
        f"{BEST} --delta 0.01 --grid sampling=poisson,fixed_size",
        "relation: ['add_or_remove', 'replace_one']; choose among settings of one kind",
    ),
    ("audit nowhere", "config: there is no 'nowhere'"),
    ("audit quickstart --draws 5", "--draws: 5; give"),
    ("audit quickstart --canaries 0", "--canaries: 0; give"),
    ("audit quickstart --parts all", "--parts"),
    ("audit quickstart --runs 99", "--runs: 99; give"),
    ("audit quickstart --deltas 0.1 1", "--deltas[1]: 1.0; give"),
    ("audit quickstart --audit-seed -1", "--audit-seed: -1; give"),
    ("audit quickstart --roundz 5", "--roundz: unknown field; did you mean --rounds?"),
    (f"{ONE_RUN} --canaries 4", "--canaries: 4 in each of 2 run(s) bound nothing"),
    (f"{ONE_RUN} --canaries 41 --deltas 1e-5", "count: 41; give 1 to 40"),
    ("audit fed_smp_fashion_mnist --parts one_run --data-dir /nowhere", "fashion_mnist"),
    ("inversion --victims 1", "--victims: 1; give"),
    ("inversion --steps 0", "--steps: 0; give"),
    ("inversion --data imagenet", "'imagenet' for argument '--data'"),
    ("inversion --seed -1", "--seed: -1; give"),
    ("inversion --data mnist --data-dir /nowhere", "/nowhere"),
]
COMMANDS = {
    "run": run.main,
    "privacy": privacy.main,
    "sweep": sweep.main,
    "audit": audit.main,
    "inversion": inversion.main,
}
WRITING = {"run", "sweep", "inversion"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "mnist", train=52, test=20)
    return folder


@pytest.mark.parametrize(("words", "said"), ASKED)
def test_a_command_refuses(words, said, data, tmp_path):
    """Exit code 2, nothing on standard output, no folder."""
    name, *args = words.format(data=data, tmp=tmp_path).split()
    folder = tmp_path / "never"
    args += ["--output", str(folder)] if name in WRITING else []
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = COMMANDS[name](args)
    assert (code, out.getvalue()) == (2, "")
    error = err.getvalue()
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said.format(tmp=tmp_path) in error
    assert not folder.exists()
