"""What a server reconstructs of clients with one image each: of bare updates, and of clipped and noisy ones."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import fedpriv as fp
from fedpriv import attacks

data = fp.datasets.load("digits")
federation = fp.Federation.from_arrays(data.train, [[i] for i in range(8)], num_classes=10)
model = fp.models.classifier(fp.models.SigmoidLeNet(10), (8, 8, 1))
params = model.init(jax.random.key(0))
sgd = optax.sgd(1.0)
common = {"sampler": fp.everyone(8), "optimizer": lambda t: sgd, "batches": fp.full_batch()}
observe = attacks.local_update(model.loss, params, sgd)


@jax.jit(static_argnums=0)
def reconstructed(algorithm):
    state = algorithm.init(params, federation)
    view = attacks.server_view(algorithm, jax.random.key(1), state, federation)
    labels = attacks.infer_labels(view, params, lambda p: p["params"]["Dense_0"])
    found = attacks.invert_view(view, observe, labels, (8, 8, 1), jax.random.key(2), steps=200)
    return jnp.clip(found.image, 0, 1)


true = jnp.float32(data.train["image"][:8]) / 255
rows = {"what eight clients hold": true}
for z in (0, 0.01, 0.1):
    algorithm = fp.dp_fed_avg(model.loss, clip_norm=1.0, noise_multiplier=z, **common)
    if z == 0:
        algorithm = fp.fed_avg(model.loss, **common)
    c = fp.certify(algorithm, params, federation, rounds=1, delta=1e-5, view="server")
    images = reconstructed(algorithm)
    name = f"DP-FedAvg, noise multiplier {z}: ε = {c.epsilon:,.0f}" if z else "FedAvg: no ε"
    rows[f"{name}; mean squared error {attacks.mse(images, true).mean():.3f}"] = images
    print(c, attacks.mse(images, true).mean())
of = f"{c.unit}, {c.view}, {c.relation}, δ = {c.delta:g}, one round, {c.basis}".replace("_", " ")
figure, panels = plt.subplots(4, figsize=(4.5, 3.6))
figure.suptitle(f"ε: {of}", fontsize=8, x=0.01, ha="left")
for panel, (name, images) in zip(panels, rows.items(), strict=True):
    side_by_side = jnp.hstack(jnp.pad(images[..., 0], ((0, 0), (0, 0), (1, 1))))
    panel.imshow(side_by_side, cmap="gray_r", vmin=0, vmax=1)
    panel.set_title(name)
    panel.set_axis_off()
plt.savefig("inversion.png")
