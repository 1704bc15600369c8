"""A table of results for a paper in LaTeX, which needs the package booktabs alone."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.base.formats import NAMES, hyphenated
from experiments.base.spread import Spread
from experiments.tables.comparison import ABOVE, Columns, Row, noise_of, notes
from experiments.tables.terminal import of_planned
from fedpriv.models.score import is_fraction
from fedpriv.privacy import Certificate, Claim

TEX = {c: f"\\{c}" for c in "_%&#${}"}
TEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}


def escaped(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    return "".join(_escaped(c) for c in re.sub(r"\s+", " ", text))


def _escaped(c: str) -> str:
    kind, _, letter = unicodedata.name(c, "").partition(" LETTER ")
    if kind == "GREEK SMALL":
        return rf"$\{'var' * (letter == 'EPSILON')}{letter.lower()}$"
    return TEX.get(c, c)


def latex(found: Sequence[Row], views: Sequence[str] | None = None, best: bool = False) -> str:
    """A letter at each epsilon leads to what it means, in the caption."""
    letters: dict[str, str] = {}
    claims = any(r.summary.privacy[r.algorithm].claimed for r in found)
    shown = Columns.of([r.summary for r in found], views, best)
    head = ["Run", "Algorithm", "Rounds", *["Noise multiplier"][: shown.noise]]
    for which, metric in shown.spreads:
        name = metric.replace("_", " ")
        name = escaped(name[:1].upper() + name[1:]) if which == "final" else "Best"
        head.append(name + r" (\%)" * is_fraction(metric))
    head += ["Uplink (MB)", *[r"$\varepsilon$ claimed"][:claims]]
    head += [rf"$\varepsilon$, {escaped(view.replace('_', ' '))}" for view in shown.views]
    lines = [_row(r, shown, claims, letters) for r in found]
    body = [" & ".join(line) + r" \\" for line in lines]
    parts = [r"% \usepackage{booktabs}", r"\begin{table}[t]", r"\centering"]
    parts += [
        rf"\caption{{{_caption(found, shown, letters)}}}",
        r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}",
    ]
    parts += [r"\toprule", " & ".join(head) + r" \\", r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}", r"\end{table}", ""])


def _row(r: Row, shown: Columns, claims: bool, letters: dict[str, str]) -> list[str]:
    of, name = r.summary, r.algorithm
    privacy = of.privacy[name]
    made = [escaped(r.title), escaped(NAMES.get(name, name)), of_planned(of, name)]
    made += [escaped(noise_of(of, name)) or "--"] if shown.noise else []
    made += [_spread(m, getattr(of, which)[name].get(m)) for which, m in shown.spreads]
    made += [f"${_scientific(of.uplink_mb_per_client[name], 4)}$"]
    made += [_epsilon(privacy.claimed, letters)] if claims else []
    return [*made, *(_epsilon(privacy.certified.get(view), letters) for view in shown.views)]


def _spread(metric: str, s: Spread | None) -> str:
    if s is None:
        return "--"
    if not math.isfinite(s.mean):
        return "not finite"
    parts = [s.mean] if s.std is None else [s.mean, s.std]
    said = [f"{100 * x:.2f}" if is_fraction(metric) else _scientific(x) for x in parts]
    return "$" + r" \pm ".join(said) + "$"


def _epsilon(number: Certificate | Claim | None, letters: dict[str, str]) -> str:
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
        said += f"{number.status} by {escaped(number.source)}{doubt}"
    letter = letters.setdefault(said, _letter(len(letters)))
    return rf"${_scientific(number.epsilon, 4)}$\textsuperscript{{{letter}}}"


def _letter(number: int) -> str:
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _scientific(x: float, digits: int = 3) -> str:
    mantissa, _, power = f"{x:.{digits}g}".partition("e")
    return mantissa + (rf" \times 10^{{{int(power)}}}" if power else "")


def _caption(found: Sequence[Row], shown: Columns, letters: Mapping[str, str]) -> str:
    configs = ", ".join(dict.fromkeys(Path(r.summary.config).stem for r in found))
    seeds = sorted({len(r.summary.final[r.algorithm][r.summary.metric].per_seed) for r in found})
    many = seeds[-1] > 1
    over = " or ".join(map(str, seeds)) + (" seeds" if many else " seed")
    spread = r"mean $\pm$ standard deviation ($n - 1$)" if many else "value"
    said = f"{escaped(configs)}: {escaped(' and '.join(shown.metrics))} on the test set, {spread} over {over}"
    said += "; above: seed by seed" * any(m.startswith(ABOVE) for m in shown.metrics)
    said += (
        "; Best: over the evaluations, each seed's own, chosen on the test set"
        if shown.best
        else ""
    )
    parts = [f"{said}; Uplink: of the run, per client of the population."]
    if letters:
        meant = "; ".join(
            rf"\textsuperscript{{{letter}}}\,{what}" for what, letter in letters.items()
        )
        parts.append(rf"Each $\varepsilon$ is of one model released alone: {meant}.")
    parts += [escaped(note[:1].upper() + note[1:]) + "." for note in notes(found)]
    return " ".join(parts)
