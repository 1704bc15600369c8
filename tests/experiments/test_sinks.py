"""Records beside metrics.jsonl: what TensorBoard shows, a stand-in for W&B, own sinks, ones that fail."""

import json
import math
import sys
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace

import pytest
from read_sinks import events
from recorded import made
from small import refused

from fedpriv.experiments.commands.run import main
from fedpriv.experiments.runs import sinks
from fedpriv.experiments.runs.scalars import scalars

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ABOUT = {"id": "some", "config": "quickstart", "settings": {"p": 0.1}}


def records(folder=None):
    path = (folder or made("private").path) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(name, folder, given):
    """What a run does that records so many lines; a later one, that goes on, gives them again."""
    with ExitStack() as until_end:
        (sink,) = sinks.opened([name], folder, ABOUT, until_end)
        guarded = sinks.guarded(sink)
        for record in given:
            guarded.write(record)


def test_tensorboard_has_epsilons_by_what_they_are_of(tmp_path):
    pytest.importorskip("tensorboardX")
    write("tensorboard", tmp_path, records())
    tags = {t for t, *_ in events(tmp_path / "tensorboard" / "rand_k")}
    assert "epsilon/certified/third_party/client/add_or_remove" in tags
    assert "epsilon/claimed/third_party/client/add_or_remove" in tags
    tags = {t for t, *_ in events(tmp_path / "tensorboard" / "fed_avg")}
    assert not [t for t in tags if t.startswith("epsilon")]  # infinite


def test_scalars_of_a_record():
    spread = {"mean": 0.5, "std": None, "per_seed": [0.5]}
    record = {
        "algorithm": "a",
        "round": 3,
        "metrics": {"accuracy": spread | {"std": 0.1}, "loss": spread | {"mean": "inf"}},
        "uplink_mb_per_client_not_private": 1.0,
        "downlink_mb_per_client_not_private": 2.0,
        "privacy": {
            "claimed": None,
            "certified": {
                "epsilon": 1.5,
                "unit": "record",
                "view": "server",
                "relation": "zero_out",
            },
        },
        "metrics_not_private": {"auc": spread},
        "diagnostics_not_private": {"norm": spread},
        "seconds_not_private": 0.25,
    }
    assert scalars(record) == {
        "accuracy": 0.5,
        "accuracy/std": 0.1,
        "loss": math.inf,
        "metrics_not_private/auc": 0.5,
        "diagnostics_not_private/norm": 0.5,
        "uplink_mb_per_client_not_private": 1.0,
        "downlink_mb_per_client_not_private": 2.0,
        "seconds_not_private": 0.25,
        "epsilon/certified/server/record/zero_out": 1.5,
    }


class Server(ModuleType):
    """In the place of the module `wandb`: what its server would know."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = SimpleNamespace()
        self.rows, self.given, self.finished = {}, [], []

    def init(self, **given):
        self.given.append(given)
        rows = self.rows.setdefault(given["id"], [])
        run = SimpleNamespace(step=rows[-1][0] + 1 if rows else 0)

        def log(values, step, commit):
            assert commit
            assert step >= run.step  # W&B drops others, with a warning
            rows.append((step, values))
            run.step = step + 1

        run.log, run.finish = log, lambda: self.finished.append(given["id"])
        return run


@pytest.fixture
def wandb(monkeypatch):
    server = Server()
    monkeypatch.setitem(sys.modules, "wandb", server)
    monkeypatch.delitem(sys.modules, "fedpriv.experiments.runs.weights_and_biases", raising=False)
    yield server
    sys.modules.pop("fedpriv.experiments.runs.weights_and_biases", None)


def test_wandb_has_a_run_per_algorithm_that_a_resume_goes_on_with(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    given = [r for r in records() if r["algorithm"] in ("fed_avg", "rand_k")]
    write("wandb", tmp_path / "r", given[:-2])
    write("wandb", tmp_path / "r", given)
    first, second, *again = wandb.given
    assert [g["name"] for g in wandb.given] == ["fed_avg", "rand_k"] * 2
    assert [g["id"] for g in again] == [first["id"], second["id"]]
    assert first["id"] != second["id"]
    assert {g["project"] for g in wandb.given} == {"mine"}
    assert {g["group"] for g in wandb.given} == {"r"}
    assert first["config"]["p"] == 0.1
    assert first["resume"] == "allow"
    assert wandb.finished == [first["id"], second["id"]] * 2
    for name, of in (("fed_avg", first), ("rand_k", second)):
        rows = wandb.rows[of["id"]]
        own = [sinks.released(r) for r in given if r["algorithm"] == name]
        assert rows == [(r["round"], scalars(r)) for r in own]


def test_a_service_that_does_not_start_is_said_once(wandb, tmp_path, monkeypatch, capsys):
    """At the first record: training goes on."""

    def unreachable(**_):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(wandb, "init", unreachable)
    write("wandb", tmp_path, records())
    error = capsys.readouterr().err
    assert error.count("warning: record: WeightsAndBiases failed (ConnectionError: no route") == 1


@pytest.mark.parametrize(("name", "library"), sinks.LIBRARIES.items())
def test_a_library_that_is_not_installed(name, library, monkeypatch):
    find = sinks.importlib.util.find_spec
    monkeypatch.setattr(
        sinks.importlib.util, "find_spec", lambda n, *a: None if n == library else find(n, *a)
    )
    with refused(f"^record: {name} needs {library}, .*; pip install {library}"):
        sinks.check_installed([name])


class Own:
    """A sink that raises what it is given when a record comes."""

    def __init__(self, failures=None):
        self.records, self.failures = [], failures or {}

    def write(self, record):
        at = (record["algorithm"], record["round"])
        if at in self.failures:
            raise self.failures[at]
        self.records.append(record)


class _KilledError(BaseException):
    pass


SMALL = ["--clients", "12", "--cohort", "5", "--sampling", "fixed_size", "--layout.devices", "1"]
SMALL += ["--local.epochs", "1", "--capacity", "5", "--public-examples", "5", "--seeds", "2"]
RUN = [*SMALL, "--algorithms", "rand_k", "--rounds", "5", "--every", "2"]
GRID = [("rand_k", r) for r in (2, 4, 5)]


@pytest.mark.slow
def test_a_run_gives_its_records_to_every_sink_until_one_fails(tmp_path, capsys):
    """Killed when its last line but one had been written, and gone on with."""
    pytest.importorskip("tensorboardX")
    full, good = Own({("rand_k", 4): OSError(28, "No space left on device")}), Own()
    kill, folder = Own({("rand_k", 4): _KilledError()}), tmp_path / "r"
    often = ["--record", "tensorboard", "--checkpoint.rounds", "1", "--output", str(folder)]
    with pytest.raises(_KilledError):
        main([*RUN, *often], sinks=[full, good, kill])
    error = capsys.readouterr().err
    assert error.count("warning: record: Own failed (OSError: [Errno 28] No space left") == 1
    assert [(r["algorithm"], r["round"]) for r in full.records] == GRID[:1]
    assert good.records == [*map(sinks.released, records(folder))]
    assert [(r["algorithm"], r["round"]) for r in good.records] == GRID[:-1]
    assert main(["--resume", str(folder)]) == 0
    written = [s for t, s, _ in events(folder / "tensorboard" / "rand_k") if t == "accuracy"]
    assert written == [2, 4, 5]
