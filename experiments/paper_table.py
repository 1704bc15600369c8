"""A table of results, a line per run and algorithm, as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.formats import NAMES, epsilon, hyphenated, markdown, metric_cell
from experiments.plain import plain
from experiments.records import Report, Spread, Summary
from experiments.runs import RunFolder, names
from experiments.show import claimed
from fedpriv.models.score import is_fraction
from fedpriv.privacy import VIEWS, Certificate, Claim

EPSILONS = ["unit", "delta", "claimed", "certified, third party", "certified, server"]
SHOWN = ("third_party", "server")  # views with a column of their own
TEX = {c: f"\\{c}" for c in "_%&#${}"}
TEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}


class Row(NamedTuple):
    """An algorithm of a run; `title` tells the run from the others."""

    title: str
    algorithm: str
    summary: Summary


def rows(runs: Sequence[RunFolder]) -> list[Row]:
    """Of all that was evaluated; a run that is not complete says so in its title."""
    found = []
    for run, title in zip(runs, names(runs), strict=True):
        status = run.results.status
        title += "" if status == "complete" else f" ({status.partition(':')[0]})"
        found += [Row(title, name, run.results) for name in run.results.rounds]
    return found


def as_markdown(found: Sequence[Row]) -> str:
    """What every epsilon means stands in its row and below."""
    shown = metrics(found)
    lines = [["run", *head(shown)]]
    lines += [[r.title, *cells(r.summary, r.algorithm, shown)] for r in found]
    return markdown(lines, dict.fromkeys(note for r in found for note in r.summary.privacy_notes))


def metrics(found: Sequence[Row]) -> list[str]:
    """Those that the runs show."""
    return list(dict.fromkeys(r.summary.metric for r in found))


def head(metrics: Sequence[str]) -> list[str]:
    """A row of `cells`, named."""
    pairs = [name for metric in metrics for name in (f"{metric}, last", "best")]
    return ["algorithm", "rounds", *pairs, *EPSILONS]


def cells(summary: Summary, name: str, metrics: Sequence[str]) -> list[str]:
    """An algorithm's line, below `head`."""
    privacy = summary.privacy[name]
    third_party = privacy.certified["third_party"]
    return [
        NAMES.get(name, name),
        str(summary.rounds[name]),
        *(
            metric_cell(metric, of[name]) if metric in of[name] else "-"
            for metric in metrics
            for of in (summary.final, summary.best)
        ),
        third_party.unit,
        f"{third_party.delta:.3g}",
        _claimed(privacy),
        *(_certified(privacy, view) for view in SHOWN),
    ]


def _claimed(privacy: Report) -> str:
    claim = privacy.claimed
    if claim is None:
        return "-"
    doubt = "" if claim.sound else ", not proved"
    return f"{claimed(privacy)} ({hyphenated(claim.relation)}){doubt}"


def _certified(privacy: Report, view: str) -> str:
    number = privacy.certified.get(view)  # a run that has not ended has one for a third party alone
    if number is None:
        return "-"
    return f"{epsilon(number.epsilon)} ({hyphenated(number.relation)}, {number.basis})"


def escaped(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    return "".join(_escaped(c) for c in re.sub(r"\s+", " ", text))


def _escaped(c: str) -> str:
    kind, _, letter = unicodedata.name(c, "").partition(" LETTER ")
    if kind == "GREEK SMALL":
        return rf"$\{letter.lower()}$"
    return TEX.get(c, c)


def latex(found: Sequence[Row], views: Sequence[str] = SHOWN) -> str:
    """A table for a paper, which needs the package booktabs alone; a letter at each epsilon leads to what it means."""
    letters: dict[str, str] = {}
    claims = any(r.summary.privacy[r.algorithm].claimed for r in found)
    shown = metrics(found)
    head = ["Run", "Algorithm", "Rounds"]
    for metric in shown:
        unit = r" (\%)" if is_fraction(metric) else ""
        head += [escaped(metric.replace("_", " ").capitalize()) + unit, f"Best{unit}"]
    head += [r"$\varepsilon$ claimed"] if claims else []
    head += [rf"$\varepsilon$, {escaped(view.replace('_', ' '))}" for view in views]
    lines = [_latex_row(r, shown, views, claims, letters) for r in found]
    body = [" & ".join(line) + r" \\" for line in lines]
    parts = [r"% \usepackage{booktabs}", r"\begin{table}[t]", r"\centering"]
    parts += [
        rf"\caption{{{_caption(found, shown, letters)}}}",
        r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}",
    ]
    parts += [r"\toprule", " & ".join(head) + r" \\", r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}", r"\end{table}", ""])


def _latex_row(
    r: Row, metrics: Sequence[str], views: Sequence[str], claims: bool, letters: dict[str, str]
) -> list[str]:
    of, name = r.summary, r.algorithm
    privacy = of.privacy[name]
    made = [escaped(r.title), escaped(NAMES.get(name, name)), str(of.rounds[name])]
    made += [
        _latex_spread(metric, spreads[name].get(metric))
        for metric in metrics
        for spreads in (of.final, of.best)
    ]
    made += [_latex_epsilon(privacy.claimed, letters)] if claims else []
    return [*made, *(_latex_epsilon(privacy.certified.get(view), letters) for view in views)]


def _latex_spread(metric: str, s: Spread | None) -> str:
    if s is None:
        return "--"
    if not math.isfinite(s.mean):
        return "not finite"
    parts = [s.mean] if s.std is None else [s.mean, s.std]
    said = [f"{100 * x:.2f}" if is_fraction(metric) else _scientific(x) for x in parts]
    return "$" + r" \pm ".join(said) + "$"


def _latex_epsilon(number: Certificate | Claim | None, letters: dict[str, str]) -> str:
    if number is None:
        return "--"
    if number.epsilon == math.inf:
        return "not private"
    said = f"{number.unit} level, view {number.view.replace('_', ' ')}, {hyphenated(number.relation)} adjacency, "
    said = escaped(said) + rf"$\delta = {_scientific(number.delta)}$, "
    if isinstance(number, Certificate):
        said += f"certified ({escaped(number.basis)})"
    else:
        doubt = "" if number.sound else ", not proved for this run"
        said += f"claimed by {escaped(number.source)}{doubt}"
    letter = letters.setdefault(said, _letter(len(letters)))
    return rf"${_scientific(number.epsilon, 4)}$\textsuperscript{{{letter}}}"


def _letter(number: int) -> str:
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _scientific(x: float, digits: int = 3) -> str:
    mantissa, _, power = f"{x:.{digits}g}".partition("e")
    return mantissa + (rf" \times 10^{{{int(power)}}}" if power else "")


def _caption(found: Sequence[Row], metrics: Sequence[str], letters: Mapping[str, str]) -> str:
    configs = ", ".join(dict.fromkeys(Path(r.summary.config).stem for r in found))
    seeds = sorted({len(r.summary.final[r.algorithm][r.summary.metric].per_seed) for r in found})
    many = seeds[-1] > 1
    over = " or ".join(map(str, seeds)) + (" seeds" if many else " seed")
    spread = r"mean $\pm$ standard deviation ($n - 1$)" if many else "value"
    said = [
        f"{escaped(configs)}: {escaped(' and '.join(metrics))} on the test set, {spread} over {over}; Best: over the "
        "evaluations, each seed's own, chosen on the test set."
    ]
    if letters:
        meant = "; ".join(
            rf"\textsuperscript{{{letter}}}\,{what}" for what, letter in letters.items()
        )
        said.append(rf"Each $\varepsilon$ is of one model released alone: {meant}.")
    said += [
        escaped(note[:1].upper() + note[1:]) + "."
        for note in dict.fromkeys(n for r in found for n in r.summary.privacy_notes)
    ]
    return " ".join(said)


def measured(summaries: Iterable[Summary]) -> list[str]:
    """All metrics there are."""
    return list(dict.fromkeys(m for s in summaries for of in s.final.values() for m in of))


def record(summary: Summary, name: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Plain numbers of an algorithm; None where there is none."""
    final = summary.final.get(name, {}).get(summary.metric)
    found: dict[str, Any] = {
        "algorithm": name,
        "status": _status(summary, name),
        "rounds": summary.rounds.get(name, 0),
        "seeds": final and len(final.per_seed),
    }
    for metric in metrics:
        for which, spreads in (("final", summary.final), ("best", summary.best)):
            of = spreads.get(name, {}).get(metric)
            for part in ("mean", "std"):
                found[f"{metric}_{which}_{part}"] = plain(getattr(of, part, None))
    found["uplink_mb_per_client"] = plain(summary.uplink_mb_per_client.get(name))
    found["downlink_mb_per_client"] = plain(summary.downlink_mb_per_client.get(name))
    privacy = summary.privacy.get(name)
    epsilons: dict[str, Any] = {"claimed": privacy and privacy.claimed}
    epsilons |= {f"certified_{v}": privacy and privacy.certified.get(v) for v in VIEWS}
    for kind, number in epsilons.items():
        for part in ("epsilon", "delta", "unit", "view", "relation"):
            found[f"{kind}_{part}"] = plain(getattr(number, part, None))
        if kind != "claimed":
            found[f"{kind}_basis"] = getattr(number, "basis", None)
    found["claimed_sound"] = getattr(epsilons["claimed"], "sound", None)
    found["rounds_per_second"] = plain(summary.rounds_per_second.get(name))
    found["compile_seconds"] = summary.compile_seconds.get(name)
    return found | {"reused_from": summary.reused_from.get(name)}


def _status(summary: Summary, name: str) -> str:
    """Of its own training, which may have ended where another one's diverged."""
    if name in summary.diverged:
        return "diverged"
    planned = summary.rounds_planned.get(name)
    ended = name in summary.stopped or summary.rounds.get(name) == planned
    return "complete" if ended else summary.status.partition(":")[0]


def records(found: Sequence[Row]) -> list[dict[str, Any]]:
    names = measured(r.summary for r in found)
    return [
        {"run": r.title, "config": r.summary.config, **record(r.summary, r.algorithm, names)}
        for r in found
    ]


def write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
