"""Runs: their arguments, layouts, checkpoints, processes, and models that are kept."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
from small import filled, regression, squared, start

import fedpriv as fp
from experiments.config.stopping import Stopping, target
from fedpriv.data.datasets import Dataset
from fedpriv.devices.distributed import initialize
from refused.row import Refusal

FEDERATION = regression([2] * 3)
TEST = jax.tree.map(np.asarray, FEDERATION.examples)


def score(params, example):
    return {"loss": squared(params, example)}


def running(sampler=None, params=None, test=TEST, federation=FEDERATION, **options):
    """A run, of which some arguments are wrong."""

    def run():
        algorithm = fp.fed_sgd(squared, sampler=sampler or fp.everyone(3), learning_rate=0.1)
        given = {"score": score, "rounds": 2} | options
        fp.simulate(algorithm, start() if params is None else params, federation, test, **given)

    return run


def keeping(folder="checkpoints", **options):
    return partial(fp.Checkpoints, folder, **options)


def in_place_of_a_file(folder):
    def run():
        Path("file").write_text("")
        running(checkpoints=fp.Checkpoints(folder))()

    return run


MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
LARGER = fp.models.classifier(fp.models.MLP((4, 3), 3), (2, 2, 1))


def saving(model=MODEL, params=None, name="a"):
    return lambda: fp.models.save_model(".", name, 0, model, params or filled(model.init))


def loading(*given, folder="."):
    return lambda: fp.models.load_model(folder, *given)


HISTORY = fp.History((9, 5, 1), state=fp.ModelState({"w": np.zeros((3, 2))}, np.zeros(3)))
TWO = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), filled(MODEL.init))
EXAMPLE = ["accuracy", "loss"]

RUNS = [
    ("no rounds", {"rounds": 0}, "rounds", "0"),
    ("nan rounds", {"rounds": np.nan}, "rounds", "nan"),
    ("never evaluated", {"every": 0}, "every", "0"),
    ("no seeds", {"seeds": ()}, "seeds", "()"),
    ("a seed that is no list", {"seeds": 3}, "seeds", "3"),
    ("a seed twice", {"seeds": (3, 3)}, "seeds", "(3, 3)"),
    ("a seed twice, of two types", {"seeds": [3, 1, np.int64(3)]}, "seeds", "(3, 1, 3)"),
    ("half a seed", {"seeds": [0, 0.5]}, "seeds[1]", "0.5"),
    ("a seed of 64 bits", {"seeds": [2**63]}, "seeds[0]", "9223372036854775808"),
    ("a strategy's name", {"strategy": "vmap"}, "strategy", "'vmap'"),
    ("a folder's name", {"checkpoints": "folder"}, "checkpoints", "'folder'"),
    ("a measure that is a number", {"measure": 1}, "measure", "1"),
    ("a list to call", {"on_evaluation": []}, "on_evaluation", "[]"),
    ("a record that is a number", {"record": 3}, "record", "3"),
    ("no score", {"score": None}, "score", "None"),
    ("a model for its start", {"params": MODEL}, "params", "Model"),
    ("a data set for its test", {"test": Dataset("toy", TEST, TEST, 3)}, "test", "Dataset"),
    ("a sampler of 4", {"sampler": fp.fixed_size(4, 2)}, "sampler", "4 clients"),
    ("a sampler of 2", {"sampler": fp.poisson(2, 0.5, 2)}, "sampler", "2 clients"),
    ("two federations", {"federation": [FEDERATION] * 2}, "federation", "2"),
    (
        "a number that is measured by nobody",
        {"not_covered": ("height",), "on_evaluation": print},
        "not_covered",
        "'height'",
    ),
    ("a name alone", {"not_covered": "loss", "on_evaluation": print}, "not_covered", "'loss'"),
    ("what nobody looks at", {"not_covered": ("loss",)}, "not_covered", "on_evaluation"),
]
KEPT = [
    ("every 0 rounds", keeping(rounds=0), "rounds", "0"),
    ("every half round", keeping(rounds=0.5), "rounds", "0.5"),
    ("every -1 minutes", keeping(minutes=-1), "minutes", "-1"),
    ("every ten minutes", keeping(minutes="ten"), "minutes", "'ten'"),
    ("saying to nobody", keeping(say=None), "say", "None"),
    ("resuming a number", keeping(on_resume=3), "on_resume", "3"),
    ("settings of arrays", keeping(settings={"clip": np.float32(1)}), "settings", "float32"),
    ("in a file", in_place_of_a_file("file"), "checkpoints", "file"),
    ("below a file", in_place_of_a_file("file/below"), "checkpoints", "below"),
    ("in a long name", in_place_of_a_file(300 * "x"), "checkpoints", "xxx"),
]
LAYOUTS = [
    ("0 clients", {"clients": 0}, "clients", "0"),
    ("a chunk", {"clients": "chunk"}, "clients", "'chunk'"),
    ("half a client", {"clients": 2.5}, "clients", "2.5"),
    ("0 devices", {"devices": 0}, "devices", "0"),
    ("a device too many", {"devices": 3}, "devices", "3"),
    *(
        (f"{memory} memory", {"clients": "fit", "memory": memory}, "memory", "")
        for memory in (0, -1, 2.5, "8 GB", True)
    ),
]
PROCESSES = [
    (("h:1", None, None), "num_processes", ""),
    ((None, 2, 0), "coordinator", ""),
    (("h", 2, 0), "coordinator", "'h'"),
    ((":80", 2, 0), "coordinator", "':80'"),
    (("h:99999", 2, 0), "coordinator", "65535"),
    (("h:1", 0, 0), "num_processes", "0"),
    (("h:1", 2, 2), "process_id", "2"),
    (("h:1", 2, -1), "process_id", "-1"),
    (("no such host:1", 2, 1), "coordinator", "'no such host'"),
]
MODELS = [
    *(
        (f"{verb} as {name!r}", how, "algorithm", "")
        for name in ("", "..", "../a", "a/b", "a\\b")
        for verb, how in (("saved", saving(name=name)), ("loaded", loading(name)))
    ),
    ("from no folder", loading("a", 2, folder="elsewhere"), "elsewhere", ""),
    ("parameters of all seeds", saving(params=TWO), "params", "of length 2"),
    ("parameters of another", saving(params=filled(LARGER.init)), "params", "Dense_1"),
    ("of no `apply`", lambda: fp.models.Model(None, None, None).predict({}, 3), "apply", ""),
    ("of a seed that was not trained", lambda: HISTORY.params(seed=0), "seed", "0"),
    ("of a list of seeds", lambda: HISTORY.params(seed=[9]), "seed", "[9]"),
    ("before a run has ended", fp.History((0,)).params, "state", ""),
    ("of a state before a run has ended", fp.History((0,)).state_of, "state", ""),
]
STOPS = [
    *(
        (f"a target of {text!r}", partial(target, text), "stop_at", text)
        for text in ("accuracy", "accuracy=", "=0.5", "accuracy=x", "loss=nan")
    ),
    ("a target in percent", partial(target, "accuracy=80"), "accuracy=0.8", "80 %"),
    (
        "a target of no metric",
        partial(Stopping.of, "f1=0.8", None, None, EXAMPLE, ()),
        "f1",
        "accuracy, loss",
    ),
]

ROWS = [
    *(Refusal(f"a run, {name}", running(**given), *told) for name, given, *told in RUNS),
    *(Refusal(f"checkpoints, {name}", *rest) for name, *rest in KEPT),
    *(
        Refusal(f"a layout, {name}", partial(fp.Strategy, **given), *told)
        for name, given, *told in LAYOUTS
    ),
    *(
        Refusal(f"a process, {given}", partial(initialize, *given), *told)
        for given, *told in PROCESSES
    ),
    *(Refusal(f"a model, {name}", *rest) for name, *rest in MODELS),
    *(Refusal(f"stopping, {name}", *rest) for name, *rest in STOPS),
]
