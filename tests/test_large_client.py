"""A federation in which one client has nearly all records needs no more memory than its records."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import sgd, squared, start

import fedpriv as fp
from fedpriv.core.jaxprs import equations
from fedpriv.data.federation import stack

CROWD, MOST = 3000, 100_000


def crowded():
    """One client has nearly all records, and one held out; a table of all would have 3e8 entries."""
    total = MOST + CROWD + 1
    clients = [np.arange(MOST), *np.arange(MOST, MOST + CROWD - 1)[:, None]]
    held = [np.array([total - 2]), np.array([total - 1]), *[np.zeros(0, int)] * (CROWD - 2)]
    data = {"x": np.ones((total, 2), np.float32), "y": np.arange(total, dtype=np.float32)}
    return fp.Federation.from_arrays(data, clients, held_out=held)


@pytest.mark.slow
def test_a_large_client_widens_no_other_s_room():
    """Neither where a federation is made, divided anew or stacked, nor where all of its records are looked at."""
    federation = crowded()
    tracemalloc.start()
    other = crowded().repartition([np.arange(MOST), [MOST]], held_out=[[MOST + 1], []])
    together = stack([federation, federation])
    lowest = fp.measures.minimum_of(squared, start(2), federation)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e7  # bytes
    assert max(leaf.size for leaf in jax.tree.leaves((federation, other, together))) < 1e6
    assert (federation.capacity, federation.held_out.capacity) == (MOST, 1)
    assert lowest > 0
    np.testing.assert_array_equal(federation.client_rows.of_client(jnp.int32(7)), MOST + 6)


def values_of(program, *given):
    """The entries of each value of a program."""
    return [
        np.prod(variable.aval.shape, dtype=float)
        for equation, _ in equations(jax.make_jaxpr(program)(*given).jaxpr)
        for variable in equation.outvars
    ]


@pytest.mark.parametrize("kind", [fp.measures.per_client, fp.measures.per_group])
def test_scores_of_many_clients_keep_no_client_s_histogram(kind):
    """Four times as many clients need the same room: an AUC's histogram has 8,192 entries."""

    def most(clients):
        rows = np.arange(2 * clients)
        data = {"x": np.ones(len(rows), np.float32), "label": (rows % 2).astype(np.int32)}
        federation = fp.Federation.from_arrays(data, rows.reshape(-1, 2))
        score = fp.models.classification_score(lambda w, x: jnp.stack([0.0, w * x]), 2, inputs="x")
        groups = () if kind is fp.measures.per_client else (np.arange(clients) % 2,)
        measure = kind(score, *groups)
        return max(values_of(measure, fp.ModelState(jnp.float32(1), 0), federation))

    assert most(4000) == most(16_000)


def test_a_round_and_scores_of_each_client_hold_no_table():
    """No value of their programs has an entry for each client and for each record of the largest."""
    federation = crowded()
    algorithm = fp.fed_avg(
        squared, sampler=fp.fixed_size(CROWD, 5), optimizer=sgd, batches=fp.epochs(1, 10)
    )
    state = algorithm.init(start(2), federation)
    measure = fp.measures.per_client(lambda p, e: {"loss": squared(p, e)}, on="train")
    for program, given in (
        (fp.one_round(algorithm), (jax.random.key(0), state, federation)),
        (measure, (state, federation)),
    ):
        assert MOST <= max(values_of(program, *given)) < 40 * MOST
