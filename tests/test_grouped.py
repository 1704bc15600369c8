"""Groups of clients with budgets of their own: who is drawn, how much each counts, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_uniform,
    gradient,
    one_round,
    records,
    refused,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.privacy.sampling import Poisson
from fedpriv.privacy.sampling.grouped import Grouped

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LABELS = ["b", "a", "b", "b", "a", "b"]
A, B = [1, 4], [0, 2, 3, 5]
FEDERATION = regression([3, 1, 2, 3, 2, 1])
WEIGHTS, SCALES = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.25}
BY_RATE = {"a": fp.poisson(2, 0.75), "b": fp.poisson(4, 0.25)}
RATE = 0.1


def averaging(sampler, noise=0.0, clip=0.08, **how):
    """One full step of each client."""
    steps = {"optimizer": lambda t: optax.sgd(RATE), "batches": fp.full_batch()}
    mechanism = fp.gaussian(clip, noise)
    return fp.fed_avg(squared, sampler=sampler, **steps, mechanism=mechanism, **how)


@tiers.every("kind", ["strata", "everyone", "in turn"])
def test_weights_and_clip_scales_are_numpys(kind):
    """Clipped to the group's own norm, then weighted; the mean divides by the expected sum of the weights."""
    sampler = {
        "everyone": fp.everyone(6),
        "strata": {"a": fp.everyone(2), "b": fp.everyone(4)},
        "in turn": {"a": fp.fixed_order(2, 2), "b": fp.fixed_order(4, 4)},
    }[kind]
    algorithm = averaging(fp.grouped(LABELS, sampler, weights=WEIGHTS, clip_scales=SCALES))
    theta, moved, clipped = vector(start()), 0.0, 0
    for i, name in enumerate(LABELS):
        step, most = -RATE * gradient(theta, *records(FEDERATION, i)), 0.08 * SCALES[name]
        clipped += np.linalg.norm(step) > most
        moved = moved + WEIGHTS[name] * step * min(1, most / np.linalg.norm(step))
    assert 2 < clipped < 6
    state, _ = one_round(algorithm)(
        jax.random.key(0), algorithm.init(start(), FEDERATION), FEDERATION
    )
    assert_close(vector(state.params), theta + moved / (4 + 2 * 0.5), 1e-6)


def test_each_group_is_drawn_at_its_own_rate_and_by_itself():
    """Every client, and every pair within and between groups, by binomial bounds of 1e-6 for all of them."""
    draws = 5_000
    sampler = fp.grouped(LABELS, BY_RATE, weights=WEIGHTS)
    drawn = jax.jit(jax.vmap(sampler.draw))(jax.random.split(jax.random.key(3), draws))
    there = np.zeros((draws, 7), int)
    np.add.at(there, (np.arange(draws)[:, None], np.asarray(drawn.ids)), np.asarray(drawn.mask))
    assert there.max() == 1
    assert np.all(np.asarray(drawn.ids)[~np.asarray(drawn.mask)] == 6)
    together = there[:, :6].T @ there[:, :6]
    for own, other, rate in ((A, B, 0.75), (B, A, 0.25)):
        inside = [together[i, j] for i in own for j in own if i < j]
        between = [together[i, j] for i in own for j in other]
        assert_uniform(np.diag(together)[own], draws, rate)
        assert_uniform(np.array(inside), draws, rate**2)
        assert_uniform(np.array(between), draws, 0.75 * 0.25)
    weights = np.array([WEIGHTS[name] for name in LABELS] + [1.0])
    assert np.array_equal(drawn.answer.weight, weights[np.asarray(drawn.ids)])
    assert sampler.expected_size == 2 * 0.75 * 0.5 + 4 * 0.25


TRAINED = {
    "rates": fp.grouped(LABELS, BY_RATE),
    "weights": fp.grouped(LABELS, BY_RATE, weights=WEIGHTS, clip_scales=SCALES),
}


@pytest.mark.slow
def test_an_opening_and_groups_go_together():
    """Everyone first, then each group at its own rate: each group's certificate counts both."""
    sampler = fp.Opening(fp.poisson(6, 1.0, 6), 2, fp.grouped(LABELS, BY_RATE))
    found = fp.certify(averaging(sampler, 3.0), start(), FEDERATION, 6, 1e-3).of_groups
    for name, drawn in BY_RATE.items():
        alone = fp.Opening(fp.poisson(6, 1.0, 6), 2, fp.poisson(6, drawn.accounting.rate, 6))
        expected = fp.certify(averaging(alone, 3.0), start(), FEDERATION, 6, 1e-3)
        assert found[name].epsilon == pytest.approx(expected.epsilon, rel=1e-9)


@pytest.mark.slow
def test_what_is_assumed_of_groups():
    certificate = fp.certify(averaging(TRAINED["rates"], 1.0), start(), FEDERATION, 3, 1e-3)
    each = (f"{name} {own.epsilon:.4g}" for name, own in certificate.of_groups.items())
    assert f"epsilon by group: {', '.join(each)}" in str(certificate)
    for name, own in certificate.of_groups.items():
        said = [text for text in own.assumptions if f"public group {name!r}" in text]
        assert len(said) == 1
        assert any("asked for more privacy" in text for text in own.assumptions)
    each = fp.certify(
        averaging(TRAINED["rates"], 1.0), start(), FEDERATION, 3, 1e-3, each_client=True
    )
    assert [own.epsilon for own in each.of_clients] == [
        certificate.of_groups[name].epsilon for name in LABELS
    ]


def weighted_by(answer):
    """A sampler by hand whose members count by what they hold."""
    plain = fp.poisson(6, 0.5)

    def draw(key):
        drawn = plain.draw(key)
        held = FEDERATION.examples["y"][FEDERATION.rows[jnp.clip(drawn.ids, 0, 5), 0]]
        return drawn._replace(answer=answer(jnp.clip(jnp.abs(held), 0.1, 1.0)))

    return plain._replace(draw=draw, seal=())


def following(labels=LABELS):
    """Groups of the library, of which a rate follows the data."""
    grouped = fp.grouped(labels, BY_RATE)

    def draw(key):
        drawn = grouped.draw(key)
        return drawn._replace(mask=drawn.mask & (FEDERATION.examples["y"][drawn.ids] > 0))

    return grouped._replace(draw=draw)


PLANTED = {
    "weight": lambda: weighted_by(lambda held: fp.types.Answer(weight=held)),
    "clip scale": lambda: weighted_by(lambda held: fp.types.Answer(clip_scale=held)),
    "rate": following,
    "declared groups": lambda: fp.poisson(6, 0.5)._replace(
        accounting=fp.grouped(LABELS, BY_RATE).accounting, seal=()
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_budget_that_follows_the_data_is_refused(name):
    with refused("made by hand"):
        fp.certify(averaging(PLANTED[name](), 1.0), start(), FEDERATION, 3, 1e-3)


def test_groups_that_count_alike_go_with_a_mean_over_weights():
    clipped = fp.ByExamples(cap=4, estimator="clipped")
    rates = averaging(TRAINED["rates"], 1.0, weighting=clipped)
    assert fp.certify(rates, start(), FEDERATION, 3, 1e-3).of_groups


def test_names_do_not_run_into_one_another():
    """One assignment is told from another, whatever the names are."""
    names = ["a", "a\0a", "a\na", 'a", "a']
    found = {
        fp.grouped([one, other], dict.fromkeys({one, other}, fp.everyone(1))).accounting.members
        for one in names
        for other in names
        if one != other
    }
    assert len(found) == len(names) * (len(names) - 1)


def test_a_grouped_draw_has_no_law_of_its_own():
    drawn = fp.grouped(LABELS, BY_RATE).accounting
    assert isinstance(drawn, Grouped)
    assert isinstance(drawn.of_group("a")[0], Poisson)
    assert drawn.inclusion == 0.75
