"""The same trainings, and their epsilons towards three views: what secure aggregation is worth."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
clients = fp.partition.iid(np.random.default_rng(0), len(data.train["label"]), 120)
federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
common = {
    "sampler": fp.poisson(120, rate=0.25),
    "optimizer": lambda t: optax.sgd(0.5),
    "batches": fp.full_batch(),
    "clip_norm": 1.0,
}
run = {"score": model.score, "rounds": 60, "every": 60, "seeds": range(5)}
of_noise = [fp.dp_fed_avg(model.loss, noise_multiplier=z, **common) for z in (0.5, 1, 2, 4, 8)]
histories = [fp.simulate(a, model.init, federation, data.test, **run) for a in of_noise]
accuracy = 100 * np.array([history.accuracy[-1] for history in histories])
mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)

plt.figure(figsize=(4.5, 3.8))
for view, looks in {"third_party": "o-", "server_secagg": "s--", "server": "^:"}.items():
    privacy = {"rounds": 60, "delta": 1e-3, "view": view}
    certificates = [fp.certify(a, model.init, federation, **privacy) for a in of_noise]
    c, epsilons = certificates[2], [c.epsilon for c in certificates]
    plt.plot(epsilons, mean, looks, label=f"{view}, {c.relation}".replace("_", " "))
    plt.fill_between(epsilons, mean - std, mean + std, alpha=0.2)
    print(f"noise multiplier 2: {mean[2]:.1f} ± {std[2]:.1f} %, {c}")

plt.title(
    f"ε: {c.unit}, δ = {c.delta:g}, {c.basis}, view and adjacency as below\n"
    "5 seeds; band: one standard deviation"
)
plt.xscale("log")
plt.xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
plt.xlabel("ε (log scale)")
plt.ylabel("test accuracy (%)")
plt.ylim(0, 100)
plt.legend(loc="upper left", bbox_to_anchor=(0, -0.18))
plt.savefig("views.png")
