"""A warning of released numbers that noise hides, and what is said of units."""

import warnings

import jax
import numpy as np
import pytest

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

S = fp.statistics
RNG = np.random.default_rng(0)
CLIENTS, EACH = 8, 5
EXAMPLES = {
    "age": RNG.uniform(20, 90, CLIENTS * EACH).astype(np.float32),
    "x": RNG.normal(size=(CLIENTS * EACH, 2)).astype(np.float32),
    "word": RNG.integers(0, 6, CLIENTS * EACH),
}
FEDERATION = fp.Federation.from_arrays(EXAMPLES, np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))
UNITS = {"client": CLIENTS, "record": CLIENTS * EACH}
WIDE = np.array([[-3.0, -40.0], [3.0, 40.0]])

# The statistic, and n units -> how far the least and the largest number lie apart.
ASKED = {
    "mean": (S.mean("age", bounds=(0, 100)), lambda n: 100),
    "a mean of two": (S.mean("x", bounds=tuple(WIDE)), lambda n: WIDE[1] - WIDE[0]),
    "moments": (
        S.mean_and_variance("age", bounds=(0, 100)),
        lambda n: S.Moments(100, 50**2),  # half of all at each end
    ),
    "observed": (S.observed_mean("age", bounds=(0, 100)), lambda n: S.Observed(100, 1)),
    "sum": (S.sum("age", bounds=(0, 100)), lambda n: 100 * n),
    "count": (S.count(lambda x: x["age"] > 40), lambda n: n),
    "histogram": (S.histogram("age", bins=[0, 50, 100]), lambda n: n),
    "quantile": (S.quantile("age", 0.5, bins=[0, 50, 100]), lambda n: 100),
}


def released(statistic, **given):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = statistic.release(FEDERATION, delta=1e-4, seed=0, **given)
    return found, [str(each.message) for each in caught]


@pytest.mark.parametrize("noise", [0.01, 0.7, 30.0])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ASKED)
def test_it_warns_just_where_the_interval_reaches_half_of_the_range(name, unit, noise):
    statistic, ranges = ASKED[name]
    found, said = released(statistic, noise_multiplier=noise, unit=unit)
    reached = jax.tree.map(
        lambda error, width: np.any(1.96 * error >= width / 2 * (1 - 1e-9)),
        found.standard_error,
        ranges(UNITS[unit]),
    )
    assert len(said) == any(jax.tree.leaves(reached))
    for line in said:
        assert statistic.name in line
        assert ("unit='record'" in line) == (unit == "client")
        assert "\n" not in line


def test_items_are_no_numbers_with_an_error():
    hitters = S.heavy_hitters("word", candidates=range(6), most=2)
    assert released(hitters, noise_multiplier=0.1)[1] == []
    ((line,),) = released(hitters, noise_multiplier=50.0)[1:]
    assert "counts" in line


def test_a_person_is_said_by_the_federation():
    mean = S.mean("age", bounds=(0, 100))
    with pytest.raises(ValueError, match="unit: 'person'") as error:
        released(mean, noise_multiplier=1.0, unit="person")
    assert "'record'" in str(error.value)
    whose = np.arange(CLIENTS * EACH) // 2
    clients = np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH)
    persons = fp.Federation.from_arrays(EXAMPLES, clients, person=whose, per_person=2)
    made = mean.algorithm(persons, noise_multiplier=4.0, unit="record")
    certificate = fp.certify(made, np.zeros(1), persons, rounds=1, delta=1e-4)
    assert certificate.unit == "person"
