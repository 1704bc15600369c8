"""Private fine-tuning of a public base: low-rank adapters (LoRA), the last layer, or the whole network."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
model = fp.models.classifier(fp.models.MLP((64,), 10), (8, 8, 1))
local = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.epochs(5, batch_size=5)}


def lying(examples):
    return {**examples, "image": np.rot90(examples["image"], axes=(1, 2))}


# The base knows digits that stand upright; the clients' digits lie on their side.
upright = {name: leaf[:400] for name, leaf in data.train.items()}
public = fp.Federation.from_arrays(upright, [np.arange(400)], num_classes=10)
in_the_open = fp.fed_avg(model.loss, sampler=fp.everyone(1), **local)
run = {"score": model.score, "rounds": 10, "every": 10}
base = fp.simulate(in_the_open, model.init, public, data.test, **run).params()

rest = lying({name: leaf[400:] for name, leaf in data.train.items()})
clients = fp.partition.iid(np.random.default_rng(0), len(rest["label"]), 120)
federation = fp.Federation.from_arrays(rest, clients, num_classes=10)
private = {"sampler": fp.poisson(120, rate=0.25), "clip_norm": 1.0, "noise_multiplier": 2.0}
for name, tuned, begin in [
    ("LoRA of rank 4", adapters := fp.models.adapters(model, base, 4, "kernel"), adapters.init),
    ("last layer", head := fp.models.frozen(model, base, "Dense_1"), head.init),
    ("whole network", model, base),
]:
    algorithm = fp.dp_fed_avg(tuned.loss, **local, **private)
    run = {"score": tuned.score, "rounds": 40, "every": 2, "seeds": range(5)}
    history = fp.simulate(algorithm, begin, federation, lying(data.test), **run)
    c = fp.certify(algorithm, tuned.init, federation, rounds=40, delta=1e-3)
    sent, accuracy = 1000 * history.uplink_mb.mean(1), 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(sent, mean, label=f"{name}, {fp.dimension(history.params()):,} numbers")
    plt.fill_between(sent, mean - std, mean + std, alpha=0.2)
    print(f"{name}: {mean[-1]:.1f} ± {std[-1]:.1f} %, {sent[-1]:.0f} kB, ε = {c.epsilon:.2f}")
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\nof each; 5 seeds; band: one standard deviation")
plt.xscale("log")
plt.xticks([2, 5, 10, 20, 50, 100, 200], [2, 5, 10, 20, 50, 100, 200])
plt.xlabel("sent by a client (kB, log scale)")
plt.ylabel("test accuracy (%)")
plt.ylim(0, 100)
plt.legend(loc="lower right")
plt.savefig("lora.png")
