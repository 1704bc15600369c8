"""DP-FedAvg on digits: python train_own.py FOLDER"""

import sys

import jax
import numpy as np
import optax

import fedpriv as fp

fp.cache_programs()
fp.distributed.initialize()  # before anything that starts JAX
folder = sys.argv[1]
data = fp.datasets.load("digits")
rng = np.random.default_rng(0)  # equal in all processes
clients = fp.partition.iid(rng, len(data.train["label"]), 120)
federation = fp.Federation.from_arrays(data.train, clients, num_classes=10)
model = fp.models.classifier(fp.models.MLP((64,), 10), (8, 8, 1))
algorithm = fp.dp_fed_avg(
    model.loss,
    sampler=fp.poisson(120, rate=0.25),
    batches=fp.epochs(1, batch_size=5),
    optimizer=lambda t: optax.sgd(0.1),
    clip_norm=1.0,
    noise_multiplier=1.0,
)
history = fp.simulate(
    algorithm,
    model.init,
    federation,
    data.test,
    score=model.score,
    rounds=20,
    every=5,
    checkpoints=fp.Checkpoints(f"{folder}/checkpoints", rounds=5),
)
if jax.process_index() == 0:
    fp.models.save_model(folder, "dp_fed_avg", 0, model, history.params())
    print(history.rounds, history.accuracy[:, 0])
