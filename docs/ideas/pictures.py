"""python docs/ideas/pictures.py [NAME...]: draws the pictures of the pages here, or those named.

Curves and bars are computed as the pages say, from the quickstart's DP-FedAvg; the others show who does what.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch
from scipy.stats import norm

import fedpriv as fp
from fedpriv import experiments

HERE = Path(__file__).parent
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#5f5f5f"


def canvas(width, height):
    """Axes in which a unit is a tenth of the picture's width."""
    figure, axes = plt.subplots(figsize=(4.5, 0.45 * height))
    figure.get_layout_engine().set(w_pad=0, h_pad=0)
    axes.set(xlim=(0, width), ylim=(0, height * width / 10))
    axes.set_axis_off()
    return axes


def box(axes, x, y, text, width=1.6, height=0.7, color=BLUE, fill="white", **look):
    """A rounded box about (x, y) with a text."""
    corner, size = (x - width / 2, y - height / 2), (width, height)
    style = {"boxstyle": "round,pad=0,rounding_size=0.12", "ec": color, "fc": fill, "lw": 1.3}
    axes.add_patch(FancyBboxPatch(corner, *size, **style | look))
    axes.text(x, y, text, ha="center", va="center", fontsize=8.5)


def arrow(axes, start, end, text="", color=GREY, at=(0, 0), **look):
    """From one point to another, with a text beside its middle."""
    line = {"arrowstyle": "-|>", "color": color, "lw": 1.3, "shrinkA": 0, "shrinkB": 0} | look
    axes.annotate("", end, start, arrowprops=line)
    middle = (np.add(start, end) / 2) + at
    axes.text(*middle, text, ha="center", va="center", fontsize=8, color=color)


def client(axes, x, y, kind="whole", color=BLUE, changed=()):
    """A box of six records: "whole", "gone", or "empty", which contributes zero; some are `changed`."""
    gone = kind == "gone"
    box(axes, x, y, "", 1.3, 0.95, GREY if gone else color, ls=(0, (3, 2)) if gone else "-")
    for i in range(0 if gone else 6):
        fill = ORANGE if i in changed else color if kind == "whole" else "white"
        corner = x - 0.5 + 0.37 * (i % 3), y + 0.07 - 0.42 * (i // 3)
        edge = ORANGE if i in changed else color
        axes.add_patch(plt.Rectangle(corner, 0.27, 0.27, fc=fill, ec=edge, lw=0.8))


def meaning(c, *left_out):
    """All that belongs to an epsilon, but for what the picture says elsewhere."""
    said = {"unit": c.unit, "view": c.view, "relation": c.relation}
    said |= {"delta": f"δ = {c.delta:.3g}", "basis": c.basis}
    return ", ".join(text for name, text in said.items() if name not in left_out).replace("_", " ")


def note(axes, text, at, offset, **look):
    """A text beside a point."""
    axes.annotate(text, at, offset, textcoords="offset points", fontsize=8, **look)


def certificates():
    """Of the quickstart's DP-FedAvg: of each view."""
    (account,) = experiments.privacy("quickstart", algorithms=["dp_fed_avg"])
    return {c.view: c for c in account.certificates}


def client_and_round():
    axes = canvas(10, 4.7)
    box(axes, 5, 4.2, "server: the model", 3.2, 0.75, GREEN)
    for i in range(6):
        client(axes, 1 + 1.6 * i, 1.15, color=BLUE if i in (1, 4) else "#b5b5b5")
    for x, side in ((2.6, -1), (7.4, 1)):
        down, up = 5 + 1.1 * side, 5 + 0.6 * side
        arrow(axes, (down, 3.8), (x + 0.25 * side, 1.7), "model", GREEN, (0.7 * side, 0.1))
        arrow(axes, (x - 0.25 * side, 1.7), (up, 3.8), "update", ORANGE, (-0.75 * side, -0.3))
    words = "the cohort (blue) trains on its own records; the others wait"
    axes.text(5, 0.2, words, ha="center", fontsize=8.5)


def epsilon():
    figure, panels = plt.subplots(1, 2, figsize=(4.5, 2.3), sharey=True)
    seen = np.linspace(-9, 10, 400)
    for axes, sigma in zip(panels, (1, 4), strict=True):
        for client_adds, color, name in ((0, BLUE, "without"), (1, ORANGE, "with")):
            density = norm.pdf(seen, client_adds, sigma)
            axes.plot(seen, density, color=color, label=f"{name} the client")
            axes.fill_between(seen, density, alpha=0.15, color=color)
        axes.set(xlabel="what is seen (clip norms)", yticks=[], ylim=(0, None))
        axes.set_title(f"one round, noise multiplier {sigma}")
    panels[0].set_ylabel("density")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def unit():
    axes = canvas(10, 3.5)
    for left, title, hidden in ((0.9, "unit: client", range(6)), (6, "unit: record", (4,))):
        axes.text(left + 1.55, 3.1, title, ha="center", fontsize=9, weight="bold")
        for i in range(6):
            at = left + 1.55 * (i % 3), 2.2 - 1.2 * (i // 3)
            client(axes, *at, changed=hidden if i == 1 else ())
    axes.plot([5, 5], [0.5, 3.3], color="#d9d9d9", lw=1)
    axes.text(5, 0.12, "orange: what the epsilon hides", ha="center", fontsize=8.5)


def view():
    axes, of = canvas(10, 5), certificates()
    for x in (1, 2.4, 3.8):
        client(axes, x, 4.4)
        arrow(axes, (x, 3.9), (2.4 + (x - 2.4) * 0.4, 2.88))
    box(axes, 2.4, 2.5, "sum of the messages", 3.1, 0.7, GREEN)
    arrow(axes, (2.4, 2.15), (2.4, 1.5))
    box(axes, 2.4, 1.1, "global model", 3.1, 0.7, GREEN)
    for y, c, sees in (
        (3.45, of["server"], "server: every message"),
        (2.5, of["server_secagg"], "server with secure aggregation"),
        (1.1, of["third_party"], "third party"),
    ):
        arrow(axes, (5, y), (4.05, y), color=ORANGE)
        axes.text(5.1, y + 0.02, sees, va="bottom", fontsize=8.5, color=ORANGE)
        number = f"ε = {c.epsilon:.2f} ({meaning(c, 'unit', 'view', 'delta', 'basis')})"
        axes.text(5.1, y - 0.02, number, va="top", fontsize=8)
    words = f"ε: {meaning(c, 'view', 'relation')}, DP-FedAvg of the quickstart"
    axes.text(5, 0.2, words, ha="center", fontsize=8)


def adjacency():
    axes = canvas(10, 5.2)
    for y, name, last in (
        (4.0, "add or remove", {"kind": "gone"}),
        (2.3, "replace one", {"changed": range(6)}),
        (0.6, "zero out", {"kind": "empty"}),
    ):
        axes.text(0.25, y + 0.68, name, fontsize=9, weight="bold")
        axes.text(5, y, "or", ha="center", va="center", fontsize=9)
        for i in range(3):
            client(axes, 0.9 + 1.4 * i, y)
            client(axes, 6.3 + 1.4 * i, y, **(last if i == 2 else {}))


def delta():
    c = certificates()["third_party"]
    profile, deltas = c.profile(), np.geomspace(1e-9, 0.1, 80)
    axes = plt.figure(figsize=(4.5, 2.9)).add_subplot()
    axes.plot(deltas, [profile.epsilon(d) for d in deltas], color=BLUE)
    for d, words, offset, side in (
        (c.delta, "the quickstart's δ", (6, 4), "left"),
        (120**-1.1, "the paper's δ", (-8, -16), "right"),
    ):
        at = d, profile.epsilon(d)
        axes.plot(*at, "o", color=ORANGE)
        note(axes, f"{words}:\nε = {at[1]:.2f}", at, offset, ha=side)
    axes.axvline(1 / 120, color=GREY, ls=":")
    note(axes, "1 / n", (1 / 120, 2.9), (4, 0), color=GREY)
    axes.set(xscale="log", xlabel="δ (log scale)", ylabel="ε", ylim=(0, None))
    axes.set_title(f"ε: {meaning(c, 'delta')}; n = 120 clients")


def claimed_certified_audited():
    (account,) = experiments.privacy("quickstart", algorithms=["dp_fed_avg"])
    c, claim = account.certificates[0], account.claim
    noisy, sampling = fp.gaussian(1.0, noise_multiplier=4.0), fp.privacy.Poisson(120, 0.25)
    seen = fp.privacy.declared(c.view, c.unit, 4.0, sampling, rounds=60, mechanism=noisy)
    scores = fp.attacks.draw_scores([seen], c.view, draws=100_000)
    least = fp.attacks.lower_bounds(scores, c.delta).least
    values = {
        "claimed": claim.epsilon,
        "certified:\nat most": c.epsilon,
        "audited:\nat least": least,
    }
    axes = plt.figure(figsize=(4.5, 2.2)).add_subplot()
    bars = axes.barh([*values], [*values.values()], 0.6, color=[GREY, BLUE, ORANGE])
    axes.bar_label(bars, fmt=" %.2f", fontsize=9)
    axes.invert_yaxis()
    axes.set(xlabel="ε", xlim=(0, 3.4))
    axes.set_title(f"ε: {meaning(c, 'basis')}\ncertified: {c.basis}; audited: 95 %, 100,000 draws")


def operational_numbers():
    c = certificates()["third_party"]
    numbers, rate = c.operational_numbers(), np.linspace(0, 1, 400)
    found = 1 - c.profile().false_negative_rate(rate)
    best, recognised = rate[np.argmax(found - rate)], numbers.true_positive_rates[0]
    axes = plt.figure(figsize=(4.5, 3.6)).add_subplot()
    axes.plot(rate, found, color=BLUE, label="the best attacker")
    axes.plot(rate, rate, "--", color=GREY, label="guessing")
    axes.plot([best, best], [best, best + numbers.advantage], color=ORANGE, lw=2)
    note(axes, f"advantage {numbers.advantage:.2f}", (best, best + 0.19), (-4, 6), ha="right")
    axes.plot(0.01, recognised, "o", color=ORANGE)
    note(axes, f"{recognised:.3f} true positives at 0.01 false ones", (0.01, recognised), (14, -3))
    axes.set(xlabel="false positives", ylabel="true positives")
    axes.set_title(f"ε = {c.epsilon:.2f}: {meaning(c)}")
    axes.legend(loc="upper left")


def the_check():
    axes = canvas(10, 3.1)
    box(axes, 1.25, 2.4, "records", 2.1, 0.7, ORANGE)
    box(axes, 1.25, 0.6, "size of the\ncohort", 2.1, 0.9, ORANGE)
    box(axes, 5, 2.4, "clip, add up,\nadd noise", 2.3, 1.0, GREEN)
    box(axes, 8.9, 2.4, "model", 1.7, 0.7, BLUE)
    arrow(axes, (2.35, 2.4), (3.8, 2.4), "private", ORANGE, (0, 0.25))
    arrow(axes, (6.2, 2.4), (8, 2.4), "released", GREEN, (0, 0.25))
    arrow(axes, (2.35, 0.6), (8.7, 2), color=ORANGE, ls=(0, (4, 2)))
    axes.text(5.5, 1.3, "X", ha="center", va="center", fontsize=15, color=ORANGE)
    axes.text(5.6, 0.55, "past every release: refused", fontsize=8.5, color=ORANGE)


def the_proof():
    axes = canvas(10, 5.2)
    rows = [
        (
            4.7,
            ("round", "program", "releases"),
            "stream, bound, call, labels, flow, marks, trace",
            GREEN,
        ),
        (
            2.9,
            ("pair of laws", "what a view\nsees of a unit", "draws, noise"),
            "samplings, views, pairs",
            BLUE,
        ),
        (
            1.1,
            ("a witness", "losses of\nall draws", "ε at δ"),
            "curves, tilted, verify, certificate",
            ORANGE,
        ),
    ]
    for y, texts, modules, color in rows:
        for x, text in zip((1.3, 5, 8.7), texts, strict=True):
            box(axes, x, y, text, 2.5, 0.85, color)
        for left, right in ((2.6, 3.7), (6.3, 7.4)):
            ends = (left, y), (right, y)
            arrow(axes, *(reversed(ends) if color == BLUE else ends), color=color)
        axes.text(5, y - 0.68, modules, ha="center", va="center", fontsize=8, color=color)
    for x, y in ((8.7, 4.7), (1.3, 2.9)):
        arrow(axes, (x, y - 0.45), (x, y - 1.35))


STRUCTURES = (client_and_round, unit, view, adjacency, the_check, the_proof)
NUMBERS = (epsilon, delta, claimed_certified_audited, operational_numbers)
PICTURES = {draw.__name__: draw for draw in STRUCTURES + NUMBERS}


def main(names, folder=HERE):
    with mpl.rc_context(fname=HERE.parent / "gallery" / "matplotlibrc"):
        for name in names or PICTURES:
            PICTURES[name]()
            plt.savefig(folder / f"{name}.png")
            plt.close()


if __name__ == "__main__":
    main(sys.argv[1:])
