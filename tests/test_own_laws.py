"""Parts of somebody's own that say too little, or what cannot be, do not get a smaller epsilon for it."""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import pytest
from rows_seen import rows
from small import refused, regression, released, squared, start

import fedpriv as fp
from fedpriv.mechanisms.correlated import Correlation, adder_of
from fedpriv.mechanisms.mechanisms import joint
from fedpriv.privacy import (
    Allocation,
    Case,
    CyclicPoisson,
    FixedSize,
    Poisson,
    Sampling,
    Why,
    certify_seen,
    declared,
)
from fedpriv.testing.measurements import check_sampler, check_schedule

N, SIZE, SIGMA = 6, 3, 2.0


@dataclass(frozen=True)
class Own(Sampling):
    """As `FixedSize`, in so many words, or otherwise."""

    population: int = N
    most: int = SIZE
    chances: tuple = (1.0,)
    law: tuple = ((1.0, SIZE / N),)
    hides: str = "replaced"
    is_secret: bool = True
    repeats: int = 1
    uniform: bool = False
    vanish: float = 0.0
    full: bool = False
    block: int | None = None
    together = 1.0

    @property
    def secret(self):
        return self.is_secret

    def cases(self, neighbour, who):
        if neighbour not in (self.hides, "zeroed") or who.units > 1 or who.remembers or who.lost:
            return Why("of this nothing is proved")
        return tuple(Case(chance, self.law) for chance in self.chances)

    def words(self, neighbour):
        return ()


def release(sampling, **more):
    given = {"view": "third_party", "unit": "client", "multiplier": SIGMA, "rounds": 5}
    return declared(sampling=sampling, **(given | more))


WRONG = {
    "chances below 1 together": ({"chances": (0.5,)}, "cases: .*add up to 1"),
    "a chance below 0": ({"chances": (1.5, -0.5)}, "chance: "),
    "counts that fall": ({"law": ((2.0, 0.2), (1.0, 0.2))}, "law: .*rise"),
    "a unit that is drawn no times": ({"law": ((0.0, 0.2),)}, "law: .*above 0"),
    "probabilities above 1 together": ({"law": ((1.0, 0.8), (2.0, 0.8))}, "law: .*of 1 at most"),
    "counts above what a draw can hold": ({"law": ((1.0, 0.1), (2.0, 0.1))}, "repeats: 1; give 2"),
    "a rate above that of a uniform draw": ({"most": 2, "uniform": True}, "cases: 0.5; draws that"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_law_that_cannot_be_is_refused(name):
    fields, message = WRONG[name]
    with refused(message):
        release(Own(**fields))
    with refused(message):
        release(fp.privacy.Everyone(N), participation=Own(**fields))


def test_a_law_that_can_be_costs_what_it_says():
    own, known = (
        certify_seen([release(s)], 1e-4, "third_party") for s in (Own(), FixedSize(N, SIZE))
    )
    assert own.epsilon == pytest.approx(known.epsilon)


def test_a_block_costs_what_one_does():
    """In one round of three for sure, and not in each at a rate."""
    once = Own(hides="removed", law=((1.0, 1.0),), block=3)
    own, known = (certify_seen([release(s)], 1e-4, "third_party") for s in (once, Allocation(N, 3)))
    assert own.epsilon == pytest.approx(known.epsilon)


def summing(sampler, *, keeps=False, **how):
    def round(key, state, cohort):
        own = jnp.zeros((N, 1)) if keeps else ()

        def client(key, shard, *mine):
            return fp.Sent(state.params, own=mine[0]) if keeps else state.params

        given = {"mechanism": fp.gaussian(0.5, SIGMA), "own": own} | how
        _, metrics, _ = cohort.sum(client, key, **given)
        return fp.ModelState(state.params, state.round + 1), metrics

    return fp.Algorithm(lambda params, _: fp.ModelState(start(), jnp.int32(0)), round, sampler)


def drawn_by_hand(accounting):
    return fp.fixed_size(N, SIZE)._replace(accounting=accounting)


@pytest.mark.parametrize("sampling", [Own(), Poisson(N, 0.5, SIZE)])
def test_noise_of_its_own_shows_who_takes_part_where_sizes_vary(sampling):
    """A cohort of nobody is exactly 0: whoever is in one is seen, however seldom that is."""
    seen = rows(summing(drawn_by_hand(sampling), adder="own"), 4)
    assert all(row.repeated.among == sampling for (row,) in seen.values())
    assert all(row.adder == "own" and row.noisy.multiplier == SIGMA for (row,) in seen.values())


def test_noise_that_may_vanish_is_not_counted_as_if_all_stayed():
    """Unless the cases say what is left of it."""
    vanishing = drawn_by_hand(Own(full=True, vanish=0.1))
    seen = released(summing(vanishing, adder="own"), 4)["third_party"]
    with refused("replaced: of this nothing is proved"):
        certify_seen(seen, 1e-4, "third_party")


def test_whoever_is_drawn_twice_and_remembers_does_not_count_once():
    twice = Own(law=((1.0, 0.25), (2.0, 0.25)), repeats=2)
    with refused("may hold a client several times, and it remembers; say by `cases`"):
        rows(summing(drawn_by_hand(twice), keeps=True), 4)
    known = replace(twice, is_secret=False)
    ((one,), *_) = rows(summing(drawn_by_hand(known), keeps=True), 4).values()
    assert one.drawn.by == known


@pytest.mark.parametrize("adder", ["own", "own_summed"])
def test_own_noise_of_a_client_tells_how_many_there_are(adder):
    for drawn in (Poisson(N, 0.5), Own()):
        with refused("sampling: .*noise that clients add themselves tells who takes part"):
            certify_seen([release(drawn, adder=adder)], 1e-4, "third_party")
    of_one_size = certify_seen([release(FixedSize(N, SIZE), adder=adder)], 1e-4, "third_party")
    assert of_one_size.relation == "replace_one"
    of_a_record = release(Poisson(N, 0.5), adder=adder, unit="record")
    assert certify_seen([of_a_record], 1e-4, "third_party").relation == "add_or_remove"


def test_only_who_says_enclave_is_one():
    used = fp.correlated(fp.gaussian(1.0, SIGMA), fp.noise_matrices.tree(rounds=4), adder="enclave")
    for said, adder in (("enclave", "enclave"), (True, "server"), (False, "server")):
        by_hand = used._replace(correlation=Correlation(*used.correlation[:2], said))
        assert adder_of(by_hand) == adder_of(joint(by_hand, by_hand)) == adder


def test_records_are_drawn_by_what_is_looked_at():
    class Otherwise(type(fp.poisson(3, 0.01))):
        __slots__ = ()

        @property
        def places(self):
            return fp.poisson(3, 0.01)

        def draw_among(self, key, size):
            return fp.types.Draw(jnp.arange(3), jnp.ones(3, bool)), 1.0

    records = Otherwise(*fp.poisson(3, 0.01)[:-1])

    def round(key, state, cohort):
        given = {"records": records, "mechanism": fp.gaussian(1.0, SIGMA)}
        params, metrics = cohort.private_mean(fp.per_example(squared), state.params, **given)
        return fp.ModelState(params, state.round + 1), metrics

    algorithm = fp.Algorithm(
        lambda params, _: fp.ModelState(params, jnp.int32(0)),
        round,
        fp.fixed_size(N, SIZE),
        "record",
    )
    with refused("records: "):
        fp.certify(algorithm, start(), regression([3] * N), 4, 1e-4)


def test_a_class_that_draws_otherwise_than_its_draw_is_not_measured_by_it():
    class Otherwise(type(fp.fixed_size(N, SIZE))):
        __slots__ = ()

        def cohort(self, key, schedule, t, memory):
            return fp.types.Draw(jnp.arange(SIZE), jnp.ones(SIZE, bool)), memory

    with refused("Otherwise.cohort draws, and not `draw`"):
        check_sampler(Otherwise(*fp.fixed_size(N, SIZE)[:-1]), 1)


class Lossy(Own):
    lossy = True


@pytest.mark.parametrize("sampling", [Own(block=2), Lossy()])
def test_what_is_not_measured_is_not_taken_at_its_word(sampling):
    with refused("are not measured: use fp.random_allocation or fp.dropping"):
        check_sampler(drawn_by_hand(sampling), 1)


@pytest.mark.slow
def test_how_often_clients_join_in_their_turns_is_measured():
    def draw(key, t, memory):
        ids = jnp.arange(SIZE) * 2 + t % 2
        joins = jax.random.bernoulli(jax.random.fold_in(key, t), 0.9, (SIZE,))
        return fp.types.Draw(jnp.where(joins, ids, N), joins), memory

    def by_hand(rate):
        return fp.types.ScheduledSampler(draw, SIZE, rate * SIZE, CyclicPoisson(N, 2, rate))

    check_schedule(by_hand(0.9), 1)
    with refused("of its .* turns, but the accounting says 0.1"):
        check_schedule(by_hand(0.1), 1)


@pytest.mark.parametrize("adder", ["enclave", "own_summed"])
def test_the_noise_of_a_sum_hides_nothing_from_whoever_sees_every_message(adder):
    bare = release(FixedSize(N, SIZE), view="server", adder=adder, multiplier=0.0)
    assert certify_seen([bare], 1e-4, "server").epsilon == math.inf
