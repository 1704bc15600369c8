"""A round made of `fedpriv.proof` alone, and toys that come in by the doors of its call and its program."""

import every_algorithm
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from small import assert_close, assert_identical, refused

import fedpriv as fp
from fedpriv.core.random_streams import COHORT, NOISE
from fedpriv.proof.call import OfCall
from fedpriv.proof.calls import Calls
from fedpriv.proof.given import Given, OfClient
from fedpriv.proof.labels import NONE, TAKING_PART, Protected
from fedpriv.proof.marks import Sum
from fedpriv.proof.program import Arguments, Results, program_of
from fedpriv.proof.reference import reference_run
from fedpriv.proof.step import Step
from fedpriv.proof.stream import root_of, round_of
from fedpriv.proof.trace import labels_of_results, shown
from fedpriv.rounds.cohort_sums import SumOfCohort, SumOfNoisy
from fedpriv.rounds.private_step import PrivateStep

SLOTS, CLIP, SIGMA = 3, 1.0, 0.5
GAUSSIAN = fp.gaussian(CLIP, SIGMA)
RECORDS = np.array([[[3.0, 4.0]], [[0.3, 0.4]]], np.float32)  # of two clients, one each
CLIENTS = [OfClient(jnp.array(x), jnp.int32(1), jnp.int32(i)) for i, x in enumerate(RECORDS)]
HIDDEN = round_of(root_of(jax.random.key(2)), 0)
GIVEN = Given(HIDDEN, jnp.int32(0), jnp.int32(2), ())
ARGUMENTS = Arguments(GIVEN, jax.random.key(1), jnp.zeros(2))
SHAPES = jax.eval_shape(lambda: (ARGUMENTS, CLIENTS[0]))


class OwnMessages:
    """The sum of a client's records; the norms are heard, and the keys that a client has."""

    def message(self, member):
        self.keys = [jax.random.key_data(key) for key in (member.hidden, member.key)]
        return member.given.records.sum(0)

    def report(self, told):
        return told, self.keys

    def hear(self, reports):
        self.norms, self.keys = reports

    def hear_of_sum(self, like, told):
        self.said = told


def heard(messages):
    return {"norms": messages.norms, "keys": messages.keys, "said": messages.said}


class Halved(PrivateStep):
    """A toy: a message counts half, and of the noise something is said."""

    def contribution(self, of, member, message):
        bounded, norm = super().contribution(of, member, message)
        return bounded / 2, norm

    def noisy(self, of, total):
        noisy, _ = super().noisy(of, total)
        return noisy, jnp.float32(7)


TOY = Primitive("toy")
TOY.def_abstract_eval(lambda x: x)


def traced(kind=PrivateStep, then=lambda x: x):
    """The program of a round that adds up messages by a step of this kind."""

    def make(given, marks):
        return Calls(given, SHAPES[1], SLOTS, marks)

    def round(calls, key, state):
        messages = OwnMessages()
        of = OfCall(calls, calls.begin("a toy", key), messages)
        total = kind(GAUSSIAN, fp.everyone(2), "shares").released(of)
        return Results(state + then(total), heard(messages), (), ())

    return program_of(make, round, SHAPES[0])


def noise():
    key = jax.random.fold_in(jax.random.fold_in(HIDDEN, 0), NOISE)
    return np.asarray(GAUSSIAN.perturb(key, jnp.zeros(2)))


BOUNDED = np.array([0.9, 1.2])  # (0.6, 0.8), which was longer, and (0.3, 0.4)


def test_a_plain_round_is_clipped_and_perturbed():
    found = reference_run(traced(), ARGUMENTS, [CLIENTS[0], None, CLIENTS[1]])
    assert_close(found.state, BOUNDED + noise())
    assert_close(found.metrics["norms"], np.array([5.0, 0.0, 0.5]))


def test_a_client_has_a_hidden_key_and_a_public_one_by_its_number():
    fold = jax.random.fold_in
    public = jax.random.split(fold(ARGUMENTS.key, COHORT))[0]
    found = reference_run(traced(), ARGUMENTS, [CLIENTS[1], CLIENTS[0]]).metrics["keys"]
    for keys, of_call in zip(found, (fold(HIDDEN, 0), public), strict=True):
        own = [jax.random.key_data(fold(of_call, i)) for i in (1, 0)]
        assert_identical(keys[:2], jnp.stack(own))


def test_a_step_from_outside_says_what_a_client_adds_and_what_the_noise_is():
    """And the mark of the release holds it, so that a certificate can name it."""
    program = traced(Halved)
    found = reference_run(program, ARGUMENTS, CLIENTS)
    assert_close(found.state, BOUNDED / 2 + noise())
    assert float(found.metrics["said"]) == 7
    (mark,) = (mark for mark in program.marks if isinstance(mark, Sum))
    assert type(mark.step) is Halved
    assert type(mark.step).__module__ == __name__


STEPS = {
    "dp_fed_avg": Step,
    "fed_per": Step,  # what clients keep is no matter of the sum
    "dp_fed_avg, fed_adam, weighted": SumOfCohort,
    "fed_avg changing": SumOfCohort,
    "fed_avg integers": SumOfCohort,
    "buffered_fed_avg": SumOfCohort,
    "ldp_fed_avg": SumOfNoisy,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_mark_tells_a_plain_sum_from_others(name):
    marks = every_algorithm.traced(name).programs[0].marks
    assert [type(mark.step) for mark in marks if isinstance(mark, Sum)] == [STEPS[name]]


def test_keys_of_a_call_serve_once():
    def twice(calls, key, state):
        of = OfCall(calls, calls.begin("a toy", key), OwnMessages())
        step = Step(GAUSSIAN, fp.everyone(2), "shares")
        return Results(state + step.released(of) - step.released(of), {}, (), ())

    with refused("keys: .*give those of a call that just begins"):
        program_of(lambda given, marks: Calls(given, SHAPES[1], SLOTS, marks), twice, SHAPES[0])


def test_an_operation_from_outside_runs_by_its_own_rule():
    program = traced(then=lambda x: TOY.bind(x))
    doubled = {TOY: lambda eqn, values: [2 * values[0]]}
    found = reference_run(program, ARGUMENTS, CLIENTS, doubled)
    assert_close(found.state, 2 * (BOUNDED + noise()))
    with pytest.raises(NotImplementedError, match="toy"):
        reference_run(program, ARGUMENTS, CLIENTS)


def test_what_is_told_of_clients_tells_who_takes_part():
    """Of a constant there are as many as clients; and a client's key is made of its number, as everybody knows."""

    class Constants(OwnMessages):
        def report(self, told):
            return jnp.ones(()), jax.random.uniform(self.key)

        def message(self, member):
            self.key = member.key
            return jnp.zeros(2)

        def hear(self, reports):
            self.norms, self.keys = reports

    def round(calls, key, state):
        messages = Constants()
        of = OfCall(calls, calls.begin("a toy", key), messages)
        total = Step(GAUSSIAN, fp.poisson(2, 0.5), "shares").released(of)
        return Results(state + total, {"told": (messages.norms, messages.keys)}, (), ())

    program = program_of(
        lambda given, marks: Calls(given, SHAPES[1], SLOTS, marks), round, SHAPES[0]
    )
    for draws in (fp.poisson(2, 0.5), fp.fixed_size(2, 1)):
        protected = Protected(draws.accounting)
        state, *told = labels_of_results(program, protected, [NONE])
        assert not state
        assert [{x.what for x in protected.private(each)} for each in told] == [{TAKING_PART}] * 2
        with refused("depends on who takes part", fp.LeakError):
            shown([(program, protected)])
    assert shown([(program, Protected(fp.everyone(2).accounting))])
