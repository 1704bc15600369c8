"""Clients with unlike digits: how a Dirichlet distribution deals them, and what that does to FedAvg."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
labels = data.train["label"]
model = fp.models.classifier(fp.models.MLP((64,), 10), (8, 8, 1))
fed_avg = fp.fed_avg(
    model.loss,
    sampler=fp.fixed_size(20, 5),
    optimizer=lambda t: optax.sgd(0.1),
    batches=fp.epochs(5, batch_size=5),
)
figure, panels = plt.subplot_mosaic("abc;ddd", figsize=(4.5, 4.4), height_ratios=(1, 1.6))
curves = panels["d"]

for panel, alpha in zip("abc", (100, 0.3, 0.05), strict=True):
    clients = fp.partition.dirichlet(np.random.default_rng(0), labels, clients=20, alpha=alpha)
    held = fp.partition.counts(clients, labels)  # i64[clients, digits]
    for digit in range(10):
        left, color = held[:, :digit].sum(1), plt.colormaps["tab10"](digit)
        panels[panel].barh(range(20), held[:, digit], 0.9, left, color=color)
    panels[panel].set(title=f"alpha = {alpha}", xlabel="digits held", xlim=(0, 250), yticks=[])

    federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
    run = {"score": model.score, "rounds": 40, "every": 2, "seeds": range(5)}
    history = fp.simulate(fed_avg, model.init, federation, data.test, **run)
    accuracy = 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    curves.plot(history.rounds, mean, label=f"alpha = {alpha}")
    curves.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    print(f"alpha = {alpha}: {mean[-1]:.1f} ± {std[-1]:.1f} %")

panels["a"].set_ylabel("20 clients")
curves.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
curves.set_title("FedAvg, not private; 5 seeds; band: one standard deviation")
curves.legend(loc="lower right")
figure.savefig("heterogeneity.png")
