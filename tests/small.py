"""Tiny federations and losses that the tests share, and NumPy's answers for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import fedpriv as fp
from fedpriv import Federation, models
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core import random_streams
from fedpriv.devices.fitting import compiled
from fedpriv.privacy.rows import Row, featured
from fedpriv.proof.marks import Marks
from fedpriv.rounds.client_shard import InCall, shard_in_call
from fedpriv.rounds.client_stream import ClientStream

# The chance that a correct implementation fails a statistical test, had its seed not been fixed.
FALSE_ALARM = 1e-6


@contextmanager
def refused(
    said: str, error: type[Exception] = ValueError
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """What is inside raises it, in one line that says so."""
    with pytest.raises(error, match=said) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def regression(
    sizes: Sequence[int], *, features: int = 3, public: int = 0, seed: int = 0
) -> Federation:
    """Examples {"x": f32[features], "y": f32[]}, in a random order; client i holds sizes[i]."""
    rng = np.random.default_rng(seed)
    total = sum(sizes) + public
    x = rng.normal(size=(total, features)).astype(np.float32)
    y = (x @ np.linspace(-1, 1, features) + rng.normal(size=total)).astype(np.float32)
    parts = np.split(rng.permutation(total), np.cumsum(sizes))
    return Federation.from_arrays({"x": x, "y": y}, parts[:-1], public=parts[-1])


def start(features: int = 3) -> dict[str, jax.Array]:
    """Parameters {"b": f32[], "w": f32[features]}; flattened, `b` comes first."""
    return {
        "b": jnp.float32(0.2),
        "w": jnp.asarray(np.linspace(0.5, -0.5, features, dtype=np.float32)),
    }


def squared(params, example):
    """Half the squared residual of a linear model."""
    residual = example["x"] @ params["w"] + params["b"] - example["y"]
    return 0.5 * residual**2


def records(federation: Federation, client: int) -> tuple[np.ndarray, np.ndarray]:
    """x, y of one client, in double precision."""
    rows = np.asarray(federation.rows)[client][: int(federation.size[client])]
    return rows_of(federation, rows)


def rows_of(federation: Federation, rows) -> tuple[np.ndarray, np.ndarray]:
    """x, y of some rows, in double precision."""
    return tuple(np.asarray(federation.examples[n], np.float64)[np.asarray(rows)] for n in "xy")


def vector(params) -> np.ndarray:
    """f64[d]: b, then w."""
    return np.concatenate([np.ravel(params["b"]), np.ravel(params["w"])]).astype(np.float64)


def gradient(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean of `squared`, by hand."""
    residual = x @ theta[1:] + theta[0] - y
    return np.concatenate([[residual.mean()], x.T @ residual / len(y)])


def heavy_ball(theta, x, y, *, steps: int, rate: float, momentum: float) -> np.ndarray:
    """Full-batch gradient descent with momentum, from rest."""
    velocity = np.zeros_like(theta)
    for _ in range(steps):
        velocity = momentum * velocity + gradient(theta, x, y)
        theta = theta - rate * velocity
    return theta


def sgd(t):
    """The usual optimiser of the tests: the rate decays by round."""
    return optax.sgd(0.1 * 0.9**t, momentum=0.5)


@flax.struct.dataclass
class Poisoned(Federation):
    """All padding is an example that would be noticed."""

    def records(self, ids, mask):
        given = super().records(ids, mask)

        def of_client(i):
            real = jnp.arange(self.capacity) < self.size[i]
            return jax.tree.map(
                lambda leaf: jnp.where(jnp.expand_dims(real, range(1, leaf.ndim)), leaf, 1e4),
                given(i),
            )

        return of_client


def with_capacity(federation: Federation, capacity: int, poison: bool = False) -> Federation:
    """Room for more records; with `poison`, all padding is an example that would be noticed."""
    rows = federation.client_rows
    wider = rows.replace(order=jnp.pad(rows.order, (0, capacity)), capacity=capacity)
    of = Poisoned if poison else Federation
    return of(federation.examples, wider, federation.public, federation.held_out_rows)


def of_clients(federation: Federation, clients) -> Federation:
    """These clients (i64[n]) alone, in this order; the same one may come again."""
    rows, clients = federation.client_rows, np.asarray(clients)
    return federation.replace(
        client_rows=rows.replace(start=rows.start[clients], size=rows.size[clients])
    )


@lru_cache(maxsize=32)
def one_round(algorithm: fp.Algorithm):
    """(root key, state, federation) -> (state, metrics), compiled once."""
    return jax.jit(fp.one_round(algorithm))


def compiler_of_one_program():
    """For runs of one program: the first compiles it."""
    kept = []

    def compiler(*program):
        if not kept:
            kept.append(compiled(*program))
        return kept[0]

    return compiler


class Keys(NamedTuple):
    """Keys of a round whose algorithm gives its own to the cohort's only call."""

    cohort: jax.Array
    clients: jax.Array
    noise: jax.Array
    call: jax.Array


def keys_of(root, t=0) -> Keys:
    """Those of the round after t others; a client's is `fold_in(keys_of(root).clients, id)`."""
    fold = jax.random.fold_in
    own = fold(fold(root, random_streams.PUBLIC), t + 1)
    hidden = fold(fold(root, random_streams.HIDDEN), t)
    call = fold(hidden, 0)
    return Keys(
        fold(hidden, random_streams.PARTICIPATION),
        jax.random.split(fold(own, random_streams.COHORT))[0],
        fold(call, random_streams.NOISE),
        call,
    )


def with_stream(shard: fp.Shard, key) -> fp.Shard:
    """The shard of a client whose private means come from this hidden key."""
    of = InCall(ClientStream(key), 0, Marks(), [], [])
    return shard_in_call(of, shard.examples, shard.size, shard.round, shard.client_id)


@lru_cache(maxsize=32)
def cohort_of(sampler: fp.Sampler):
    """(root key, rounds done) -> the cohort's draw, compiled once."""
    return jax.jit(lambda root, t: sampler.draw(keys_of(root, t).cohort))


def members(sampler: fp.Sampler, root, t=0) -> np.ndarray:
    """Ids of those who take part in the round after t others."""
    drawn = cohort_of(sampler)(root, t)
    return np.asarray(drawn.ids)[np.asarray(drawn.mask)]


def blank(algorithm: fp.Algorithm, records: int = 4) -> Federation:
    """As many clients as the algorithm's sampler is for, each with so many of `squared`'s examples; two public."""
    example = {"x": jax.ShapeDtypeStruct((3,), jnp.float32), "y": jnp.float32(0)}
    return Federation.blank(example, algorithm.sampler.accounting.population, records, public=2)


@lru_cache(maxsize=32)
def traced(algorithm: fp.Algorithm, records: int = 4):
    """The round of an algorithm of `squared`, traced once."""
    return fp.trace_round(algorithm, start(), blank(algorithm, records))


def certified(algorithm: fp.Algorithm, rounds: int, delta: float, records: int = 4, **options):
    """The certificate of an algorithm of `squared`."""
    return traced(algorithm, records).certify(rounds, delta, **options)


def released(
    algorithm: fp.Algorithm, rounds: int, records: int = 4
) -> dict[str, list[fp.privacy.Seen]]:
    """View -> what it sees of an algorithm of `squared`."""
    found = traced(algorithm, records).seen(rounds)
    return {view: [r for r in found if r.view == view] for view in fp.privacy.VIEWS}


def table_of(round, rounds: int, kind: UnitKind | None = None) -> dict[str, list[Row]]:
    """View -> the rows of the table of views, of a traced round."""
    found = [featured(row) for row in round._rows(rounds, round.kinds[0] if kind is None else kind)]
    return {view: [row for row in found if row.view == view] for view in fp.privacy.VIEWS}


def filled(init, std: float = 0.3):
    """Random parameters in the shapes of `init(key)`, without compiling it."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(init, jax.random.key(0))
    return jax.tree.map(lambda s: jnp.asarray(rng.normal(0, std, s.shape), s.dtype), shapes)


def classification(
    clients: int = 8, per_client: int = 3, *, public: int = 4, tests: int = 5, seed: int = 0
) -> tuple[Federation, dict[str, np.ndarray], models.Model]:
    """A federation of {"image": u8[2, 2, 1], "label": 0..2}, test examples, logistic regression."""
    rng = np.random.default_rng(seed)
    total = clients * per_client + public

    def draw(count: int) -> dict[str, np.ndarray]:
        label = rng.integers(0, 3, count, np.int32)
        image = rng.integers(0, 100, (count, 2, 2, 1)) + 50 * label[:, None, None, None]
        return {"image": image.astype(np.uint8), "label": label}

    rows = np.split(rng.permutation(total), np.arange(1, clients + 1) * per_client)
    federation = Federation.from_arrays(draw(total), rows[:-1], public=rows[-1], num_classes=3)
    return federation, draw(tests), models.classifier(models.LogisticRegression(3), (2, 2, 1))


def assert_normal(sample: np.ndarray, std: float) -> None:
    """Zero-mean normal with standard deviation `std`: variance (chi-square) and shape (KS)."""
    sample = np.ravel(sample).astype(np.float64)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(sample))
    assert low < np.sum((sample / std) ** 2) < high
    assert stats.kstest(sample / std, "norm").pvalue > FALSE_ALARM


def assert_uniform(counts: np.ndarray, trials: int, probability: float) -> None:
    """Each of `counts` is a binomial(trials, probability); Bonferroni over them."""
    tail = FALSE_ALARM / 2 / np.size(counts)
    low, high = stats.binom.ppf([tail, 1 - tail], trials, probability)
    assert np.all((low <= counts) & (counts <= high))


def assert_close(actual, expected, rtol: float = 1e-5) -> None:
    """Leaf by leaf, relative to the largest entry of the leaf."""
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    for a, e in zip(actual, expected, strict=True):
        scale = max(1e-30, float(np.max(np.abs(e), initial=0)))
        np.testing.assert_allclose(a, e, rtol=0, atol=rtol * scale)


def assert_identical(actual, expected) -> None:
    """Leaf by leaf, to the bit."""
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


def z_bound(tests: int) -> float:
    """Of the largest of so many standard normals."""
    return stats.norm.isf(FALSE_ALARM / 2 / tests)
