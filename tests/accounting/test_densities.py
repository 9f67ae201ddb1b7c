"""Noise densities and their losses against the same laws in other libraries."""

import itertools
import math

import numpy as np
import pytest

from support.known_laws import CASES, FAMILIES, LAWS


@pytest.mark.parametrize(("density", "law"), LAWS)
def test_survival_agrees_with_another_library_in_the_far_tails(density, law):
    for x in (-30.0, -2.0, -1e-3, 0.0, 0.4, 5.0, 25.0):
        ours = float(density.survival(np.array([x]))[0])
        assert ours == pytest.approx(float(law.sf(x)), rel=1e-11)


@pytest.mark.parametrize(("density", "law"), LAWS)
def test_log_density_agrees_with_another_library(density, law):
    for x in (-30.0, -2.0, 0.0, 0.4, 25.0):
        assert float(density.log_density(np.array([x]))[0]) == pytest.approx(float(law.logpdf(x)), rel=1e-12)


@pytest.mark.parametrize(("density", "law"), LAWS)
def test_densities_are_even_and_fall_from_the_middle(density, law):
    x = np.linspace(0, 40, 2001)
    values = density.log_density(x)
    assert np.array_equal(values, density.log_density(-x))
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_loss_is_the_log_ratio_of_the_densities(density, law, shift):
    for x in (-8.0, -0.3, 0.0, shift / 2, shift, 2.0, 11.0):
        ratio = float(law.logpdf(x - shift) - law.logpdf(x))
        assert float(density.loss(np.array([x]), shift)[0]) == pytest.approx(ratio, abs=1e-12)


@pytest.mark.parametrize("density", [pair[0] for pair in FAMILIES.values()], ids=FAMILIES)
def test_loss_of_a_tiny_shift_keeps_its_digits(density):
    shift, x = 1e-9, np.array([-3.0, 1.0, 4.0])
    # To first order the loss is the shift times the slope of the log density.
    slope = (density.log_density(x - 1e-4) - density.log_density(x + 1e-4)) / 2e-4
    assert density.loss(x, shift) == pytest.approx(shift * slope, rel=1e-5)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_loss_is_monotone_between_its_turns(density, law, shift):
    turns = sorted(density.loss_turns(shift))
    ends = [-60.0, *turns, 60.0 + shift]
    for low, high in itertools.pairwise(ends):
        steps = np.diff(density.loss(np.linspace(low, high, 4001), shift))
        assert np.all(steps >= -1e-14) or np.all(steps <= 1e-14)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_loss_tends_to_its_limit(density, law, shift):
    far = float(density.loss(np.array([1e9]), shift)[0])
    if math.isinf(density.loss_limit(shift)):
        assert far > 1e6 * shift
    else:
        assert far == pytest.approx(density.loss_limit(shift), abs=1e-7)
