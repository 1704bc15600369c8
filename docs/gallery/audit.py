"""Two thousand trainings, half of them with a canary: an attacker's errors, and those that the certificate allows."""

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
from scipy.stats import binom

import fedpriv as fp

data = fp.datasets.load("digits")
few = {name: leaf[:200] for name, leaf in data.train.items()}
federation = fp.Federation.from_arrays(few, np.arange(200).reshape(20, 10), num_classes=10)
model = fp.models.classifier(fp.models.LogisticRegression(10), (8, 8, 1))
algorithm = fp.dp_fed_avg(
    model.loss,
    sampler=fp.poisson(20, rate=0.5),
    optimizer=lambda t: optax.sgd(0.1),
    batches=fp.full_batch(),
    clip_norm=1.0,
    noise_multiplier=1.0,
)
views = fp.trace_round(algorithm, model.init, federation).seen(5)
audited = fp.attacks.with_canaries(algorithm, 1, views[0])
run = {"score": model.score, "rounds": 5, "every": 5, "seeds": range(2000)}
state = fp.simulate(audited, model.init(jax.random.key(0)), federation, data.test, **run).state
present, scores = state.present[:, 0], state.scores[:, 0, 0]  # scores of a third party
pair = fp.attacks.Scores(scores[present], scores[~present], frozenset(), False)
seen = fp.attacks.lower_bounds(pair, delta=1e-3).clopper_pearson
c = fp.certify(algorithm, model.init, federation, rounds=5, delta=1e-3)
print(c, f"seen, at least: {seen:.2f}", sep="\n")

rate = np.linspace(0, 1, 200)
thresholds = np.quantile(pair.absent, 1 - rate)
missed = (pair.present[:, None] < thresholds).mean(0)
low, high = binom.interval(0.95, len(pair.present), missed) / np.float64(len(pair.present))
plt.figure(figsize=(4.5, 3.8))
plt.plot(rate, 1 - rate, "--", color="0.5", label="guessing")
plt.plot(rate, missed, label=f"the attacker: ε ≥ {seen:.2f} (95 % confidence)")
plt.fill_between(rate, low, high, alpha=0.2)
plt.plot(rate, c.profile().false_negative_rate(rate), label=f"certified: ε = {c.epsilon:.2f}")
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, {c.basis}".replace("_", " ")
plt.title(f"{of}\n2,000 trainings; band: 95 % for each false-negative rate")
plt.xlabel("false positives")
plt.ylabel("false negatives")
plt.legend(loc="upper right")
plt.savefig("audit.png")
