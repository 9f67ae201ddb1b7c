"""Laws of noise at equal epsilon: against closed forms, and in the limit of many numbers."""

import math

import numpy as np
import pytest

from tacit.accounting import curve, gdp
from tacit.errors import InvalidArgument
from tacit.stages.bounds import Profile
from tacit.stages.noise import Cauchy, Laplace, Normal, StudentT, list_families
from tacit.stages.noise.compare import Setting, compare_families, error_of, median_size, trace


def by_name(setting, epsilon=1.0, delta=1e-5):
    return {one.name: one for one in compare_families(setting, epsilon=epsilon, delta=delta)}


@pytest.fixture(scope="module")
def one_number():
    return by_name(Setting((1.0,)))


def test_one_number_with_laplace_noise_has_its_closed_form(one_number):
    """delta = 1 - e^{(epsilon - 1/b) / 2}, so 1/b = epsilon - 2 log(1 - delta), and the expected error is b."""
    b = 1 / (1 - 2 * math.log1p(-1e-5))
    assert one_number["laplace"].l1 == pytest.approx(b, rel=1e-4)
    assert one_number["laplace"].l2 == pytest.approx(b * math.sqrt(2), rel=1e-4)
    assert one_number["laplace"].median == pytest.approx(b * math.log(2), rel=1e-4)


def test_one_number_with_gaussian_noise_has_its_closed_form(one_number):
    std = 1 / float(gdp.mu(1.0, 1e-5))
    assert one_number["gaussian"].l2 == pytest.approx(std, rel=1e-4)
    assert one_number["gaussian"].l1 == pytest.approx(std * math.sqrt(2 / math.pi), rel=1e-4)


def test_the_list_is_sorted_and_every_law_keeps_the_budget(one_number):
    errors = [one.l1 for one in one_number.values()]
    assert errors == sorted(errors)
    assert set(one_number) == set(list_families())
    for one in one_number.values():
        assert 0.999 < one.certified[0] <= one.certified[1] <= 1


def test_a_law_without_moments_has_no_finite_error(one_number):
    assert one_number["cauchy"].l1 == one_number["cauchy"].l2 == math.inf
    assert one_number["cauchy"].median < math.inf


def test_in_high_dimensions_gaussian_noise_is_as_good_as_any():
    """Student noise with nine degrees: variance + 7.1 %, mean size - 0.1 %. Laplace: twice the Fisher information."""
    flat = Setting((1 / 64,) * 4096)
    found = {
        name: error_of(flat, name, z, 1e-5) for name, z in (("gaussian", 4.0), ("student_t", 4.0), ("laplace", 4.0))
    }
    spent = {name: one.certified[1] for name, one in found.items()}
    information = {"student_t": 15 / 14, "laplace": 2.0}
    for name, value in information.items():
        limit = float(gdp.epsilon(1e-5, math.sqrt(value) / 4.0))
        assert spent[name] == pytest.approx(limit, rel=0.01)
    assert spent["gaussian"] < spent["student_t"] < spent["laplace"]


def test_sampling_and_steps_are_part_of_the_event():
    setting = Setting(tuple(Profile().rows(20)[0].tolist()), rate=0.1, steps=5)
    event = setting.event(StudentT(9), 1.5)
    assert curve(event).epsilon(1e-5) < curve(Setting(setting.box, steps=5).event(StudentT(9), 1.5)).epsilon(1e-5)


@pytest.mark.slow
def test_a_box_around_several_vectors_costs_gaussian_noise_nothing():
    wide = Setting((1.0, 1.0))
    assert curve(wide.event(Normal(), 2.0)).epsilon(1e-5) == curve(Setting((1.0,)).event(Normal(), 2.0)).epsilon(1e-5)
    assert curve(wide.event(Laplace(), 2.0)).epsilon(1e-5) > curve(Setting((1.0,)).event(Laplace(), 2.0)).epsilon(1e-5)


MEDIANS = [(Normal(), 0.6744897501960817), (Laplace(), math.log(2) / math.sqrt(2)), (Cauchy(), 1.0)]


@pytest.mark.parametrize(("family", "expected"), MEDIANS)
def test_medians(family, expected):
    assert median_size(family) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_more_noise_costs_less_and_errs_more():
    spent, l1, l2 = trace(Setting((0.6, 0.8)), "sech", np.array([1.0, 2.0, 4.0]), 1e-5)
    assert spent[0] > spent[1] > spent[2]
    np.testing.assert_allclose(l1 / l1[0], [1, 2, 4])
    np.testing.assert_allclose(l2 / l2[0], [1, 2, 4])


@pytest.mark.parametrize("box", [(), (0.0,), (0.3, 0.3), (-1.0,), (math.nan,)])
def test_a_box_that_one_example_would_leave_is_refused(box):
    with pytest.raises(InvalidArgument, match="box must"):
        Setting(box)
