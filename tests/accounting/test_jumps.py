"""Large losses apart from the rest: bounds hold however much larger their moments are than those of the core."""

import math

import pytest
from scipy.stats import norm

from tacit.accounting import Gaussian, curve
from tacit.accounting.contour import _draw_apart
from tacit.accounting.events import Adjacency, EpsilonDelta
from tacit.accounting.pld import LossProfile

STATED = EpsilonDelta(0.4995, 9.99e-6, Adjacency.REPLACE_ONE)


def exact_delta(epsilon, multiplier):
    """Two outcomes with losses of +0.4995 and -0.4995, a lost one, and Gaussian noise: in closed form."""
    mu, share = 1 / multiplier, 1 / (1 + math.exp(-STATED.epsilon))

    def hockey_stick(x):
        return norm.cdf(mu / 2 - x / mu) - math.exp(x) * norm.cdf(-mu / 2 - x / mu)

    above, below = hockey_stick(epsilon - STATED.epsilon), hockey_stick(epsilon + STATED.epsilon)
    return STATED.delta + (1 - STATED.delta) * (share * above + (1 - share) * below)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("tilt", [100.0, 3_000.0, 30_000.0])
def test_bounds_hold_at_every_tilt_and_share(share, tilt):
    event = STATED + Gaussian(1000.0, Adjacency.REPLACE_ONE)
    atoms = LossProfile.of(event).directions[0]._atoms("upper", 1e-15, 4000)
    lines = _draw_apart(atoms, tilt, 0.5033, math.log(1e-5), 2e-6, share)
    for epsilon in (0.4995, 0.5033):
        exact = exact_delta(epsilon, 1000.0)
        assert lines.delta(epsilon, "upper") >= exact * (1 - 1e-9)
        assert lines.delta(epsilon, "lower") <= exact * (1 + 1e-9)


@pytest.mark.parametrize("multiplier", [200.0, 1000.0, 6915.0])
def test_a_stated_release_beside_a_gaussian_one_costs_what_the_closed_form_says(multiplier):
    lower, upper = curve(STATED + Gaussian(multiplier, Adjacency.REPLACE_ONE)).epsilon_bounds(1e-5)
    assert exact_delta(lower, multiplier) >= 1e-5 * (1 - 1e-9)
    assert exact_delta(upper, multiplier) <= 1e-5 * (1 + 1e-9)
    assert STATED.epsilon - 1e-4 < lower <= upper <= lower * (1 + 1e-6)
