"""Run folders written by the launcher's own Recorder without training, and HTML pages as trees."""

import json
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from xml.etree.ElementTree import Element

import numpy as np

from fedpriv.engine.history import ClientValues, Evaluation, History
from fedpriv.engine.own_errors import OwnErrors
from fedpriv.experiments.config import Experiment, Ledger, Settings, modules
from fedpriv.experiments.runs.recorder import Privacy, Recorder
from fedpriv.models.networks import Model

FREE = ("algorithms", "beta", "every", "target_epsilon", "view", "views")  # an epsilon is the same
VOID = {"meta", "input", "br", "wbr"}


def record(
    folder,
    *,
    name="quickstart",
    rounds=(5, 10, 20),
    seeds=3,
    status="complete",
    seed=0,
    of_clients=0,
    of_groups=(),
    about=MappingProxyType({}),
    measured=MappingProxyType({}),
    **given,
) -> dict[str, History]:
    """A run folder with the config's own certificates and claims, and random numbers; no summary if `status` is None.

    So many as `of_clients` hold records out; `of_groups` has the group of each; `measured` is as below. The
    uplink of "top_k" and "rand_k" is a tenth of the others'. Returns what was recorded, by algorithm.
    """
    planned = _planned(rounds, status)
    shipped = modules.load(name).settings
    config = replace(shipped, rounds=planned, seeds=seeds, output=folder, **given)
    costly = {field: value for field, value in given.items() if field not in FREE}
    ledger = ledger_of(name, replace(shipped, **costly))
    entries = {n: ledger.entries[n]._replace(settings={"eta_0": 0.5}) for n in config.algorithms}
    model = Model(ledger.params, None, None)
    experiment = Experiment(model, None, ledger.delta, entries, notes=("tuned without privacy",))
    vars(experiment)["ledger"] = replace(ledger, entries=entries, notes=experiment.notes)
    written = (folder, name, config, experiment, rounds, status, seed, of_clients, of_groups)
    return record_experiment(*written, about, measured)


def record_experiment(
    folder,
    name,
    config,
    experiment,
    rounds,
    status="complete",
    seed=0,
    of_clients=0,
    of_groups=(),
    about=MappingProxyType({}),
    measured=MappingProxyType({}),
) -> dict[str, History]:
    """As `record`, of any experiment; `measured` is recorded beside, the same in every seed."""
    folder.mkdir(parents=True)
    recorder, rng = Recorder(folder, name, config, about), np.random.default_rng(seed)
    entries, seeds = experiment.entries, config.seeds
    histories = {n: History(tuple(range(seeds)), compile_seconds=1.5) for n in entries}
    for n, history in histories.items():
        privacy = Privacy(experiment.ledger, n)
        for t in rounds:
            evaluation = _evaluation(n, t, seeds, rng)
            each = {measure: np.full(seeds, value) for measure, value in measured.items()}
            evaluation = evaluation._replace(measures=evaluation.measures | each)
            if of_clients:
                evaluation = _with_clients(evaluation, of_clients, np.random.default_rng([seed, t]))
                evaluation = _with_groups(evaluation, np.array(of_groups))
            history.evaluations.append(evaluation)
            recorder.evaluation(n, history.evaluations[-1], privacy)
    if status is not None:
        planned = dict.fromkeys(entries, _planned(rounds, status))
        recorder.write_summary(histories, experiment, planned, status)
    return histories


def _planned(rounds, status):
    return max(rounds, default=1) * (1 if status in ("complete", None) else 10)


@cache
def ledger_of(name: str, settings: Settings) -> Ledger:
    """Of a config that ships; a round is traced once for every folder with these settings."""
    return modules.load(name).ledger(settings)


def _evaluation(name, t, seeds, rng):
    up = np.full(seeds, 0.01 * t * (0.1 if name in ("top_k", "rand_k") else 1))
    return Evaluation(
        round=t,
        metrics={
            "accuracy": rng.uniform(0.3, 0.9, seeds),
            "loss": rng.uniform(0.2, 2, seeds),
        },
        uplink_mb=up,
        downlink_mb=np.full(seeds, 0.02 * t),
        diagnostics={"mean_update_norm": rng.uniform(1, 2, seeds)},
        seconds=0.25,
        measures={"log_gap": rng.normal(size=seeds)},
    )


def _with_clients(e: Evaluation, clients: int, rng) -> Evaluation:
    """Clients are unlike each other, and alike for all algorithms; the last one has no positive record."""
    each, seeds = rng.uniform(0.5, 0.9, clients), len(e.metrics["loss"])
    own = np.random.default_rng(int(1e6 * e.metrics["loss"][0]))
    values = {
        name: np.float32(each + own.normal(0, 0.02, (seeds, clients)))
        for name in ("accuracy", "auc")
    }
    values["auc"][:, -1] = np.nan
    records = np.tile(np.arange(1, clients + 1, dtype=np.float32), (seeds, 1))
    ones = np.ones_like(records)
    errors = {
        name: np.float32(np.sqrt(x * (1 - x) / np.maximum(records - 1, 1)))
        for name, x in values.items()
    }
    errors = {name: np.where(records > 1, x, np.nan) for name, x in errors.items()}
    own = OwnErrors(records, errors, dict.fromkeys(values, ones))
    of = ClientValues(2 * np.arange(clients, dtype=np.int32), records, values, own)
    means = {f"held_out_{name}_mean": np.nanmean(x, 1) for name, x in values.items()}
    return e._replace(measures={**e.measures, **means}, clients={"held_out": of})


def _with_groups(e: Evaluation, groups: np.ndarray) -> Evaluation:
    """As `measures.per_group` has them, of the clients that hold records out; every group has one with the metric."""
    whole, measures, clients = e.clients["held_out"], dict(e.measures), dict(e.clients)
    names = list(dict.fromkeys(groups.tolist()))
    for name in names:
        own = groups == name
        values = {metric: x[:, own] for metric, x in whole.metrics.items()}
        clients[f"held_out[{name}]"] = ClientValues(
            whole.clients[own], whole.records[:, own], values
        )
        with np.errstate(invalid="ignore"):
            means = {m: np.nansum(x, 1) / (~np.isnan(x)).sum(1) for m, x in values.items()}
        measures |= {f"held_out[{name}]_{m}_mean": np.float32(x) for m, x in means.items()}
    for metric in whole.metrics if names else ():
        each = np.array([measures[f"held_out[{name}]_{metric}_mean"] for name in names])
        measures[f"held_out_{metric}_worst_group"] = np.nanmin(each, 0)
        measures[f"held_out_{metric}_group_gap"] = np.nanmax(each, 0) - np.nanmin(each, 0)
    return e._replace(measures=measures, clients=clients)


def edit(path: Path, **entries) -> None:
    """Replaces entries of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


class _Tree(HTMLParser):
    """Builds elements as a browser would; complains where a tag is not closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = [Element("document")]

    def handle_starttag(self, tag, attrs):
        made = Element(tag, {k: v or "" for k, v in attrs})
        self.open[-1].append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        parent = self.open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data


def tree(path: Path) -> Element:
    parser = _Tree()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    (root,) = parser.open
    return root


def text(element: Element) -> str:
    """Of all that is in it, white space and no-break spaces as one blank."""
    return " ".join("".join(element.itertext()).split())


def tables(root: Element) -> dict[str, list[list[str]]]:
    """Caption -> rows of cells, the head first; of tables with the same caption the first."""
    found = {}
    for table in root.iter("table"):
        rows = [[text(cell) for cell in row] for row in table.iter("tr")]
        found.setdefault(text(table.find("caption")), rows)
    return found


def with_class(root: Element, name: str) -> list[Element]:
    return [e for e in root.iter() if name in e.get("class", "").split()]
