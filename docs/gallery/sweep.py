"""How many rounds at one budget? More rounds need more noise in each; `target_epsilon` finds how much."""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from fedpriv import experiments

budget = {"target_epsilon": 1.0, "delta": 1e-3, "seeds": 3, "algorithms": ["dp_fed_avg", "rand_k"]}
rounds = [5, 10, 20, 40, 80]
grid = {"rounds": rounds}

with tempfile.TemporaryDirectory() as folder:
    swept = experiments.sweep(
        "quickstart", grid, folder=f"{folder}/sweep", every=5, progress=False, **budget
    )
    runs = sorted(swept.runs, key=lambda run: run.settings["rounds"])
    for name, label in {"rand_k": "Fed-SMP rand_k", "dp_fed_avg": "DP-FedAvg"}.items():
        accuracy = 100 * np.array([run.history[name].accuracy[-1] for run in runs])
        mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
        plt.plot(rounds, mean, "o-", label=label)
        plt.fill_between(rounds, mean - std, mean + std, alpha=0.2)
        certificates = [run.certificates[name]["third_party"] for run in runs]
        for m, s, c in zip(mean, std, certificates, strict=True):
            print(f"{label}: {m:.1f} ± {s:.1f} %, {c}")

of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\nof each; 3 seeds; band: one standard deviation")
plt.xscale("log")
plt.xticks(rounds, rounds)
plt.minorticks_off()
plt.xlabel("rounds of the training (log scale)")
plt.ylabel("test accuracy at its end (%)")
plt.ylim(0, 100)
plt.legend(loc="lower right")
plt.savefig("sweep.png")
