"""Groups of clients with budgets of their own: who is drawn, how much each counts, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from checkpointed import run as interrupted
from small import (
    assert_close,
    assert_identical,
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
from test_streaming import run, streamed

import fedpriv as fp
from fedpriv.privacy.sampling import Poisson
from fedpriv.privacy.sampling.grouped import Grouped

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LABELS = ["b", "a", "b", "b", "a", "b"]
A, B = [1, 4], [0, 2, 3, 5]
FEDERATION = regression([3, 1, 2, 3, 2, 1])
WEIGHTS, SCALES = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.25}
STRATA = {"a": fp.poisson(2, 0.75), "b": fp.fixed_size(4, 2)}
BY_RATE = {"a": fp.poisson(2, 0.75), "b": fp.poisson(4, 0.25)}
RATE = 0.1
OF_PERSONS = fp.Federation.from_arrays(
    {"x": np.zeros(6)}, fp.partition.natural(np.arange(6)), person=np.arange(6) // 2
)


def averaging(sampler, noise=0.0, clip=0.08, **how):
    """One full step of each client."""
    steps = {"optimizer": lambda t: optax.sgd(RATE), "batches": fp.full_batch()}
    mechanism = fp.gaussian(clip, noise)
    return fp.fed_avg(squared, sampler=sampler, **steps, mechanism=mechanism, **how)


@pytest.mark.parametrize("kind", ["everyone", "strata", "in turn"])
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
    draws = 20_000
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


def test_turns_keep_to_each_groups_own_schedule():
    """A group in a fixed order, one that rests, and one that is drawn in every round, side by side."""
    labels = [*"abc"] * 4
    turns = fp.random_availability(4, 1, 3, 0.9), fp.fixed_order(4, 2), fp.everyone(4)
    sampler = fp.grouped(labels, dict(zip("abc", turns, strict=True)))
    memory, draw, seen = sampler.first_memory(), jax.jit(sampler.draw), []
    for t in range(12):
        drawn, memory = draw(jax.random.key(5), jnp.int32(t), memory)
        seen.append(set(np.asarray(drawn.ids)[np.asarray(drawn.mask)].tolist()))
    for t, now in enumerate(seen):
        assert {i for i in now if i % 3 == 2} == {2, 5, 8, 11}
        assert {i for i in now if i % 3 == 1} == ({1, 4} if t % 2 == 0 else {7, 10})
        resting = {i for before in seen[max(0, t - 2) : t] for i in before if i % 3 == 0}
        assert not resting & now
        assert len(now) <= sampler.most == 1 + 2 + 4


TRAINED = {
    "rates": fp.grouped(LABELS, BY_RATE),
    "weights": fp.grouped(LABELS, BY_RATE, weights=WEIGHTS, clip_scales=SCALES),
    "turns": fp.grouped(
        LABELS, {"a": fp.fixed_order(2, 1), "b": fp.random_availability(4, 2, 2, 0.9)}
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_streamed_records_train_the_same_to_the_bit(name):
    algorithm = averaging(TRAINED[name], 1.0)
    found, expected = (run(algorithm, each) for each in (streamed(FEDERATION), FEDERATION))
    assert_identical(found.state, expected.state)


def test_devices_make_no_difference():
    algorithm = averaging(TRAINED["weights"], 1.0)
    one, two = (run(algorithm, FEDERATION, seeds=(1,), strategy=fp.Strategy(n, 2)) for n in (1, 2))
    assert_close(two.state, one.state, 1e-6)
    assert len(two.state.params["b"].devices()) == 2


@pytest.mark.parametrize("name", ["weights", "turns"])
def test_a_run_that_was_killed_goes_on_to_the_same_end(name, tmp_path):
    """To the bit; not with a client in another group, nor with another weight."""
    algorithm, few = averaging(TRAINED[name], 1.0), {"federation": FEDERATION, "rounds": 4}
    expected, _ = interrupted(algorithm, **few)
    interrupted(algorithm, tmp_path, stop=2, **few)
    if name == "weights":
        for labels, weights in (([*LABELS[1:], "b"], WEIGHTS), (LABELS, {"a": 0.25, "b": 1.0})):
            other = fp.grouped(labels, BY_RATE, weights=weights, clip_scales=SCALES)
            with pytest.raises(ValueError, match="of another run"):
                interrupted(averaging(other, 1.0), tmp_path, **few)
    history, _ = interrupted(algorithm, tmp_path, **few)
    assert_identical(history.state, expected.state)


def test_an_opening_and_groups_go_together():
    """Everyone first, then each group at its own rate: each group's certificate counts both."""
    sampler = fp.Opening(fp.poisson(6, 1.0, 6), 2, fp.grouped(LABELS, BY_RATE))
    found = fp.certify(averaging(sampler, 3.0), start(), FEDERATION, 6, 1e-3).of_groups
    for name, drawn in BY_RATE.items():
        alone = fp.Opening(fp.poisson(6, 1.0, 6), 2, fp.poisson(6, drawn.accounting.rate, 6))
        expected = fp.certify(averaging(alone, 3.0), start(), FEDERATION, 6, 1e-3)
        assert found[name].epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_groups_are_checked_like_other_samplers():
    fp.check_algorithm(averaging(TRAINED["weights"], 1.0), start(), FEDERATION, rounds=3)


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


@pytest.mark.parametrize("name", ["groups", "weights"])
def test_a_budget_that_is_computed_in_a_round_is_refused(name):
    def made(x):
        weights = {"a": x, "b": 1.0} if name == "weights" else None
        return fp.grouped(x if name == "groups" else LABELS, BY_RATE, weights=weights)

    with refused("a traced value"):
        jax.eval_shape(lambda x: made(x).expected_size, jnp.ones(6) if name == "groups" else 0.5)


OWN = fp.poisson(2, 0.75)._replace(seal=())
REFUSED = {
    "no list": (("a", BY_RATE), {}, "groups: 'a'; give the name of the group of each, in a list"),
    "no group": (([*"bab", None, "a", "b"], BY_RATE), {}, r"groups\[3\]: None; each is in a group"),
    "not a name": (
        ([0.5] * 6, BY_RATE),
        {},
        r"groups\[0\]: 0.5; each is in a group; give its name",
    ),
    "group without sampler": (([*"babbac"], BY_RATE), {}, "group 'c' has none; give a sampler"),
    "nobody in a group": (
        (LABELS, BY_RATE | {"c": fp.poisson(2, 0.5)}),
        {},
        "samplers: 'c'; nobody is in this group; there are 'b', 'a'",
    ),
    "another number": (
        (LABELS, BY_RATE | {"a": fp.poisson(3, 0.5)}),
        {},
        r"samplers\['a'\]: Poisson\(.*made for 3 clients, but `groups` has 2; give it one name for each client",
    ),
    "another number of all": (
        (LABELS, fp.everyone(5)),
        {},
        "made for 5 clients, but `groups` has 6",
    ),
    "no sampler": ((LABELS, BY_RATE | {"a": 0.5}), {}, r"samplers\['a'\]: 0.5; give one such as"),
    "by hand": ((LABELS, BY_RATE | {"a": OWN}), {}, r"samplers\['a'\]: .*made by hand"),
    "groups of groups": (
        (LABELS, fp.grouped(LABELS, BY_RATE)),
        {},
        "samplers: .*made by hand, of persons, or grouped itself",
    ),
    "persons": (
        (LABELS, fp.by_person(fp.poisson(3, 0.5), OF_PERSONS)),
        {},
        "samplers: .*made by hand, of persons, or grouped itself",
    ),
    "two adjacencies": ((LABELS, STRATA), {}, "groups need one adjacency; draw all the same way"),
    "everyone beside others": (
        (LABELS, BY_RATE | {"a": fp.everyone(2)}),
        {},
        "groups need one adjacency; draw all the same way",
    ),
    "lost noise": (
        (LABELS, {"a": fp.dropping(fp.fixed_size(2, 1), 0.1, "lost"), "b": fp.fixed_size(4, 2)}),
        {},
        r'takes noise of all groups along; give fp.dropping\(..., noise="whole"\)',
    ),
    "weights of one draw": (
        (LABELS, fp.fixed_size(6, 2)),
        {"weights": WEIGHTS},
        "a client may stand in the place of one that counts otherwise",
    ),
    "weights of a draw that is cut": (
        (LABELS, fp.cyclic_poisson(6, 2, 0.5, 1)),
        {"clip_scales": SCALES},
        "a client may stand in the place of one that counts otherwise",
    ),
    "weight 0": (
        (LABELS, BY_RATE),
        {"weights": {"a": 0, "b": 1}},
        r"weights\['a'\]: 0; give a num",
    ),
    "weight 2": (
        (LABELS, BY_RATE),
        {"weights": {"a": 2, "b": 1}},
        r"weights\['a'\]: 2; give a num",
    ),
    "weight lacking": ((LABELS, BY_RATE), {"weights": {"a": 1}}, "weights: .*group 'b' has none"),
    "clip scale of nobody": (
        (LABELS, BY_RATE),
        {"clip_scales": SCALES | {"x": 1}},
        "clip_scales: 'x'; nobody is in this group",
    ),
    "no mapping": ((LABELS, BY_RATE), {"weights": 0.5}, "weights: 0.5; give name of a group -> a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_groups_are_refused(name):
    given, options, said = REFUSED[name]
    with refused(said):
        fp.grouped(*given, **options)


def test_a_sampler_for_other_clients_is_refused():
    with refused("sampler: made for 6 clients, but the federation has 3"):
        fp.certify(averaging(TRAINED["rates"], 1.0), start(), regression([2] * 3), 3, 1e-3)


def test_weights_of_groups_do_not_go_with_a_mean_over_weights():
    """There one member moves the mean by what it weighs itself, whatever its group's weight."""
    clipped = fp.ByExamples(cap=4, estimator="clipped")
    with refused("weighting: estimator: 'clipped'; it divides by what clients weigh"):
        algorithm = averaging(TRAINED["weights"], 1.0, weighting=clipped)
        fp.certify(algorithm, start(), FEDERATION, 3, 1e-3)
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
    assert isinstance(drawn.of_group("a"), Poisson)
    assert drawn.rate == 0.75
    for ask in (drawn.cases, drawn.times_drawn):
        with refused("units of these groups are drawn differently; take `of_group` of one"):
            ask()
