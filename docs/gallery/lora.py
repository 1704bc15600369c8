"""Private fine-tuning: the whole network, its last layer, or low-rank adapters (LoRA), at one certificate."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
model = fp.models.classifier(fp.models.MLP((64,), 10), (8, 8, 1))


def lying(examples):
    return {**examples, "image": np.rot90(examples["image"], axes=(1, 2))}


def training(loss, sampler, **private):
    local = {"batches": fp.epochs(5, batch_size=5), "optimizer": lambda t: optax.sgd(0.1)}
    return fp.fed_avg(loss, sampler=sampler, **local, **private)


# The base is public: it is trained on digits that stand upright. The clients' digits lie on their side.
upright = {name: leaf[:400] for name, leaf in data.train.items()}
public = fp.Federation.from_arrays(upright, [np.arange(400)], num_classes=10)
base = fp.simulate(
    training(model.loss, fp.everyone(1)),
    model.init,
    public,
    data.test,
    score=model.score,
    rounds=10,
).params()
rest = lying({name: leaf[400:] for name, leaf in data.train.items()})
clients = fp.partition.iid(np.random.default_rng(0), len(rest["label"]), 120)
federation = fp.Federation.from_arrays(rest, clients, num_classes=10)

figure, axes = plt.subplots()
for name, tuned, start in [
    ("whole network", model, base),
    ("last layer", fp.models.frozen(model, base, trainable="Dense_1"), None),
    ("LoRA, rank 4", fp.models.adapters(model, base, rank=4, where="kernel"), None),
]:
    algorithm = training(
        tuned.loss, fp.poisson(120, rate=0.25), mechanism=fp.gaussian(1.0, noise_multiplier=4.0)
    )
    history = fp.simulate(
        algorithm,
        start or tuned.init,
        federation,
        lying(data.test),
        score=tuned.score,
        rounds=40,
        seeds=range(5),
    )
    c = fp.certify(algorithm, tuned.init, federation, rounds=40, delta=1e-3)
    mean, std = 100 * history.accuracy.mean(1), 100 * history.accuracy.std(1, ddof=1)
    axes.plot(history.rounds, mean, label=f"{name}, {fp.dimension(history.params()):,} numbers")
    axes.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    print(
        f"{name:<13} {mean[-1]:.1f} ± {std[-1]:.1f} %, {fp.dimension(history.params())}, {c.epsilon:.3f}"
    )
axes.set_title(
    f"each ε = {c.epsilon:.2f}: {c.unit}, third party, add or remove, δ = {c.delta:.3g}, {c.basis}\nx"
)
axes.set(xlabel="round", ylabel="test accuracy (%)")
axes.legend(loc="lower right")
figure.savefig("lora.png")
