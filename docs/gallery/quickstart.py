"""The first command of the front page, from Python: four algorithms on handwritten digits."""

import tempfile

import matplotlib.pyplot as plt

from fedpriv import experiments

with tempfile.TemporaryDirectory() as folder:
    run = experiments.run("quickstart", seeds=5, folder=f"{folder}/run", progress=False)

names = {"fed_avg": "FedAvg (not private)", "dp_fed_avg": "DP-FedAvg"}
names |= {"rand_k": "Fed-SMP rand_k", "top_k": "Fed-SMP top_k"}
for algorithm, history in run.history.items():
    accuracy = 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(history.rounds, mean, label=names[algorithm])
    plt.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    sent = history.uplink_mb[-1].mean()
    print(f"{names[algorithm]}: {mean[-1]:.1f} ± {std[-1]:.1f} %, {sent:.3f} MB")

c = run.certificates["rand_k"]["third_party"]
assert c.epsilon == run.certificates["dp_fed_avg"]["third_party"].epsilon
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:.3g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\nof the private ones; 5 seeds; band: one standard deviation")
plt.xlabel("round")
plt.ylabel("test accuracy (%)")
plt.ylim(0, 100)
plt.legend(loc="lower right")
plt.savefig("quickstart.png")
