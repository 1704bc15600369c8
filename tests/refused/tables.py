"""Run folders, and the commands that read them."""

import json
import shutil
from functools import partial
from pathlib import Path

import commands
from recorded import OLD

import experiments
from experiments import compare, uplink, uploads
from experiments.runs.run_folder import read
from experiments.tables.report.audits import read_audits
from refused.row import Refusal


def command(main, *words):
    """Called with these words, what is wrong is raised."""
    return lambda: main([*map(str, words), "--traceback"])


def of_uploads(folder):
    return command(uploads.main, folder, "--accuracy", "0.1")


def changed(name, change, call):
    """`call` on a run of which that file was changed, as bytes; None takes it away."""

    def called():
        folder = shutil.copytree(OLD, Path("run"))
        path = folder / name
        path.write_bytes(change(path.read_bytes())) if change else path.unlink()
        call(folder)

    return called


def without(key):
    def change(text):
        kept = json.loads(text)
        del kept[key]
        return json.dumps(kept).encode()

    return change


def more_seeds(text):
    return text + text.splitlines()[0].replace(b'"per_seed": [', b'"per_seed": [0.5, ') + b"\n"


def called_negative(text):
    return text.replace(b'"round": 2', b'"round": -2', 1)


DAMAGED = [
    ("config.json is cut off", "config.json", lambda x: x[:1], "config.json"),
    ("config.json is a list", "config.json", lambda _: b"[]", "[] is not an object"),
    ("config.json has no settings", "config.json", without("settings"), "lacks settings"),
    ("config.json is not UTF-8", "config.json", lambda _: b"\xff\xfe", "'utf-8' codec"),
    ("config.json is deep", "config.json", lambda _: b"[" * 100_000, "RecursionError"),
    ("summary.json is cut off", "summary.json", lambda x: x[:99], "summary.json"),
    ("summary.json has no privacy", "summary.json", without("privacy"), "lacks privacy"),
    ("metrics.jsonl has a number", "metrics.jsonl", lambda _: b"3\n", "line 1"),
    ("metrics.jsonl has other seeds", "metrics.jsonl", more_seeds, "3 seeds, 2 before"),
    ("metrics.jsonl has a line of nothing", "metrics.jsonl", lambda _: b"{}\n", "lacks algorithm"),
    ("metrics.jsonl counts down", "metrics.jsonl", called_negative, "round: -2"),
]
ROWS = [
    Refusal(name, changed(file, change, read), file, value) for name, file, change, value in DAMAGED
]


def with_file(name, content, call):
    """`call` on a folder with that file alone."""

    def called():
        Path("here").mkdir()
        (Path("here") / name).write_text(content)
        call(Path("here"))

    return called


def empty_folder(call):
    def called():
        Path("empty").mkdir()
        call("empty")

    return called


def damaged_sweep():
    shutil.copytree(OLD, Path("all") / "run")
    (Path("all") / "sweep.json").write_text("{}")
    experiments.report("all")


def in_a_folder():
    Path("here").mkdir()
    commands.report.main([str(OLD), "--output", "here", "--traceback"])


BEGUN = json.dumps({"config": "quickstart", "settings": {}})
OF_FOLDERS = [
    ("a folder without a run", empty_folder(read), "empty", "no config.json"),
    ("no such folder", lambda: experiments.report("none"), "none", "No such file"),
    ("a file in place of a folder", lambda: experiments.report(__file__), __file__, ""),
    ("a sweep that is damaged", damaged_sweep, "sweep.json", "restore it"),
    (
        "a run without evaluations",
        with_file("config.json", BEGUN, experiments.table),
        "runs",
        "here",
    ),
    ("no audit", lambda: read_audits([Path("none")]), "none", ""),
]
ROWS += [Refusal(*each) for each in OF_FOLDERS]
ROWS += [
    Refusal(
        f"an audit that is {x}", with_file("audit.json", x, lambda at: read_audits([at])), "audits"
    )
    for x in ("[]", "{", '{"many_runs": [{}]}')
]
NOTHING_KEPT = ["--dimension", "8", "--clients", "2", "--bits", "12"]
METRICS = ["height", "", "held_out_f1_mean", (), 3, ["loss", None]]
ROWS += [
    Refusal(f"{name} of a metric that is {metric!r}", partial(function, metric=metric), "metric")
    for metric in METRICS
    for name, function in (
        ("a table", partial(experiments.table, OLD)),
        ("a figure", partial(experiments.figure, OLD, "f.png")),
        ("a page", partial(experiments.report, OLD, "r.html")),
    )
]
OF_COMPARE = [
    ("together, without a picture", ["--together"], "--together", ""),
    ("an unknown metric", ["--metric", "height"], "metric", "'height'"),
    ("the best by client", ["--by", "client", "--best"], "--best", ""),
    ("a picture by client", ["--by", "client", "--output", "p.png"], "by", "p.png"),
    ("clients of a run without", ["--by", "client"], "by", ""),
    ("groups together", ["--by", "group", "--together"], "--together", ""),
    ("the best by group", ["--by", "group", "--best"], "--best", ""),
    ("a title by group, without a picture", ["--by", "group", "--title", "x"], "--title", ""),
    ("groups of a run without", ["--by", "group"], "by", ""),
    ("a file of no kind", ["--output", "p.nonsense"], "output", "p.nonsense"),
    ("a file where none can be", ["--output", "none/x.tex"], "output", "none/x.tex"),
    ("more names than runs", ["--names", "one", "other"], "names", "'one' 'other'"),
    ("a name of no algorithm", ["--names", "scafold=Mine"], "names", "'scafold=Mine'"),
    ("above nobody", ["--above", "nobody"], "above", "nobody"),
    ("mu of one run", ["--by", "mu", "--output", "p.png"], "by", "mu"),
    ("bits of one run", ["--by", "bits", "--output", "p.png"], "by", "bits"),
]
ROWS += [
    Refusal(f"compare: {name}", command(compare.main, OLD, *words), field, value)
    for name, words, field, value in OF_COMPARE
]
OF_COMMANDS = [
    ("compare: no folder", command(compare.main), "folders", ""),
    ("report: no folder", command(commands.report.main), "folders", ""),
    ("report: in a folder's place", in_a_folder, "output", "here"),
    (
        "report: no place",
        command(commands.report.main, OLD, "--output", "no/p.html"),
        "output",
        "no",
    ),
    ("a table by hospital", lambda: experiments.table(OLD, by="hospital"), "by", "'hospital'"),
    ("uploads: in percent", command(uploads.main, OLD, "--accuracy", "80"), "--accuracy", "80.0"),
    ("uploads: of no run", empty_folder(lambda at: of_uploads(at)()), "empty", ""),
    ("uploads: without exchanges", of_uploads(OLD), "", "exchanges"),
    ("uplink: nothing is kept", command(uplink.main, *NOTHING_KEPT), "p", "0.005"),
]
ROWS += [Refusal(*each) for each in OF_COMMANDS]
ROWS += [
    Refusal(
        "groups in one panel",
        lambda: experiments.figure(OLD, "x.png", by="group", together=True),
        "together",
        "True",
    )
]
