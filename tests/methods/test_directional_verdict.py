"""How far the published directional noise is from its claim: worked numbers, computed elsewhere."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import integrate, special, stats

from tacit.accounting import Gaussian, curve, gdp
from tacit.methods.directional import tau

DELTA = 1e-5
MNIST_RATE, MNIST_STEPS = 512 / 55000, 6445
# The multiplier of the gradient for a claim of 1 of which w gets an eighth.
NOMINAL = 8.605791566876968


@pytest.mark.parametrize(
    ("lot", "examples", "steps", "claimed", "limit"),
    [
        (512, 55000, 6445, 0.2, 0.1106),
        (512, 55000, 6445, 0.3, 0.1494),
        (512, 55000, 6445, 0.5, 0.2090),
        (512, 55000, 6445, 1.0, 0.3175),
        (256, 73257, 8585, 5.0, 0.4823),
        (256, 73257, 8585, 10.0, 0.7391),
        (256, 60000, 23438, 5.0, 0.5204),
        (256, 60000, 23438, 10.0, 0.7715),
        (256, 60000, 23438, 15.0, 0.9774),
    ],
)
def test_the_central_limit_of_the_published_settings(lot, examples, steps, claimed, limit):
    rate = lot / examples
    event = Gaussian(1 / math.sqrt(tau(claimed / rate, DELTA / rate, steps))).sampled(rate) * steps
    assert curve(event, by="clt").epsilon(DELTA) == pytest.approx(limit, abs=1e-4)


def test_the_best_moment_and_the_identity_for_real_ones():
    log = math.log(1 / DELTA)
    assert (log + math.sqrt(log**2 + log)) == pytest.approx(23.51544096, rel=1e-9)
    assert math.sqrt(tau(1.0, DELTA, 1, "real")) == pytest.approx(math.sqrt(2) * (math.sqrt(log + 1) - math.sqrt(log)))
    assert math.sqrt(tau(1.0, DELTA, 1, "real")) == pytest.approx(0.20405851, abs=5e-9)


@pytest.mark.parametrize(
    ("ratio", "low", "high"), [(29.5, 217.158, 223.767), (45.1, 872.264, 876.850), (111.0, 7485.80, 7490.16)]
)
def test_what_the_least_noisy_coordinate_costs_at_a_constant_ratio(ratio, low, high):
    lower, upper = curve(Gaussian(NOMINAL / ratio).sampled(MNIST_RATE) * MNIST_STEPS).epsilon_bounds(DELTA)
    assert low <= lower <= upper <= high


def test_a_dense_example_of_the_published_setting_stays_below_the_claim():
    event = Gaussian(NOMINAL / math.sqrt(3)).sampled(MNIST_RATE) * MNIST_STEPS
    assert curve(event).epsilon(DELTA) == pytest.approx(0.5400654, abs=1e-2)


@cache
def hidden_information():
    """Fisher information of noise whose size is |z|^(1/3) sqrt(E|z|^(4/3)), z being normal and unknown."""
    power = 2 ** (2 / 3) * special.gamma(7 / 6) / math.sqrt(math.pi)
    z, weights = np.polynomial.legendre.leggauss(2000)
    z = 5 * (z + 1)
    weights = 10 * weights * stats.norm.pdf(z)
    sizes = z ** (1 / 3) * math.sqrt(power)

    def information(x):
        values = weights * np.exp(-0.5 * (x / sizes) ** 2) / sizes
        slope = -x * float(values @ (1 / sizes**2))
        return slope**2 / float(values.sum()) / math.sqrt(2 * math.pi)

    return 2 * integrate.quad(information, 0, 12, limit=400)[0]


@pytest.mark.parametrize(
    ("claimed", "hidden", "visible"),
    [
        (0.5, 0.4658957, 0.6409316),
        (1.0, 0.9825526, 1.3556924),
        (2.0, 2.0704429, 2.8768486),
        (5.0, 5.5516410, 7.8630703),
        (10.0, 11.6952043, 16.9664205),
    ],
)
def test_a_dense_example_breaks_large_claims_even_where_w_stays_secret(claimed, hidden, visible):
    ratio = tau(claimed, DELTA, 1)
    assert gdp.epsilon(DELTA, math.sqrt(3 * ratio)) == pytest.approx(visible, rel=1e-6)
    assert gdp.epsilon(DELTA, math.sqrt(hidden_information() * ratio)) == pytest.approx(hidden, rel=1e-3)
    assert (hidden > claimed) is (claimed >= 2)
