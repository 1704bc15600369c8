"""Records beside metrics.jsonl: TensorBoard's files read back, a stand-in for W&B, own sinks, ones that fail."""

import builtins
import json
import math
import struct
import sys
from types import ModuleType, SimpleNamespace

import pytest

from experiments.run import main
from experiments.runs import sinks
from experiments.runs.scalars import scalars

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "12", "--cohort", "5", "--sampling", "fixed_size", "--layout.devices", "1"]
SMALL += ["--local.epochs", "1", "--capacity", "5", "--public-examples", "5", "--seeds", "2"]
RUN = [*SMALL, "--algorithms", "fed_avg", "rand_k", "--rounds", "5", "--every", "2"]
GRID = [(name, r) for name in ("fed_avg", "rand_k") for r in (2, 4, 5)]


def launch(folder, *args, **options):
    return main([*RUN, *args, "--output", str(folder)], **options)


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run with TensorBoard that was killed when its last line but one had been written."""
    pytest.importorskip("tensorboardX")
    folder = tmp_path_factory.mktemp("run") / "r"
    kill = Own({("rand_k", 4): _KilledError()})
    often = ["--record", "tensorboard", "--checkpoint.rounds", "1"]
    with pytest.raises(_KilledError):
        launch(folder, *often, sinks=[kill])
    return folder


def events(folder):
    """[(tag, step, value)] of all event files in a folder, in the order in which they were written."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):  # length, its checksum, event, its checksum
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            at += 16 + length
    return found


@pytest.mark.slow
def test_tensorboard_has_every_step_once_after_a_resume(stopped):
    assert main(["--resume", str(stopped)]) == 0
    for name in ("fed_avg", "rand_k"):
        own = [r for r in records(stopped) if r["algorithm"] == name]
        expected = {(tag, r["round"]): value for r in own for tag, value in scalars(r).items()}
        written = events(stopped / "tensorboard" / name)
        assert len(written) == len(expected)
        assert {(t, s): v for t, s, v in written} == pytest.approx(expected, rel=1e-6)
        assert [s for t, s, _ in written if t == "accuracy"] == [2, 4, 5]
    tags = {t for t, *_ in events(stopped / "tensorboard" / "rand_k")}
    assert "epsilon/certified/third_party/client/replace_one" in tags
    assert "epsilon/claimed/third_party/client/add_or_remove" in tags
    tags = {t for t, *_ in events(stopped / "tensorboard" / "fed_avg")}
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
    monkeypatch.delitem(sys.modules, "experiments.runs.weights_and_biases", raising=False)
    yield server
    sys.modules.pop("experiments.runs.weights_and_biases", None)


@pytest.mark.slow
def test_wandb_has_a_run_per_algorithm_that_a_resume_goes_on_with(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    folder = tmp_path / "r"
    kill = Own({("rand_k", 4): _KilledError()})
    with pytest.raises(_KilledError):
        launch(folder, "--record", "wandb", "--checkpoint.rounds", "1", sinks=[kill])
    assert main(["--resume", str(folder)]) == 0
    first, second, *again = wandb.given
    assert [g["name"] for g in wandb.given] == ["fed_avg", "rand_k"] * 2
    assert [g["id"] for g in again] == [first["id"], second["id"]]
    assert first["id"] != second["id"]
    assert {g["project"] for g in wandb.given} == {"mine"}
    assert {g["group"] for g in wandb.given} == {"r"}
    assert first["config"]["p"] == 0.1
    assert first["resume"] == "allow"
    assert wandb.finished == [first["id"], second["id"]] * 2
    for name, given in (("fed_avg", first), ("rand_k", second)):
        own = [r for r in records(folder) if r["algorithm"] == name]
        rows = wandb.rows[given["id"]]
        assert [step for step, _ in rows] == [2, 4, 5]
        for (_, values), record in zip(rows, own, strict=True):
            known = scalars(record)
            no_time = {"seconds_not_private": 0}
            assert values | no_time == known | no_time


@pytest.mark.slow
def test_a_sink_that_fails_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    """And libraries that are not asked for are not imported."""
    imported = builtins.__import__

    def watched(name, *args, **kwargs):
        assert name.partition(".")[0] not in {"tensorboardX", "wandb"}
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watched)
    full, good = Own({("fed_avg", 4): OSError(28, "No space left on device")}), Own()
    assert launch(tmp_path / "r", sinks=[full, good]) == 0
    error = capsys.readouterr().err
    assert error.count("warning: record: Own failed (OSError: [Errno 28] No space left") == 1
    assert [(r["algorithm"], r["round"]) for r in full.records] == [("fed_avg", 2)]
    assert good.records == records(tmp_path / "r")
    assert [(r["algorithm"], r["round"]) for r in good.records] == GRID


@pytest.mark.parametrize(("name", "library"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_library_that_is_not_installed(name, library, tmp_path, monkeypatch, capsys):
    find = sinks.importlib.util.find_spec
    monkeypatch.setattr(
        sinks.importlib.util, "find_spec", lambda n, *a: None if n == library else find(n, *a)
    )
    assert launch(tmp_path / "never", "--record", name) == 2
    assert capsys.readouterr().err == (
        f"error: record: {name} needs {library}, which is not installed; pip install {library}\n"
    )
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_a_service_that_does_not_start(wandb, tmp_path, monkeypatch, capsys):
    """At the first record: training goes on."""

    def refused(**_):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(wandb, "init", refused)
    assert launch(tmp_path / "r", "--record", "wandb") == 0
    assert "WeightsAndBiases failed (ConnectionError: no route" in capsys.readouterr().err
    assert len(records(tmp_path / "r")) == len(GRID)
