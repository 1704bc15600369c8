"""Less noise, more rounds, more sampling, a smaller delta: never a smaller epsilon."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy import FixedSize, Poisson, Release, certify_releases

views = st.sampled_from(["third_party", "server_secagg"])
kinds = st.sampled_from(["poisson", "cut", "fixed", "laplace", "fixed laplace"])
multipliers = st.floats(0.5, 20)
few = settings(max_examples=12, deadline=None, derandomize=True)


def epsilon_of(view, kind, size, multiplier, steps, delta=1e-5, honest=1.0):
    sampling = {
        "poisson": Poisson(200, size / 200, None),
        "cut": Poisson(200, size / 200, 2 * size),
        "fixed": FixedSize(200, size),
    }[{"laplace": "poisson", "fixed laplace": "fixed"}.get(kind, kind)]
    return certify_releases(
        [
            Release(
                view,
                "client",
                multiplier,
                sampling,
                steps,
                noise="laplace" if "laplace" in kind else "gaussian",
            )
        ],
        delta,
        view,
        honest=honest,
    ).epsilon


def assert_ordered(less, more):
    assert less <= more * (1 + 1e-3) + 1e-3  # cells differ in width


@few
@given(views, kinds, multipliers, st.floats(1.05, 3))
def test_multiplier(view, kind, multiplier, factor):
    arguments = (view, kind, 10)
    assert_ordered(
        epsilon_of(*arguments, multiplier * factor, 8), epsilon_of(*arguments, multiplier, 8)
    )


@few
@given(views, kinds, multipliers, st.integers(0, 40), st.integers(1, 40))
def test_steps(view, kind, multiplier, steps, further):
    arguments = (view, kind, 10, multiplier)
    assert_ordered(epsilon_of(*arguments, steps), epsilon_of(*arguments, steps + further))


@few
@given(views, kinds, multipliers, st.integers(1, 40), st.integers(1, 60))
def test_rate(view, kind, multiplier, size, further):
    low = epsilon_of(view, kind, size, multiplier, 8)
    assert_ordered(low, epsilon_of(view, kind, size + further, multiplier, 8))


@few
@given(views, kinds, multipliers, st.floats(1e-9, 1e-2), st.floats(1.1, 50))
def test_delta(view, kind, multiplier, delta, factor):
    arguments = (view, kind, 10, multiplier, 8)
    assert_ordered(epsilon_of(*arguments, delta * factor), epsilon_of(*arguments, delta))


@few
@given(views, st.sampled_from(["poisson", "cut", "fixed"]), multipliers, st.floats(0.1, 1))
def test_honest(view, kind, multiplier, honest):
    arguments = (view, kind, 10, multiplier, 8)
    assert_ordered(epsilon_of(*arguments), epsilon_of(*arguments, honest=honest))
