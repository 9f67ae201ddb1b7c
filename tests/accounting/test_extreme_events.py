"""Events beyond what numbers can hold: an answer that is certified, infinite where nothing better is known."""

import math

import pytest

from tacit.accounting import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    LaplaceDensity,
    ProductNoise,
    RandomizedResponse,
    SechDensity,
    StudentT,
    StudentTDensity,
    curve,
)
from tacit.errors import NotAccountable

MANY = 10**30
EXTREME = [
    ProductNoise(LaplaceDensity(1e-3), (1.0, 0.5)),
    ProductNoise(LaplaceDensity(1e-3), (1.0, 0.5)) * 10**6,
    ProductNoise(SechDensity(1e-3), (1.0, 0.5)) * 3,
    ProductNoise(SechDensity(1e308), (1.0, 0.5)) * 3,
    ProductNoise(LaplaceDensity(1e-320), (1.0, 0.5)),
    ProductNoise(StudentTDensity(1e-300, 1e-300), (1e300,)),
    Laplace(1e-308) * MANY,
    Laplace(1e308) * MANY,
    Laplace(1e3).sampled(0.3) * MANY,
    Gaussian(1e-308) * MANY,
    Gaussian(1e-3).sampled(1e-300) * MANY,
    StudentT(5.0, 1e-308, (1.0, 0.5)) * MANY,
    EpsilonDelta(1e308, 1e-6) * MANY,
    RandomizedResponse(1e308) * MANY,
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("by", ["pld", "rdp"])
@pytest.mark.parametrize("event", EXTREME, ids=lambda event: repr(event)[:60])
def test_an_extreme_event_has_a_certified_answer(event, by):
    try:
        found = curve(event, by).epsilon_bounds(1e-5), curve(event, by).delta_bounds(1.0)
    except NotAccountable:
        return
    for lower, upper in found:
        assert 0 <= lower <= upper


def test_bounded_losses_bound_an_epsilon_that_is_too_large_to_be_computed():
    # Each release has losses of up to 100 and 50, and most are near that.
    lower, upper = curve(ProductNoise(LaplaceDensity(0.01), (1.0, 0.5)) * 1000).epsilon_bounds(1e-5)
    assert lower <= 1000 * 148 <= upper <= 1000 * 150 * (1 + 1e-9)


def test_where_nothing_bounds_the_losses_epsilon_is_infinite():
    assert curve(Gaussian(1e-308) * MANY).epsilon(1e-5) == math.inf
