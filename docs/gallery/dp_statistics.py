"""The pixels' mean and spread, privately in one round, then private training on standardised images."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
clients = fp.partition.iid(np.random.default_rng(0), len(data.train["label"]), 120)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
common = {"sampler": fp.poisson(120, rate=0.25), "batches": fp.full_batch()}


def scaled(examples, mean=0.0, std=1.0):
    return {**examples, "image": np.float32((examples["image"] / 255 - mean) / std)}


def moments(m, example):  # from 0, a step of rate 1 leads to the mean of [x, x²]
    both = jnp.concatenate([example["image"], example["image"] ** 2], -1)
    return {"loss": 0.5 * ((m - both) ** 2).sum()}


raw = fp.Federation.from_arrays(scaled(data.train), clients, num_classes=10)
step = {"optimizer": lambda t: optax.sgd(1.0), "clip_norm": 5.0, "noise_multiplier": 2.0}
first = fp.dp_fed_avg(lambda m, example: moments(m, example)["loss"], **common, **step)
zeros, once = np.zeros((8, 8, 2), np.float32), {"score": moments, "rounds": 1, "seeds": (100,)}
m = fp.simulate(first, zeros, raw, scaled(data.test), **once).params()
mean, square = m[..., :1], m[..., 1:]
spread = np.sqrt(np.maximum(square - mean**2, 0.01))
steps = {"optimizer": lambda t: optax.sgd(0.5), "clip_norm": 1.0, "noise_multiplier": 4.0}
then = fp.dp_fed_avg(model.loss, **common, **steps)
c = fp.certify_together([(first, 1, zeros), (then, 40)], model.init, raw, delta=1e-3)
alone = fp.certify(then, model.init, raw, rounds=40, delta=1e-3)
images = data.train["image"] / 255
run = {"score": model.score, "rounds": 40, "every": 2, "seeds": range(5)}
for name, *statistics in [
    ("exact statistics (no ε)", images.mean(0), np.maximum(images.std(0), 0.1)),
    (f"private statistics: ε = {c.epsilon:.2f}", mean, spread),
    (f"images as they are: ε = {alone.epsilon:.2f}",),
]:
    train, test = scaled(data.train, *statistics), scaled(data.test, *statistics)
    federation = fp.Federation.from_arrays(train, clients, num_classes=10)
    history = fp.simulate(then, model.init, federation, test, **run)
    accuracy = 100 * history.accuracy
    average, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(history.rounds, average, label=name)
    plt.fill_between(history.rounds, average - std, average + std, alpha=0.2)
    print(f"{name}: {average[-1]:.1f} ± {std[-1]:.1f} %")
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε: {of}\n5 seeds; band: one standard deviation")
plt.gca().set(xlabel="round", ylabel="test accuracy (%)")
plt.legend(loc="lower right")
plt.savefig("dp_statistics.png")
