"""Noise laws: draws against scipy's distributions, and moments against integrals of the density."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from tacit.accounting.densities import DENSITIES
from tacit.accounting.losses import density_atoms
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.noise import Cauchy, Laplace, Normal, Sech, StudentT, VarianceGamma, list_families
from tacit.stages.noise.laws import draw_uniform, find_family

EVERY = [Normal(), StudentT(9), StudentT(3), StudentT(1.5), StudentT(0.5), Laplace(), Cauchy(), VarianceGamma(), Sech()]
every_family = pytest.mark.parametrize("family", EVERY, ids=str)
# Every statistical test here raises a false alarm with probability 1e-6, and its seed is fixed.
FALSE_ALARM = 1e-6
COUNT = 200_000


def draws(family, count=COUNT, seed=0):
    return family.draw(SeededSource(seed).stream(Purpose.NOISE, 0), count)


@every_family
def test_draws_have_the_law_of_the_density(family):
    density = family.density(1.0)
    assert stats.kstest(draws(family), lambda x: density.survival(-x)).pvalue > FALSE_ALARM


@every_family
def test_draws_have_the_law_of_the_density_in_the_tails_too(family):
    """Of 200,000 numbers about 200 are beyond the 0.1 % quantile; their tail probabilities are uniform."""
    beyond = family.density(1.0).survival(np.abs(draws(family)))
    tail = beyond[beyond < 5e-4] / 5e-4
    assert stats.binomtest(tail.size, COUNT, 1e-3).pvalue > FALSE_ALARM
    assert stats.kstest(tail, "uniform").pvalue > FALSE_ALARM


@every_family
def test_both_signs_are_equally_likely_and_independent_of_the_size(family):
    found = draws(family)
    assert stats.binomtest(int((found > 0).sum()), COUNT).pvalue > FALSE_ALARM
    assert stats.ks_2samp(found[found > 0], -found[found < 0]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("family", [one for one in EVERY if math.isfinite(one.mean_absolute)], ids=str)
@pytest.mark.parametrize("size", [0.2, 1.0, 30.0])
def test_moments_are_those_of_the_density(family, size):
    density = family.density(size)

    def moment(power):
        def inside(t):
            x = size * math.exp(t)
            return 2 * x ** (power + 1) * math.exp(float(density.log_density(np.array([x]))[0]))

        return integrate.quad(inside, -40, 40, limit=400)[0]

    assert moment(1) == pytest.approx(size * family.mean_absolute, rel=1e-6)
    if math.isfinite(family.mean_square):
        assert moment(2) == pytest.approx(size**2 * family.mean_square, rel=1e-6)


def test_heavy_tails_have_no_moments():
    assert Cauchy().mean_absolute == Cauchy().mean_square == math.inf
    assert StudentT(1).mean_absolute == StudentT(2).mean_square == math.inf
    assert StudentT(1.5).mean_absolute < math.inf


def test_cauchy_is_student_t_with_one_degree():
    assert Cauchy().density(1.7) == StudentT(1).density(1.7)
    assert stats.ks_2samp(draws(Cauchy()), draws(StudentT(1), seed=1)).pvalue > FALSE_ALARM


def test_nine_degrees_of_unit_variance_have_the_published_scale():
    assert StudentT(9).density(1.0).scale == pytest.approx(0.8819171036881969, rel=1e-15)


@pytest.mark.parametrize(
    ("dof", "variance", "absolute"),
    [(3, 2.0, 1.1283791670955126), (5, 1.25, 1.0300645387285055), (9, 15 / 14, 0.9989014222556152),
     (30, 1.0064935064935066, 0.9943257407784961)],
)  # fmt: skip
def test_in_high_dimensions_student_t_is_no_better_than_gaussian_noise(dof, variance, absolute):
    """At equal privacy (equal Fisher information) its variance is larger, its mean size hardly less."""
    information = (dof + 1) / ((dof + 3) * StudentT(dof).density(1.0).scale ** 2)
    assert information == pytest.approx(variance, rel=1e-12)
    size = math.sqrt(information)
    assert size * StudentT(dof).mean_absolute / Normal().mean_absolute == pytest.approx(absolute, rel=1e-12)


def test_uniform_numbers_lie_in_the_unit_interval_and_never_at_zero():
    found = draw_uniform(SeededSource(3).stream(Purpose.NOISE, 0), COUNT)
    assert found.min() > 0
    assert found.max() <= 1
    assert stats.kstest(found, "uniform").pvalue > FALSE_ALARM


def test_a_secure_stream_and_a_seeded_one_are_drawn_alike():
    again = draws(StudentT(9), 100), draws(StudentT(9), 100)
    np.testing.assert_array_equal(*again)


def test_families_are_found_by_name_or_given():
    assert find_family("student_t") == StudentT(9.0)
    assert find_family(StudentT(5)) == StudentT(5.0)
    assert set(list_families()) == {*DENSITIES, "cauchy"}


@pytest.mark.parametrize("wrong", ["gauss", Laplace, 3])
def test_what_is_no_family_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="noise must be"):
        find_family(wrong)


@every_family
def test_a_larger_shift_is_easier_to_see(family):
    """The lemma that lets a box be accounted for by its corner: hockey sticks and moments rise with the shift."""
    density = family.density(1.0)
    shifts = (0.1, 0.3, 0.7, 1.5, 3.0)
    lowers = [density_atoms(density, shift, "lower", 1e-15, 4000) for shift in shifts]
    uppers = [density_atoms(density, shift, "upper", 1e-15, 4000) for shift in shifts]
    for smaller, larger in itertools.pairwise(range(len(shifts))):
        for epsilon in (-1.0, 0.0, 0.3, 1.0, 2.5):
            assert lowers[smaller].delta(epsilon) <= uppers[larger].delta(epsilon) * (1 + 1e-9)
        for order in (1.5, 2, 3, 8):
            moments = [
                float(atoms[i].p @ np.exp((order - 1) * atoms[i].loss))
                for atoms, i in ((lowers, smaller), (uppers, larger))
            ]
            assert moments[0] <= moments[1] * (1 + 1e-9)
