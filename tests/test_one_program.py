"""The program that is certified is the one that runs."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from faulty_rounds import raw
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    D,
    State,
    after_sum,
    fed_avg,
    moved,
    of_clients,
    update,
)
from small import assert_close, refused

import fedpriv as fp
from fedpriv.core.trees import flatten
from fedpriv.proof.stream import public_key, root_of
from fedpriv.rounds.cohort import Cohort

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NONE_LOST = fp.models.Score(lambda params, example: {"loss": jnp.zeros(())})
TEST = jax.tree.map(lambda leaf: leaf[:1], FEDERATION.examples)
EVERYONE = fp.everyone(CLIENTS)


def trained(algorithm, rounds=2, **options):
    given = algorithm, PARAMS, FEDERATION, TEST
    return fp.simulate(*given, score=NONE_LOST, rounds=rounds, **options)


class Watching:
    """A round that notes at each of its traces what it finds, and from the third on shows the sum before the noise."""

    def __init__(self):
        self.cohorts, self.leaves = [], []

    def __call__(self, key, state, cohort, summed, metrics):
        self.cohorts.append(cohort)
        self.leaves.append(jax.tree.leaves(state))
        shown = raw(summed) if len(self.cohorts) > 2 else jnp.zeros(D)
        return moved(state, shown), metrics


def test_a_round_that_asks_what_it_is_given_is_never_asked_again():
    watching, quiet = Watching(), after_sum(lambda k, s, c, summed, m: (moved(s, jnp.zeros(D)), m))
    history = trained(after_sum(watching), every=1)
    assert (
        len(watching.cohorts) == 2
    )  # traced, and traced again; nothing of it is called where it runs
    assert {type(cohort) for cohort in watching.cohorts} == {Cohort}
    assert all(isinstance(leaf, jax.core.Tracer) for each in watching.leaves for leaf in each)
    assert_close(history.params(), trained(quiet).params(), rtol=0)


def test_the_cohort_knows_nobody():
    """All that it holds is what the engine gives, in shapes, and whose numbers it may not tell."""
    found = []

    def look(key, state, cohort, summed, metrics):
        found.append({f.name: getattr(cohort, f.name) for f in dataclasses.fields(cohort)})
        return state, metrics

    fp.trace_round(after_sum(look), PARAMS, FEDERATION)
    leaves = jax.tree.leaves([found[0]["_calls"].given, found[0]["_calls"].shape])
    assert not any(
        isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) for leaf in leaves
    )


def test_a_certificate_and_a_run_name_the_same_program():
    algorithm, louder = fed_avg(), fed_avg(fp.gaussian(0.5, 1.5))
    certificate = fp.certify(algorithm, PARAMS, FEDERATION, 2, 1e-3)
    assert trained(algorithm).programs == certificate.programs != ()
    assert fp.Certificate.from_json(certificate.to_json()).programs == certificate.programs
    with refused("programs: "):
        trained(louder, 1, programs=certificate.programs)
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), FEDERATION.examples)
    like = fp.Federation.blank(blank, clients=CLIENTS, per_client=3, public=4)
    assert fp.certify(algorithm, PARAMS, like, 2, 1e-3).programs == certificate.programs


def test_a_run_goes_on_with_its_own_program_alone(tmp_path):
    """Another learning rate has the same pairs, and was not noticed by them."""
    checkpoints = fp.Checkpoints(tmp_path / "run", rounds=1)
    faster = after_sum(lambda k, s, c, summed, m: (moved(s, flatten(summed.total)), m))
    slower = after_sum(lambda k, s, c, summed, m: (moved(s, 0.5 * flatten(summed.total)), m))
    trained(faster, 1, checkpoints=checkpoints)
    with refused(r"is of another run: program\.digests \w+ there, \w+ here"):
        trained(slower, 2, checkpoints=checkpoints)
    assert trained(faster, 2, checkpoints=checkpoints).rounds.tolist() == [1, 2]


def test_between_versions_of_jax_calls_are_compared(tmp_path, monkeypatch):
    checkpoints = fp.Checkpoints(tmp_path / "run", rounds=1)

    def with_sums(number):
        def more(key, state, cohort, summed, metrics):
            for _ in range(number):
                cohort.sum(lambda k, shard: jnp.zeros(()), key, mechanism=fp.unprotected("a test"))
            return state, metrics

        return after_sum(more)

    trained(with_sums(1), 1, checkpoints=checkpoints)
    monkeypatch.setattr(jax, "__version__", "0.0.1")
    assert len(trained(with_sums(1), 2, checkpoints=checkpoints).evaluations) == 2
    with refused(r"program\.calls"):
        trained(with_sums(2), 2, checkpoints=checkpoints)


def test_what_a_client_closes_over_is_given_to_it():
    """Numbers that the round computes: of the state, of its key, of an earlier sum; and arrays of NumPy."""
    table = np.arange(3.0, dtype=np.float32)

    def round(key, state, cohort):
        first = cohort.sum(lambda k, shard: jnp.ones(3), key, mechanism=fp.unprotected("a test"))
        drawn = jax.random.uniform(key, (3,))

        def client(k, shard):
            return {"a": state.extra * first.total + drawn, "b": table * shard.size}

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.unprotected("a test"))
        return State(state.params, state.round + 1, total["a"]), metrics | {
            "diagnostics": {"b": total["b"].sum()}
        }

    algorithm = fp.Algorithm(lambda p, f: None, round, EVERYONE)
    state = State(PARAMS, jnp.int32(0), jnp.array([1.0, 2.0, 3.0]))
    root = jax.random.key(3)
    after, metrics = jax.jit(fp.one_round(algorithm))(root, state, FEDERATION)
    drawn = np.asarray(jax.random.uniform(public_key(root_of(root), 1), (3,)))
    assert_close(after.extra, CLIENTS * (CLIENTS * np.array([1.0, 2.0, 3.0]) + drawn))
    assert_close(metrics["diagnostics"]["b"], CLIENTS * 3 * table.sum())


def test_a_value_that_a_client_leaves_outside_does_not_get_out():
    def round(key, state, cohort):
        kept = []

        def client(k, shard):
            kept.append(shard.examples["y"].sum())
            return update(state, k, shard)

        _, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        return moved(state._replace(round=state.round + 1), kept[0] * jnp.ones(D)), metrics

    with pytest.raises(Exception, match="value of an earlier trace"):
        fp.certify(of_clients(round), PARAMS, FEDERATION, 1, 1e-3)


@jax.custom_jvp
def lying(x):
    """Itself; differentiated, it says that it was 0."""
    return x


@lying.defjvp
def _(primals, tangents):
    return 0 * primals[0], 0 * tangents[0]


def test_a_rule_that_lies_hides_nothing():
    with refused("depends on a client's data"):
        leaking = after_sum(lambda k, s, c, summed, m: (moved(s, lying(raw(summed))), m))
        fp.certify(leaking, PARAMS, FEDERATION, 1, 1e-3)
    sent = of_clients(
        lambda key, state, cohort: _summed(state, key, cohort, lambda shard: lying(shard.size))
    )
    (after, _) = fp.one_round(sent)(jax.random.key(0), State(PARAMS, jnp.int32(0)), FEDERATION)
    assert np.isfinite(flatten(after.params)).all()


def _summed(state, key, cohort, of):
    client = lambda k, shard: of(shard) * jnp.ones(D)  # noqa: E731
    total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
    return moved(state._replace(round=state.round + 1), total), metrics


def test_a_helper_under_jit_that_calls_the_cohort_is_refused():
    @jax.jit
    def helper(cohort_free, key):
        return _HELD[0].sum(lambda k, s: jnp.ones(D), key, mechanism=GAUSSIAN).total + cohort_free

    def round(key, state, cohort):
        _HELD[:] = [cohort]
        return moved(state._replace(round=state.round + 1), helper(jnp.zeros(D), key)), {}

    with refused(r"cohort\.sum is called in a loop, a branch or a transformed function"):
        fp.certify(of_clients(round), PARAMS, FEDERATION, 1, 1e-3)


_HELD: list = []


def test_what_a_client_prints_is_printed_by_each_who_is_drawn(capfd):
    """The effect of the client's program is one of the round's."""

    def round(key, state, cohort):
        def client(k, shard):
            jax.debug.print("client {}", shard.client_id)
            return jnp.zeros(D)

        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        return moved(state._replace(round=state.round + 1), total), metrics

    run = jax.jit(fp.one_round(of_clients(round, sampler=EVERYONE)))
    jax.block_until_ready(run(jax.random.key(0), State(PARAMS, jnp.int32(0)), FEDERATION))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n"))[1:] == [f"client {i}" for i in range(CLIENTS)]


@pytest.mark.parametrize("kind", [jnp.float32, np.float32, lambda x: jnp.full(3, x), float])
def test_programs_that_differ_in_a_number_alone_have_other_digests(kind):
    def of(factor):
        held = kind(factor)
        step = after_sum(lambda k, s, c, summed, m: (moved(s, jnp.sum(held) * jnp.ones(D)), m))
        return fp.trace_round(step, PARAMS, FEDERATION).digests

    assert of(0.5) == of(0.5) != of(0.25)


HASHED = """
import sys; sys.path[:0] = {path!r}
import jax
from own_algorithms import FEDERATION, PARAMS, D, after_sum, moved
import fedpriv as fp
keep = jax.checkpoint_policies.save_only_these_names("hidden", "logits", "attention")
step = lambda k, s, c, summed, m: (moved(s, jax.checkpoint(lambda: jax.numpy.ones(D), policy=keep)()), m)
print(fp.trace_round(after_sum(step), PARAMS, FEDERATION).digests)
"""


@pytest.mark.slow
def test_a_digest_is_the_same_in_every_process():
    """Whatever order Python has for sets."""
    script = HASHED.format(path=sys.path)
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


def test_what_goes_into_a_program_is_in_its_digest():
    """Types of records that the round casts at once; a generator of other random numbers."""

    def of(dtype):
        def round(key, state, cohort):
            client = lambda k, shard: shard.examples["x"].astype(jnp.float32).sum()  # noqa: E731
            total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
            return state._replace(round=state.round + 1, extra=total), metrics

        records = {"x": np.zeros((CLIENTS, 1), dtype)}
        one = fp.Federation.from_arrays(records, [[i] for i in range(CLIENTS)])
        algorithm = fp.Algorithm(
            lambda p, f: State(p, jnp.int32(0), jnp.float32(0)), round, EVERYONE
        )
        return fp.trace_round(algorithm, PARAMS, one).digests

    assert of(np.float16) != of(np.int8)
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        other = of(np.int8)
    assert other != of(np.int8)


def test_a_row_comes_back_in_the_type_in_which_it_is_kept():
    def round(key, state, cohort):
        client = lambda k, shard, row: fp.Sent(jnp.zeros(D), own=row + 0.5)  # noqa: E731
        _, metrics, own = cohort.sum(client, key, mechanism=GAUSSIAN, own=state.extra)
        return State(state.params, state.round + 1, own), metrics

    algorithm = of_clients(round, jnp.zeros(CLIENTS, jnp.int32))
    with refused(r"own: row: .*return it as int32"):
        fp.trace_round(algorithm, PARAMS, FEDERATION)


def test_one_round_takes_numbers_of_python_and_checks_its_round():
    run = fp.one_round(after_sum(lambda k, s, c, summed, m: (s, m)))
    after, _ = run(jax.random.key(0), State(PARAMS, 0), FEDERATION)
    assert int(after.round) == 1
    with refused(r"t: 2\.7"):
        run(jax.random.key(0), State(PARAMS, jnp.int32(0)), FEDERATION, 2.7)


def test_what_was_trained_on_several_devices_is_on_one():
    """A round that closes over it would be traced for these devices, and could not run on others."""
    history = trained(fed_avg(), 1, strategy=fp.Strategy("map", 2))
    assert {len(leaf.devices()) for leaf in jax.tree.leaves(history.state)} == {1}
