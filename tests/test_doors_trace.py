"""The doors of the trace, each used from outside: an operation, a mark, a kind of label, a step, a kind of unit."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir
from own_algorithms import CLIENTS, FEDERATION, GAUSSIAN, PARAMS, after_sum, scaffold
from small import refused

import fedpriv as fp
from fedpriv.core.identities import Identity
from fedpriv.proof.flow import Operation, of_all_inputs, propagate
from fedpriv.proof.initial_state import check_apart, held_by, program_of_init
from fedpriv.proof.labels import NONE, Hidden, Label, Private, Protected
from fedpriv.proof.marks import (
    Clients,
    Diagnostics,
    Mark,
    Marks,
    Released,
    Rules,
    Source,
    Sum,
    mark_tree,
)
from fedpriv.proof.operations import check_operations
from fedpriv.proof.step import Step
from fedpriv.proof.trace import shown
from fedpriv.rounds.cohort_program import program_of_round
from fedpriv.rounds.round_arguments import shape_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")


class Doubled(Operation):
    def transfer(self, eqn, labels, rules):
        return of_all_inputs(eqn, labels)


DOUBLED = Doubled("doubled")
DOUBLED.def_impl(lambda x: 2 * x)
DOUBLED.def_abstract_eval(lambda x: x)
mlir.register_lowering(DOUBLED, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))


@dataclass(frozen=True)
class Agreed(Mark):
    """All have agreed to show this."""

    def transfer(self, labels, protected):
        return [NONE] * len(labels)


@dataclass(frozen=True)
class Embargoed(Label):
    """A kind of which the proof knows nothing."""


@dataclass(frozen=True)
class Deposited(Label):
    """One that may be in the state, and nowhere else."""

    stays: ClassVar[bool] = True


def extra(change):
    """A DP-FedAvg that keeps in the state what `change(state, cohort)` gives, an i32[]."""

    def round(key, state, cohort, summed, metrics):
        kept, shown = change(state, cohort)
        return state._replace(extra=kept), metrics | {"shown": shown}

    return after_sum(round, jnp.int32(0))


def trace(change):
    return fp.trace_round(extra(change), PARAMS, FEDERATION)


def labelled(label, cohort):
    return mark_tree(cohort._calls.marks, Source(label), jnp.int32(1))


def test_a_plain_round_uses_no_door():
    assert trace(lambda state, cohort: (0, 0)).stages[0].doors == ()


def test_what_a_feature_uses_is_named():
    rounds = "fedpriv.rounds"
    assert set(fp.trace_round(scaffold(), PARAMS, FEDERATION).stages[0].doors) == {
        f"protected: {rounds}.record_marks.ProtectedRecords",
        f"operation: {rounds}.own_state.Store",
        *(f"mark: {rounds}.own_state.{name}" for name in ("OwnRowsAndWeights", "Stored")),
        *(f"mark: {rounds}.record_marks.{name}" for name in ("Batch", "Mean")),
        f"step: {rounds}.private_step.PrivateStep",
        f"step: {rounds}.cohort_sums.SumOfCohort",
    }


def test_an_operation_is_known_and_labels_pass_it():
    traced = trace(lambda state, cohort: (DOUBLED.bind(state.extra), 0))
    assert traced.stages[0].doors == (f"operation: {__name__}.Doubled",)
    assert traced.basis == "declared"
    assert traced.certify(3, 1e-5).doors == traced.stages[0].doors
    with refused("depends on who takes part", fp.LeakError):
        trace(lambda state, cohort: (DOUBLED.bind(cohort.size), 0))


def test_a_mark_lets_pass_what_it_says():
    def agreed(state, cohort):
        return mark_tree(cohort._calls.marks, Agreed(), cohort.size), 0

    traced = trace(agreed)
    assert traced.stages[0].doors == (f"mark: {__name__}.Agreed",)
    assert traced.basis == "declared"


@pytest.mark.parametrize("kind", [Embargoed, Deposited])
def test_a_label_of_a_kind_that_is_not_known_leaves_through_no_metric(kind):
    label = kind("a secret", -1, "here")
    with refused("shown.* depends on a secret", fp.LeakError):
        trace(lambda state, cohort: (0, labelled(label, cohort)))


def test_it_stays_in_the_state_if_it_says_so_and_comes_back():
    def kept(label, shown):
        return trace(lambda state, cohort: (labelled(label, cohort), shown(state)))

    with refused("state.extra .* depends on a secret", fp.LeakError):
        kept(Embargoed("a secret", -1, "here"), lambda state: 0)
    label = Deposited("a secret", -1, "here")
    kept(label, lambda state: 0)
    with refused("shown.* depends on a secret", fp.LeakError):
        kept(label, lambda state: state.extra)


DRAWS = fp.poisson(CLIENTS, 0.5, 4).accounting
DATA, NOISE = Private("a client's data", 0, "here"), Hidden()


def passed_by(step, *labels, protected=None):
    """Of a sum in call 0, given those of what is summed."""
    marks = Marks()
    program = jax.make_jaxpr(lambda x: mark_tree(marks, Sum("here", 0, step, x), x))(1.0)
    rules = Rules(marks, protected or Protected(DRAWS))
    return propagate(program.jaxpr, [frozenset(labels)], rules)[0]


@dataclass(frozen=True)
class Vouched(Step):
    """Somebody's word that messages are private already."""

    passes_on = True


def test_a_step_says_what_its_sum_hides():
    plain = Step(GAUSSIAN, DRAWS, "shares")
    assert passed_by(plain, DATA, NOISE) == NONE
    with refused("does not bound", fp.LeakError):
        passed_by(plain, replace(DATA, group=1))
    vouched = Vouched(GAUSSIAN, DRAWS, "shares")
    assert {label.what for label in passed_by(vouched)} == {"who takes part"}
    for label in (DATA, NOISE):
        with refused("past every release", fp.LeakError):
            passed_by(vouched, label)


def test_of_a_mechanism_that_is_not_known_labels_have_to_be_bounded():
    unknown = Step(object(), DRAWS, "shares")
    assert unknown.is_noisy
    assert not unknown.is_proved
    with refused("does not bound", fp.LeakError):
        passed_by(unknown, replace(DATA, group=1))


def test_diagnostics_are_of_all_calls_and_no_later_sum_bounds_them():
    told = Diagnostics(Private("diagnostics", -1, "there"))
    (found,) = told.transfer([frozenset({DATA})], Protected(DRAWS))
    with refused("depends on a client's data .* that it does not bound", fp.LeakError):
        passed_by(Step(GAUSSIAN, DRAWS, "shares"), *(found - {told.label}))


@dataclass(frozen=True)
class Silos(Protected):
    """Which silo it is may be known, and a call bounds those of the call before, too."""

    def bounded_by_sum(self, call, line):
        return {call, call - 1}

    def of_number(self, own):
        return NONE


def test_a_kind_of_unit_says_what_is_bounded_and_what_may_be_known():
    step, before = Step(GAUSSIAN, DRAWS, "shares"), replace(DATA, group=-1)
    assert passed_by(step, before, protected=Silos(DRAWS)) == NONE
    call = Clients("here", 0)
    assert call.given("number", Silos(DRAWS)) == NONE
    assert call.given("number", Protected(DRAWS)) == frozenset({call.label})


def test_of_a_row_or_a_value_that_is_not_known_everything_is_private():
    call, kept = Clients("here", 0), Embargoed("a secret", -1, "here")
    assert call.given("a new thing", Protected(DRAWS)) == frozenset({call.label})
    (row,) = call.rows([frozenset({kept})], Protected(DRAWS))
    assert row == frozenset({kept, call.label})


@dataclass(frozen=True)
class Raffled(Released):
    """A kind of release that no view counts."""

    def transfer(self, labels, protected):
        return [NONE] * len(labels)


def test_of_a_release_of_a_kind_that_is_not_known_nothing_is_certified():
    def raffled(state, cohort):
        release = Raffled("here", 0, Step(GAUSSIAN, DRAWS, "shares"), cohort.size)
        return mark_tree(cohort._calls.marks, release, cohort.size), 0

    with refused("of its kind of release nothing is certified"):
        trace(raffled)


def program(change):
    algorithm, shape = extra(change), shape_of(FEDERATION)
    state = jax.eval_shape(lambda: algorithm.init(PARAMS, FEDERATION))
    return program_of_round(algorithm, algorithm.sampler, shape, state)


def test_what_one_round_leaves_in_the_state_comes_to_all_others():
    label = Deposited("a secret", -1, "here")
    leaves = program(lambda state, cohort: (labelled(label, cohort), 0))
    shows = program(lambda state, cohort: (0, state.extra))
    for alone in (leaves, shows):
        ((release,), *_) = shown([(alone, Protected(DRAWS))])[0]
        assert isinstance(release, Sum)
    for order in ([leaves, shows], [shows, leaves]):
        with refused("shown.* depends on a secret", fp.LeakError):
            shown([(each, Protected(DRAWS)) for each in order])


def test_the_trace_itself_knows_all_operations_and_the_structure_of_the_state():
    def asked(state, cohort):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.int32), 0), 0

    of = program(lambda state, cohort: (0, 0))
    with refused("calls the host"):
        shown([(program(asked), Protected(DRAWS))])
    other = replace(of, out=of.out._replace(state=of.out.state.params))
    with refused("the state's structure changes"):
        shown([(other, Protected(DRAWS))])


ARRAY = np.arange(5.0, dtype=np.float32)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + ARRAY,
        lambda x: jax.jit(lambda y: y * ARRAY)(x),
        lambda x: jax.lax.cond(x.sum() > 0, lambda: jnp.asarray(ARRAY), lambda: x),
        lambda x: jnp.asarray(ARRAY),
    ],
    ids=["here", "in a call", "in a branch", "given back"],
)
def test_what_a_program_holds_is_found_wherever_it_is(fn):
    held = held_by(jax.make_jaxpr(fn)(jnp.ones(5)))
    with refused("it holds federation.x", fp.LeakError):
        check_apart(held, {".x": ARRAY.copy()}, "it holds {}")
    check_apart(held_by(jax.make_jaxpr(fn)(jnp.ones(5))), {".x": ARRAY + 1}, "it holds {}")
    check_apart([np.float32(1)], {".x": np.float32(1)}, "it holds {}")


def test_of_a_plain_step_the_mechanism_alone_is_somebodys_word():
    by_hand = GAUSSIAN._replace(clip_norm=2.0)
    bare = fp.unprotected("a test")
    proved = [Step(each, DRAWS, "shares").is_proved for each in (GAUSSIAN, by_hand, bare)]
    assert proved == [True, False, True]


class Einsum:
    """Called as an operation of JAX's, which since 0.12 are classes of their own."""


@pytest.mark.parametrize("name", ["mine", "add", "call_hi_primitive"])
def test_an_operation_is_known_by_itself_and_not_by_its_name(name):
    mine = Identity(name)
    of = jax.make_jaxpr(lambda x: mine.bind(x, _prim=Einsum())[0])(1.0)
    with refused(f"round: {name} .* is not among the operations"):
        check_operations(of, "round")


def test_an_initial_state_begins_without_operations_of_ones_own():
    with refused("init: .*begin without operations of your own"):
        program_of_init(lambda params, held: {"w": DOUBLED.bind(held)}, {}, jnp.int32(1))


class Swapped(Identity):
    """It says that it is the identity, and is not."""


SWAPPED = Swapped("swapped")
SWAPPED.def_impl(lambda x, y: [y, x])


def test_what_calls_itself_the_identity_is_not_known():
    of = jax.make_jaxpr(lambda x, y: SWAPPED.bind(x, y))(1.0, 2.0)
    with refused("round: swapped .* is not among the operations"):
        check_operations(of, "round")
    rules = Rules(Marks(), Protected(DRAWS))
    found = propagate(of.jaxpr, [frozenset({DATA}), NONE], rules)
    assert found == [frozenset({DATA})] * 2


@pytest.mark.parametrize("name", ["first", "last"])
def test_nothing_that_clients_hold_reaches_the_initial_state(name):
    held = {"first": jnp.ones(3), "last": jnp.ones(3)}
    model = {"w": jnp.ones(3)}
    _, state = program_of_init(lambda params, _: params, model, held)
    assert state["w"].shape == (3,)
    with refused("init: state.*depends on the clients' records", fp.LeakError):
        program_of_init(lambda params, private: {"w": private[name]}, model, held)
