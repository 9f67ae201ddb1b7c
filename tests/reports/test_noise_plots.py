"""The picture of laws of noise: every law with an expected error, beside Gaussian noise."""

import math

import numpy as np
import pytest

from tacit.reports.noise_plots import draw_families
from tacit.stages.noise.compare import Setting, error_of

SETTING = Setting((0.6, 0.8))


@pytest.fixture(scope="module")
def figure():
    found = [
        error_of(SETTING, name, size, 1e-5) for name, size in (("gaussian", 3.7), ("laplace", 1.8), ("cauchy", 1.2))
    ]
    return draw_families(SETTING, found, epsilon=1.0, delta=1e-5)


@pytest.mark.slow
def test_laws_without_expected_errors_are_left_out(figure):
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["Gaussian", "Laplace"]


@pytest.mark.slow
def test_errors_fall_with_epsilon(figure):
    for line in figure.axes[0].get_lines()[:2]:
        spent, errors = line.get_data()
        assert np.all(np.diff(spent) < 0)
        assert np.all(np.diff(errors) > 0)


@pytest.mark.slow
def test_gaussian_noise_is_its_own_measure(figure):
    ratio = figure.axes[1].get_lines()[0].get_ydata()
    np.testing.assert_allclose(ratio, 1, rtol=1e-9)


@pytest.mark.slow
def test_laplace_noise_is_shown_below_gaussian_noise_on_two_coordinates(figure):
    ratios = figure.axes[1].get_lines()[2].get_ydata()
    assert np.all(ratios < 1)
    assert not any(map(math.isnan, ratios))


@pytest.mark.slow
def test_axes_say_what_they_show(figure):
    assert figure.axes[0].get_xlabel() == "certified ε at δ = 1e-05"
    assert "2 encoded coordinates" in figure.get_suptitle()
