"""Runs: their arguments, layouts, checkpoints, processes, and models that are kept."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
from small import filled, regression, squared, start

import fedpriv as fp
from fedpriv.data.datasets import Dataset
from fedpriv.devices.distributed import initialize
from fedpriv.experiments.config.stopping import Stopping, target

FEDERATION = regression([2] * 3)
TEST = jax.tree.map(np.asarray, FEDERATION.examples)


def score(params, example):
    return {"loss": squared(params, example)}


def running(sampler=None, params=None, test=TEST, federation=FEDERATION, **options):
    """A run, of which some arguments are wrong."""
    algorithm = fp.fed_sgd(squared, sampler=sampler or fp.everyone(3), learning_rate=0.1)
    given = {"score": score, "rounds": 2} | options
    fp.simulate(algorithm, start() if params is None else params, federation, test, **given)


def in_place_of_a_file(folder):
    Path("file").write_text("")
    running(checkpoints=fp.Checkpoints(folder))


MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
LARGER = fp.models.classifier(fp.models.MLP((4, 3), 3), (2, 2, 1))


def saving(params=None, name="a"):
    fp.models.save_model(".", name, 0, MODEL, params or filled(MODEL.init))


HISTORY = fp.History((9, 5, 1), state=fp.ModelState({"w": np.zeros((3, 2))}, np.zeros(3)))
TWO = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), filled(MODEL.init))
CALLED = {"on_evaluation": print}

RUNS = [
    ("no seeds", {"seeds": ()}, "seeds", "()"),
    ("a seed twice", {"seeds": (3, 3)}, "seeds", "(3, 3)"),
    ("a seed twice, of two types", {"seeds": [3, 1, np.int64(3)]}, "seeds", "(3, 1, 3)"),
    ("a strategy's name", {"strategy": "vmap"}, "strategy", "'vmap'"),
    ("a folder's name", {"checkpoints": "folder"}, "checkpoints", "'folder'"),
    ("a measure that is a number", {"measure": 1}, "measure", "1"),
    ("a list to call", {"on_evaluation": []}, "on_evaluation", "[]"),
    ("a record that is a number", {"record": 3}, "record", "3"),
    ("no score", {"score": None}, "score", "None"),
    ("a model for its start", {"params": MODEL}, "params", ("Model", "`init`")),
    ("a data set for its test", {"test": Dataset("toy", TEST, TEST, 3)}, "test", "Dataset"),
    ("a sampler of 4", {"sampler": fp.fixed_size(4, 2)}, "sampler", "4 clients"),
    ("a sampler of 2", {"sampler": fp.poisson(2, 0.5, 2)}, "sampler", "2 clients"),
    ("two federations", {"federation": [FEDERATION] * 2}, "federation", "2 given"),
    ("an unmeasured number", {"not_covered": ("height",)} | CALLED, "not_covered", "'height'"),
    ("a name alone", {"not_covered": "loss"} | CALLED, "not_covered", "'loss'"),
    ("a view of no certificate", {"view": "server"}, "view", ("'server'", "delta")),
    ("what nobody looks at", {"not_covered": ("loss",)}, "not_covered", "on_evaluation"),
]
ROWS = [
    *((f"a run, {name}", partial(running, **given), *told) for name, given, *told in RUNS),
    ("saying to nobody", lambda: fp.Checkpoints("x", say=None), "say", "None"),
    ("resuming a number", lambda: fp.Checkpoints("x", on_resume=3), "on_resume", "3"),
    (
        "settings of arrays",
        lambda: fp.Checkpoints("x", settings={"clip": np.float32(1)}),
        "checkpoints.settings",
        "float32",
    ),
    ("below a file", partial(in_place_of_a_file, "file/below"), "checkpoints", "file/below"),
    ("in a long name", partial(in_place_of_a_file, 300 * "x"), "checkpoints", "too long"),
    ("a device too many", lambda: fp.Strategy(devices=99), "devices", ("99", "split_cpu")),
    ("from no folder", partial(fp.models.load_model, "x", "a", 2), "folder", "there is no x"),
    ("of all seeds", partial(saving, TWO), "params", ("seeds, of length 2", "history.params")),
    ("of another", partial(saving, filled(LARGER.init)), "params", "params.Dense_1.bias"),
    ("no `apply`", lambda: fp.models.Model(None, None, None).predict({}, 3), "apply", "has none"),
    ("of a seed that was not trained", lambda: HISTORY.params(seed=0), "seed", ("0", "[9, 5, 1]")),
    ("of a list of seeds", lambda: HISTORY.params(seed=[9]), "seed", "[9]"),
    ("before a run has ended", fp.History((0,)).params, "state", "there is none"),
    ("a state before a run has ended", fp.History((0,)).state_of, "state", "there is none"),
    ("a target in percent", partial(target, "accuracy=80"), "stop_at", "80 % is accuracy=0.8"),
    (
        "a target of no metric",
        partial(Stopping.of, "f1=0.8", None, None, ["accuracy", "loss"], ()),
        "stop_at: there is no 'f1'",
        "accuracy, loss",
    ),
]
for *given, field, shown in (
    ("h:1", None, None, "num_processes, process_id", "not given"),
    (None, 2, 0, "coordinator", "not given"),
    ("h", 2, 0, "coordinator", "'h'"),
    (":80", 2, 0, "coordinator", "':80'"),
    ("h:99999", 2, 0, "coordinator", ("'h:99999'", "65535")),
    ("h:1", 2, 2, "process_id", "2"),
    ("no such host:1", 2, 1, "coordinator", "'no such host'"),
):
    ROWS.append((f"a process, {given}", partial(initialize, *given), field, shown))
for name in ("", "..", "../a", "a/b", "a\\b"):
    ROWS.append((f"saved as {name!r}", partial(saving, name=name), "algorithm", f"{name!r}"))
    load = partial(fp.models.load_model, ".", name)
    ROWS.append((f"loaded as {name!r}", load, "algorithm", f"{name!r}"))
for text in ("accuracy", "accuracy=", "=0.5", "accuracy=x", "loss=nan"):
    ROWS.append((f"a target of {text!r}", partial(target, text), "stop_at", f"{text!r}"))
