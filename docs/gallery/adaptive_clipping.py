"""DP-FedAvg with a fixed clip norm, and with one that follows the median of the clients' update norms."""

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
    "noise_multiplier": 2.0,
}
run = {"score": model.score, "rounds": 60, "every": 60, "seeds": range(5)}
norms = [0.01, 0.1, 1, 10]

for name, of in {
    "fixed": lambda norm: fp.dp_fed_avg(model.loss, clip_norm=norm, **common),
    "adaptive": lambda norm: fp.adaptive_fed_avg(
        model.loss, clip_norm=norm, quantile=0.5, **common
    ),
}.items():
    histories = [fp.simulate(of(c), model.init, federation, data.test, **run) for c in norms]
    accuracy = 100 * np.array([history.accuracy[-1] for history in histories])
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(norms, mean, "o-", label=name)
    plt.fill_between(norms, mean - std, mean + std, alpha=0.2)
    print(name, *(f"{c:g}: {m:.1f} ± {s:.1f} %" for c, m, s in zip(norms, mean, std, strict=True)))

c = fp.certify(of(1.0), model.init, federation, rounds=60, delta=1e-3)
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\nof each; 5 seeds; band: one standard deviation")
plt.xscale("log")
plt.xticks(norms, [f"{norm:g}" for norm in norms])
plt.xlabel("clip norm of the first round (log scale)")
plt.ylabel("test accuracy after 60 rounds (%)")
plt.ylim(0, 100)
plt.legend(loc="lower center")
plt.savefig("adaptive_clipping.png")
