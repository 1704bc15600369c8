"""python check_certificate.py FILE: what certificate.to_json() wrote, or a run's summary.json, by dp-accounting alone.

A line for each kind of unit: confirmed (dp-accounting's upper bound is at most 0.1 % above epsilon), looser (it is
further above), contradicted (its lower bound is above epsilon; exit code 1), or not checkable, and by what of it.
"""

import json
import sys
from pathlib import Path

from dp_accounting.pld import privacy_loss_distribution as pld


def losses(pair, width, up):
    """The privacy loss distribution of a pair, {kind: fields}, in cells of this width, rounded up or down."""
    ((kind, of),) = pair.items()
    if kind == "times":  # one, n times
        return losses(of["of"], width, up).self_compose(of["n"])
    whole, total = pld.identity(width, up), 0.0
    if kind == "all":  # several
        for one in of["of"]:
            whole = whole.compose(losses(one, width, up))
        return whole
    if kind == "told":  # one of several cases, and the view is told which
        for chance, case in of["cases"]:
            total += chance
            whole = losses(case, width, up).compute_mixture(whole, chance / total)
        return whole
    noise, law = of.get("noise"), of.get("law", [["inf", 1.0]])
    far, chances = zip(*law, strict=True)  # how far noise is moved, or not: which it is, is secret
    lacks = {
        kind: kind != "moved",
        "noise of integers": noise not in ("gaussian", "laplace"),
        "Laplace noise that several units move": noise == "laplace" and len(law) > 1,
        "a unit replaced in a secret draw": of.get("replaced") and chances[0] < 1,
        "a unit seen in a secret draw": far[0] == "inf" and chances[0] < 1,
    }
    if any(lacks.values()):
        raise NotImplementedError(next(filter(lacks.get, lacks)))
    if far[0] == "inf":  # all is seen
        return pld.PrivacyLossDistribution.create_from_rounded_probability({0: 0.0}, 1, width, up)
    if len(law) > 1:
        law = [0.0, *far], [max(0.0, 1 - sum(chances)), *chances]
        return pld.from_mixture_gaussian_mechanism(1, *law, up, width, use_connect_dots=up)
    draw = getattr(pld, f"from_{noise}_mechanism")
    return draw(1 / far[0], 1, up, width, sampling_prob=min(chances[0], 1), use_connect_dots=up)


def check(unit, certificate):
    delta, epsilon = certificate["delta"], min(float(x["epsilon"]) for x in (unit, certificate))
    if epsilon == float("inf"):
        return "nothing is claimed"
    width = max(min(1e-4, epsilon / 1e4), epsilon / 1e6, 1e-8)
    pair = unit["pair"] if delta >= 1e-10 else {"a delta so small that its rounding counts": {}}
    try:
        low, high = (losses(pair, width, up).get_epsilon_for_delta(delta) for up in (False, True))
    except NotImplementedError as why:
        return f"not checkable: {why}"
    word = "contradicted" if low > epsilon else "looser" if high > 1.001 * epsilon else "confirmed"
    return f"{word}: epsilon {epsilon:.6g}; dp-accounting: {low:.6g} to {high:.6g}"


if not (file := Path(*sys.argv[1:2])).is_file():
    sys.exit(f"{file} is no file; give a run's summary.json, which a killed run has after --resume")
said, code = json.loads(file.read_text()), 0
for name, run in said.get("privacy", {"certificate": {"certified": {"": said}}}).items():
    for view, one in run["certified"].items():
        for unit in one.get("compositions") or [{**one, "pair": {"older file": {}}}]:
            print(name, view, *map(one.get, ("unit", "relation", "basis")), out := check(unit, one))
            code |= out.startswith("contradicted")
sys.exit(code)
