"""The odometer: close to the certified answer from above, and fast where that gives up."""

import math

import pytest

from tacit.accounting import EpsilonDelta, Gaussian, Laplace, curve
from tacit.errors import NotAccountable
from tacit.training.spending import epsilon_spent

RATE, STEPS = 512 / 55_000, 6445


@pytest.mark.parametrize("multiplier", [0.0775, 0.19, 0.29, 1.1, 4.0, 20.0])
def test_it_stays_within_a_tenth_above_the_certified_answer(multiplier):
    certified = curve(Gaussian(multiplier).sampled(RATE) * STEPS).epsilon(1e-5)
    assert certified <= epsilon_spent([Gaussian(multiplier).sampled(RATE)] * STEPS, 1e-5) < 1.13 * certified


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_without_sampling_too(mu):
    certified = curve(Gaussian(1 / mu)).epsilon(1e-5)
    assert certified <= epsilon_spent([Gaussian(1 / mu)], 1e-5) < 1.2 * certified


def test_steps_of_different_kinds_add_up():
    event = Gaussian(2.0).sampled(0.01) * 50 + Gaussian(0.7).sampled(0.02) * 30 + Gaussian(30.0)
    assert epsilon_spent([event], 1e-5) == pytest.approx(curve(event, by="rdp").epsilon(1e-5), rel=1e-2)


def test_one_step_with_next_to_no_noise():
    """mu = 102 on a lot at rate 0.0093: epsilon is at least 5512."""
    assert 5512 < epsilon_spent([Gaussian(1 / 102.03).sampled(RATE)], 1e-5) < 5600


def test_no_noise_at_all_is_infinite_and_no_release_is_nothing():
    assert epsilon_spent([Gaussian(1.0), EpsilonDelta(0.0, 1.0)], 1e-5) == math.inf
    assert epsilon_spent([], 1e-5) == 0


def test_what_it_cannot_read_is_refused():
    with pytest.raises(NotAccountable, match="Gaussian releases only"):
        epsilon_spent([Laplace(1.0)], 1e-5)
