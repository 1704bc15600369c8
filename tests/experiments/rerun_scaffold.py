"""DP-SCAFFOLD's Tables 1 and 4 in NumPy, with the very random numbers of the authors' program but for its one shuffle.

M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278. Their code (commit ecad8ac) seeds PyTorch's Mersenne Twister by
run, round and step, and NumPy's by run and round; both are NumPy's `RandomState`, the first from its raw 32 bits. Each
client's records are shuffled there without a seed, which leaves some tenths of a point open.

    python tests/experiments/rerun_scaffold.py ALPHA SIGMA K T ETA_0
"""

import sys
from functools import cache

import numpy as np

CLIENTS, RECORDS, TRAINING, FEATURES, CLASSES, COHORT, BATCH = 100, 5000, 4000, 40, 10, 5, 800


class Torch:
    """`torch.manual_seed(seed)`, and what torch then draws on a CPU."""

    def __init__(self, seed):
        self.bits, self.spare = np.random.RandomState(seed)._bit_generator, []

    def double(self):
        """In [0, 1), of 53 bits."""
        high, low = map(int, self.bits.random_raw(2))
        return ((high << 32 | low) & (2**53 - 1)) * 2.0**-53

    def floats(self, n):
        """f32[n] in [0, 1), of 24 bits."""
        return (self.bits.random_raw(n) & (2**24 - 1)).astype(np.float32) * np.float32(2**-24)

    def permutation(self, n, first):
        """The first ones of `torch.randperm(n)`."""
        found, drawn = list(range(n)), self.bits.random_raw(n - 1)[:first]
        for i, z in enumerate((drawn % np.arange(n, n - first, -1, dtype=np.uint64)).tolist()):
            found[i], found[i + int(z)] = found[i + int(z)], found[i]
        return np.array(found[:first])

    def normals(self, n):
        """f32[n], n a multiple of 16: pairs by Box and Muller from the halves of each 16 numbers."""
        u = self.floats(n).reshape(-1, 2, 8)
        radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), np.float32(2 * np.pi) * u[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()

    def normal(self):
        """One of a short tensor."""
        if not self.spare:
            angle, radius = 2 * np.pi * self.double(), np.sqrt(-2 * np.log1p(-self.double()))
            self.spare = [radius * np.sin(angle), radius * np.cos(angle)]
        return self.spare.pop()


def model():
    """The initial one of all runs."""
    torch, most = Torch(0), FEATURES**-0.5
    w = (2 * torch.floats(CLASSES * FEATURES) - 1).reshape(CLASSES, FEATURES).T * most
    return w.astype(np.float32), ((2 * torch.floats(CLASSES) - 1) * most).astype(np.float32)


def drawn(run, t, k):
    """(batch, noise of the weights, noise of the biases) of a step, the same for all clients."""
    torch = Torch(500 * (run + 1) * (t + 1) + k + 1)
    torch.double()  # a data loader draws a seed for its workers
    batch = torch.permutation(TRAINING, BATCH)
    w = torch.normals(CLASSES * FEATURES).reshape(CLASSES, FEATURES).T
    return batch, w, np.array([torch.normal() for _ in range(CLASSES)], np.float32)


@cache
def data(alpha, shuffle=1):
    """(f32[clients, records, features], labels), beta = alpha."""
    rng = np.random.RandomState(0)
    means = np.array([alpha**0.5 * rng.randn(FEATURES) for _ in range(CLIENTS)])
    means += rng.randn(CLIENTS, FEATURES)
    shape = FEATURES, CLASSES
    w = np.array([alpha**0.5 * rng.randn(*shape) for _ in range(CLIENTS)])
    w += rng.randn(CLIENTS, *shape)
    b = alpha**0.5 * rng.randn(CLIENTS, CLASSES)
    b += rng.randn(CLIENTS, CLASSES)
    variance = np.diag(np.arange(1.0, FEATURES + 1) ** -1.2)
    x = np.stack([rng.multivariate_normal(mean, variance, RECORDS) for mean in means])
    label = np.argmax(x @ w + b[:, None], axis=-1)
    flipped = rng.binomial(1, 0.05, label.size).reshape(label.shape)
    label = np.where(flipped, rng.randint(0, CLASSES, label.size).reshape(label.shape), label)
    order = np.random.default_rng(shuffle).permuted(
        np.tile(np.arange(RECORDS), (CLIENTS, 1)), axis=1
    )
    x, label = np.take_along_axis(x, order[..., None], 1), np.take_along_axis(label, order, 1)
    for d in range(FEATURES):
        low, high = x[:, d].min(1)[:, None], x[:, d].max(1)[:, None]
        x[:, :, d] = (x[:, :, d] - low) / (high - low)
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32), label


def accuracy(alpha, sigma, steps, rounds, eta_0, run):
    """In % on the test records, mean over the last tenth of the rounds."""
    (x, label), (w, b), late = data(alpha), model(), []
    tested, truth = x[:, TRAINING:].reshape(-1, FEATURES), label[:, TRAINING:].ravel()
    rate = np.float32(eta_0 / max(round(0.2 * steps), 1))
    c = [np.zeros_like(w), np.zeros_like(b)]
    own = [np.zeros((CLIENTS, *part.shape), np.float32) for part in c]
    for t in range(rounds):
        if t >= 0.9 * rounds:
            late.append(100 * np.mean(np.argmax(tested @ w + b, 1) == truth))
        members = np.random.RandomState(t * (run + 1)).choice(CLIENTS, COHORT, replace=False)
        y, total = [np.repeat(part[None], COHORT, 0) for part in (w, b)], [0.0, 0.0]
        for k in range(1, steps + 1):
            batch, *noise = drawn(run, t, k)
            g = gradient(*y, x[members][:, batch], label[members][:, batch], sigma, noise)
            total = [s + part for s, part in zip(total, g, strict=True)]
            y = [
                y_p - rate * (g_p + c_p - own_p[members])
                for y_p, g_p, c_p, own_p in zip(y, g, c, own, strict=True)
            ]
        w, b = (part.mean(0) for part in y)
        for p in range(2):
            change = total[p] / steps - own[p][members]
            own[p][members] += change
            c[p] = c[p] + change.sum(0) / CLIENTS
    return np.mean(late)


def gradient(w, b, x, label, sigma, noise):
    """Of every client's batch, clipped at the median of the norms; of unit features that is one for both tensors."""
    z = x @ w + b[:, None]
    z = np.exp(z - z.max(-1, keepdims=True))
    e = z / z.sum(-1, keepdims=True) - np.eye(CLASSES, dtype=np.float32)[label]
    norms = np.linalg.norm(e, axis=-1)
    bound = np.median(norms, 1)
    e = e / np.maximum(1, norms / bound[:, None])[..., None]
    scale = (2 * sigma * bound / BATCH).astype(np.float32)
    of_w = x.transpose(0, 2, 1) @ e / BATCH + scale[:, None, None] * noise[0]
    return of_w, e.mean(1) + scale[:, None] * noise[1]


if __name__ == "__main__":
    alpha, sigma, steps, rounds, eta_0 = map(float, sys.argv[1:])
    runs = [accuracy(alpha, sigma, int(steps), int(rounds), eta_0, run) for run in range(3)]
    print(f"{np.mean(runs):.2f} +- {np.std(runs, ddof=1):.2f}", np.round(runs, 2))
