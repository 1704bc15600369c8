"""Run folders, and the commands that read them."""

import json
import shutil
from functools import partial
from pathlib import Path

from recorded import OLD

from fedpriv import experiments
from fedpriv.experiments.commands import compare, report, uplink, uploads
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables.report.audits import read_audits


def command(main, *words):
    """Called with these words, what is wrong is raised."""
    return lambda: main([*map(str, words), "--traceback"])


def changed(name, change):
    """Reads a run of which that file was changed, as bytes."""
    folder = shutil.copytree(OLD, Path("run"))
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    read(folder)


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
    ("config.json", lambda x: x[:1], "is damaged (Expecting property name"),
    ("config.json", lambda _: b"[]", "[] is not an object"),
    ("config.json", without("settings"), "lacks settings"),
    ("config.json", lambda _: b"\xff\xfe", "'utf-8' codec"),
    ("config.json", lambda _: b"[" * 100_000, "RecursionError"),
    ("summary.json", lambda x: x[:99], "is damaged (Unterminated string"),
    ("summary.json", without("privacy"), "lacks privacy"),
    ("metrics.jsonl", lambda _: b"3\n", "line 1"),
    ("metrics.jsonl", more_seeds, "3 seeds, 2 before"),
    ("metrics.jsonl", lambda _: b"{}\n", "lacks algorithm"),
    ("metrics.jsonl", called_negative, "round: -2"),
]


def with_file(name, content, call):
    """`call` on a folder with that file alone."""
    Path("here").mkdir()
    (Path("here") / name).write_text(content)
    call(Path("here"))


def in_empty(call):
    Path("empty").mkdir()
    call("empty")


def damaged_sweep():
    shutil.copytree(OLD, Path("all") / "run")
    (Path("all") / "sweep.json").write_text("{}")
    experiments.report("all")


def uploads_of(folder, accuracy="0.1"):
    return uploads.main([str(folder), "--accuracy", accuracy, "--traceback"])


def report_in(place):
    Path("here").mkdir()
    report.main([str(OLD), "--output", place, "--traceback"])


def in_one_panel():
    return experiments.figure(OLD, "x.png", by="group", together=True)


RECORDED = "there are accuracy, loss, mean_update_norm"
NOT_A_NAME = "give the name of a metric"
METRICS = [
    *((name, (f"{name!r}", RECORDED)) for name in ("height", "", "held_out_f1_mean")),
    *((other, (f"{other!r}", NOT_A_NAME)) for other in ((), 3, ["loss", None])),
]
OF_COMPARE = [
    ("--together", "--together", "no picture"),
    ("--metric height", "metric", "'height'"),
    ("--by client --best", "--best", "no meaning by client"),
    ("--by client --output p.png", "by", "p.png"),
    ("--by client", "by", "--per-client"),
    ("--by group --together", "--together", "no meaning by group"),
    ("--by group --title x", "--title", "no meaning by group"),
    ("--by group", "by", "measures.per_group"),
    ("--output p.nonsense", "output", "p.nonsense"),
    ("--output none/x.tex", "output", "none/x.tex"),
    ("--names one other", "names", "'one' 'other'"),
    ("--names scafold=Mine", "names", "'scafold=Mine'"),
    ("--above nobody", "above", "nobody"),
    ("--by mu --output p.png", "by", "mu"),
    ("--by bits --output p.png", "by", "bits"),
]
BEGUN = json.dumps({"config": "quickstart", "settings": {}})
KEPT_NOTHING = ["--dimension", "8", "--clients", "2", "--bits", "12"]
UNFINISHED = partial(with_file, "config.json", BEGUN, experiments.table)
ROWS = [
    ("a folder without a run", partial(in_empty, read), "empty", "no config.json"),
    ("no such folder", lambda: experiments.report("none"), "none", "No such file"),
    ("a file", lambda: experiments.report(__file__), __file__, "Not a directory"),
    ("a sweep that is damaged", damaged_sweep, "sweep.json", "restore it"),
    ("a run without evaluations", UNFINISHED, "runs", "here"),
    ("no audit", lambda: read_audits([Path("none")]), "none", "No such file"),
    ("compare: no folder", command(compare.main), "folders", "none is given"),
    ("report: no folder", command(report.main), "folders", "none is given"),
    ("a table by hospital", lambda: experiments.table(OLD, by="hospital"), "by", "'hospital'"),
    ("uploads: in percent", partial(uploads_of, OLD, "80"), "--accuracy", "80.0"),
    ("uploads: of no run", partial(in_empty, uploads_of), "empty", "holds no run"),
    ("uploads: without exchanges", partial(uploads_of, OLD), "runs", "makes exchanges"),
    ("groups in one panel", in_one_panel, "together", "True"),
    ("a table", partial(experiments.table, OLD, metric="height"), "metric", "'height'"),
    ("a page", partial(experiments.report, OLD, "r.html", metric="height"), "metric", "'height'"),
]
LATE = [
    ("report: in a folder's place", partial(report_in, "here"), "output: cannot write", "here"),
    ("uplink: nothing is kept", command(uplink.main, *KEPT_NOTHING), "p", "0.005"),
    ("report: no place", partial(report_in, "no/p.html"), "output: cannot write", "no/p.html"),
]
for i, (file, change, shown) in enumerate(DAMAGED):
    ROWS.append((f"{i}: {file} is damaged", partial(changed, file, change), f"run/{file}", shown))
for content, why in (
    ("[]", "AttributeError"),
    ("{", "JSONDecodeError"),
    ('{"many_runs": [{}]}', "KeyError"),
):
    call = partial(with_file, "audit.json", content, lambda at: read_audits([at]))
    ROWS.append((f"an audit that is {content}", call, "audits", why))
for metric, shown in METRICS:
    call = partial(experiments.figure, OLD, "f.png", metric=metric)
    ROWS.append((f"a figure of {metric!r}", call, "metric", shown))
for words, field, shown in OF_COMPARE:
    ROWS.append((f"compare {words}", command(compare.main, OLD, *words.split()), field, shown))
