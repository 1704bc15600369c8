"""Cohorts that take turns in the open: fresh noise, and noise that takes back earlier noise, at one epsilon."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

ROUNDS, APART = 100, 10  # a client takes part every tenth round

data = fp.datasets.load("digits")
clients = fp.partition.iid(np.random.default_rng(0), len(data.train["label"]), 120)
federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
budget = {"epsilon": 8.0, "rounds": ROUNDS, "delta": 1e-3}
run = {"score": model.score, "rounds": ROUNDS, "every": 5, "seeds": range(5)}


def in_turns(matrix, sigma):
    return fp.fed_avg(
        model.loss,
        sampler=fp.shuffled_blocks(120, 120 // APART),
        optimizer=lambda t: optax.sgd(0.3),
        batches=fp.full_batch(),
        mechanism=fp.correlated(fp.gaussian(0.5, sigma), matrix),
    )


for name, matrix in {
    "BLT noise, two buffers": fp.noise_matrices.blt(ROUNDS, separation=APART, buffers=2),
    "fresh noise": fp.noise_matrices.identity(),
}.items():
    noisy = partial(in_turns, matrix)
    algorithm = noisy(fp.calibrate_noise(noisy, model.init, federation, **budget))
    history = fp.simulate(algorithm, model.init, federation, data.test, **run)
    accuracy = 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(history.rounds, mean, label=name)
    plt.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    print(f"{name}: {mean[-1]:.1f} ± {std[-1]:.1f} %")
c = fp.certify(algorithm, model.init, federation, ROUNDS, delta=1e-3)
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\nof each; 5 seeds; band: one standard deviation")
plt.xlabel("round")
plt.ylabel("test accuracy (%)")
plt.legend(loc="lower right")
plt.savefig("blt.png")
