"""The images' mean and variance, privately in one round, then private training on normalised images."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
clients = fp.partition.iid(np.random.default_rng(0), len(data.train["label"]), 120)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
raw = fp.Federation.from_arrays(data.train, clients, num_classes=10)
training = fp.dp_fed_avg(
    model.loss,
    sampler=fp.poisson(120, rate=0.25),
    batches=fp.full_batch(),
    optimizer=lambda t: optax.sgd(0.5),
    clip_norm=1.0,
    noise_multiplier=4.0,
)
moments = fp.statistics.mean_and_variance
each_pixel = moments("image", bounds=(0, 255))  # 64 means, 64 variances
all_pixels = moments("image", bounds=(0, 255), axis=(0, 1))  # one of each


def scaled(examples):
    return {**examples, "image": np.float32(examples["image"] / 255)}


def normalised(statistic, noise_multiplier):
    released = statistic.release(raw, noise_multiplier=noise_multiplier, delta=1e-3, seed=1)
    runs = [(released.algorithm, 1), (training, 40)]
    c = fp.certify_together(runs, model.init, raw, delta=1e-3)
    return c, fp.normalised(raw, by=released), fp.normalised(data.test, by=released)


alone = fp.certify(training, model.init, raw, rounds=40, delta=1e-3)
as_it_is = fp.Federation.from_arrays(scaled(data.train), clients, num_classes=10)
run = {"score": model.score, "rounds": 40, "every": 2, "seeds": range(5)}
for name, c, federation, test in [
    ("all pixels' mean and variance", *normalised(all_pixels, 6.0)),
    ("each pixel's", *normalised(each_pixel, 6.0)),
    ("images from 0 to 1", alone, as_it_is, scaled(data.test)),
]:
    history = fp.simulate(training, model.init, federation, test, **run)
    accuracy = 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(history.rounds, mean, label=f"{name}: ε = {c.epsilon:.2f}")
    plt.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    print(f"{name}: {mean[-1]:.1f} ± {std[-1]:.1f} %, epsilon {c.epsilon:.2f}")
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε: {of}\n5 seeds; band: one standard deviation")
plt.gca().set(xlabel="round", ylabel="test accuracy (%)")
plt.legend(loc="lower right")
plt.savefig("dp_statistics.png")
