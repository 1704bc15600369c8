"""Clients with few classes each: one model for all, or a shared body and a head of each client's own (FedPer)."""

import matplotlib.pyplot as plt
import numpy as np
import optax

import fedpriv as fp

data = fp.datasets.load("digits")
rng = np.random.default_rng(0)
clients = fp.partition.shards(rng, data.train["label"], clients=60, shards_per_client=2)
held_out, rest = fp.partition.hold_out(rng, clients, 0.25)
federation = fp.Federation.from_arrays(data.train, rest, held_out=held_out, num_classes=10)
model = fp.models.classifier(fp.models.MLP((64,), 10), (8, 8, 1))
common = {
    "sampler": fp.poisson(60, rate=0.25),
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.epochs(5, batch_size=5),
    "mechanism": fp.gaussian(1.0, noise_multiplier=2.0),
}
run = {"score": model.score, "rounds": 60, "every": 4, "seeds": range(5)}
for name, algorithm, metric in [
    ("own heads", fp.fed_per(model.loss, head=("Dense_1",), **common), "personal_accuracy"),
    ("one model", fp.fed_avg(model.loss, **common), "held_out_accuracy"),
]:
    measure = fp.measures.per_client(model.score, on="held_out", personal=algorithm.personal)
    history = fp.simulate(algorithm, model.init, federation, data.test, measure=measure, **run)
    accuracy = 100 * history.metric(f"{metric}_mean")
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    (line,) = plt.plot(history.rounds, mean, label=f"{name}: mean client")
    plt.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    worst = 100 * history.metric(f"{metric}_worst_decile").mean(1)
    plt.plot(history.rounds, worst, ":", color=line.get_color(), label=f"{name}: worst tenth")
    print(f"{name}: {mean[-1]:.1f} ± {std[-1]:.1f} %, worst tenth {worst[-1]:.1f} %")

c = fp.certify(algorithm, model.init, federation, rounds=60, delta=1e-3)
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"ε = {c.epsilon:.2f} ({of})\n5 seeds; band: one standard deviation")
plt.xlabel("round")
plt.ylabel("accuracy on held-out digits (%)")
plt.ylim(0, 100)
plt.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=2)
plt.savefig("personal_heads.png")
