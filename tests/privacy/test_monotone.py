"""Less noise, more rounds, more sampling, fewer shares of the noise, a smaller delta: never a smaller epsilon."""

import pytest
import tiers
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy import VIEWS, Everyone, FixedSize, Poisson, certify_seen, declared


def epsilon_of(view, kind, size, multiplier, steps, delta, honest):
    sampling = {
        "poisson": Poisson(200, size / 200),
        "cut": Poisson(200, size / 200, 2 * size),
        "fixed": FixedSize(200, size),
    }[{"laplace": "poisson", "fixed laplace": "fixed"}.get(kind, kind)]
    noise = "laplace" if "laplace" in kind else "gaussian"
    made = declared(view, "client", multiplier, sampling, steps, noise=noise, honest=honest)
    return certify_seen([made], delta, view).epsilon


DRAWN = {
    "view": st.sampled_from(["third_party", "server_secagg"]),
    "kind": st.sampled_from(["poisson", "cut", "fixed", "laplace", "fixed laplace"]),
    "multiplier": st.floats(0.5, 20),
    "louder": st.floats(1.05, 3),
    "steps": st.integers(0, 40),
    "further": st.integers(1, 40),
    "size": st.integers(1, 40),
    "larger": st.integers(1, 60),
    "delta": st.floats(1e-9, 1e-2),
    "factor": st.floats(1.1, 50),
    "honest": st.floats(0.1, 1),
}


def is_monotone(
    view, kind, multiplier, louder, steps, further, size, larger, delta, factor, honest
):
    def epsilon(size=size, multiplier=multiplier, steps=steps, delta=delta, honest=1.0):
        return epsilon_of(view, kind, size, multiplier, steps, delta, honest)

    here = epsilon()
    more = [epsilon(steps=steps + further), epsilon(size + larger)]
    if "laplace" not in kind:
        more.append(epsilon(honest=honest))
    less = [epsilon(multiplier=multiplier * louder), epsilon(delta=delta * factor)]
    for a, b in [(here, m) for m in more] + [(x, here) for x in less]:
        assert a <= b * (1 + 1e-3) + 1e-3  # cells differ in width


@tiers.every("examples", [3, 8])
def test_monotone(examples):
    drawn = settings(max_examples=examples, deadline=None, derandomize=True)
    drawn(given(**DRAWN)(is_monotone))()


# Those who drop out or collude take their share of the noise away

DELTA = 6000**-1.1


def release(view="third_party", multiplier=1.4, sampling=None, **more):
    return declared(view, "client", multiplier, sampling or Poisson(6000, 1 / 60), 180, **more)


def test_ten_of_a_hundred():
    """The anchor: sigma_eff = 1.4 sqrt(0.9)."""
    certificate = certify_seen([release(honest=0.9)], DELTA, "third_party")
    assert certificate.epsilon == pytest.approx(0.6884, rel=1e-3)
    assert any("0.9 of the noise's variance is added" in text for text in certificate.assumptions)


@tiers.every(
    "told",
    [
        *((view, Poisson(6000, 1 / 60)) for view in VIEWS),
        ("third_party", FixedSize(6000, 100)),
        ("third_party", Everyone(6000)),
    ],
    kind=lambda told: told[0],
)
def test_fewer_shares_cost_more(told):
    view, sampling = told
    found = [
        certify_seen([release(view, 5.0, sampling, honest=h)], DELTA, view).epsilon
        for h in (1.0, 0.3)
    ]
    assert found[0] < found[1]


def test_noise_of_one_s_own_does_not_depend_on_others():
    own = [release("server", adder="own", honest=h) for h in (1.0, 0.5)]
    whole, half = (certify_seen([each], DELTA, "server") for each in own)
    assert whole == half


@pytest.mark.slow
def test_fixed_cohorts_may_not_be_told_of():
    fixed = release(sampling=FixedSize(6000, 100), honest=0.9)
    certificate = certify_seen([fixed], DELTA, "third_party")
    assert any("do not reveal whether they took part" in text for text in certificate.assumptions)
