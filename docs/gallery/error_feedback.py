"""An algorithm of one's own: clients send 10 of 650 coordinates and remember the others (error feedback)."""

from typing import Any, NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np

import fedpriv as fp

data = fp.datasets.load("digits")
clients = fp.partition.iid(np.random.default_rng(0), len(data.train["label"]), 120)
federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
grad = fp.mean_grad(model.loss)


class State(NamedTuple):
    params: Any
    round: jax.Array
    memory: Any  # what a client has not sent yet, leaves [clients, ...]


def sparse(k, keep, rate=0.5):
    def init(params, federation):
        rows = jax.tree.map(lambda p: np.zeros((120, *p.shape), np.float32), params)
        return State(*fp.start(params, federation), rows)

    def round(key, state, cohort):
        def client(key, shard, memory):
            gradient = grad(state.params, shard.examples, shard.mask)
            update = jax.tree.map(lambda m, g: keep * m + g, memory, gradient)
            sent = fp.top_k(k).code(key, update).message
            return fp.Sent(update, own=jax.tree.map(lambda u, s: u - s, update, sent))

        options = {"codec": fp.top_k(k), "mechanism": fp.unprotected(), "own": state.memory}
        total, metrics, memory = cohort.sum(client, key, **options)
        params = jax.tree.map(lambda p, s: p - rate * s / 30, state.params, total)
        return State(params, state.round + 1, memory), metrics

    return fp.Algorithm(init, round, fp.poisson(120, rate=0.25))


run = {"score": model.score, "rounds": 100, "every": 5, "seeds": range(5)}
for name, k, keep in [("all", 650, 0), ("10, rest remembered", 10, 1), ("10, rest lost", 10, 0)]:
    history = fp.simulate(sparse(k, keep), model.init, federation, data.test, **run)
    accuracy = 100 * history.accuracy
    mean, std = accuracy.mean(1), accuracy.std(1, ddof=1)
    plt.plot(history.rounds, mean, label=f"{name}: {1000 * history.uplink_mb[-1].mean():.1f} kB")
    plt.fill_between(history.rounds, mean - std, mean + std, alpha=0.2)
    print(f"{name}: {mean[-1]:.1f} ± {std[-1]:.1f} %")
plt.title("not private; 5 seeds; band: one standard deviation")
plt.xlabel("round")
plt.ylabel("test accuracy (%)")
plt.legend(loc="lower right", title="sent of 650")
plt.savefig("error_feedback.png")
