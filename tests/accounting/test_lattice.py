"""Many losses on one lot: both bounds against closed forms, and rounding against extended precision."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import (
    Composed,
    Gaussian,
    GaussianDensity,
    LaplaceDensity,
    ProductNoise,
    RandomizedResponse,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
    cauchy,
    curve,
    gdp,
)
from tacit.accounting.lattice import _deviation, _Lattice, _make_lattice, _place, convolve_all
from tacit.accounting.losses import LossAtoms, density_atoms

DENSITIES = [
    GaussianDensity(1.0),
    StudentTDensity(9.0, math.sqrt(7 / 9)),
    LaplaceDensity(0.8),
    cauchy(0.5),
    SechDensity(1.2),
    VarianceGammaDensity(0.5),
]
every_density = pytest.mark.parametrize("density", DENSITIES, ids=lambda density: type(density).__name__)


def joined(density, shifts, kind, size=4000):
    side = "upper" if kind == "upper" else "lower"
    parts = [(density_atoms(density, shift, side, 1e-19, 4000), times) for shift, times in shifts]
    return convolve_all(parts, kind, size, 1e-6)


@pytest.mark.parametrize(("mu", "count"), [(1.0, 8), (1.0, 100), (0.2, 5000), (3.0, 5000), (1.0, 26_010)])
def test_many_small_gaussians_are_one_gaussian(mu, count):
    lower, upper = (joined(GaussianDensity(1.0), [(mu / math.sqrt(count), count)], kind) for kind in ("lower", "upper"))
    for epsilon in (0.0, mu**2 / 2, mu**2 / 2 + 2 * mu, mu**2 / 2 + 4 * mu):
        exact = float(gdp.delta(epsilon, mu))
        assert lower.delta(epsilon) <= exact <= upper.delta(epsilon)
        assert upper.delta(epsilon) - lower.delta(epsilon) < 0.012 * exact


@pytest.mark.parametrize("count", [10, 60])
def test_many_randomized_responses_are_binomial(count):
    epsilon = 0.3
    likely = 1 / (1 + math.exp(-epsilon))
    atoms = LossAtoms(np.array([epsilon, -epsilon]), np.array([likely, 1 - likely]), np.array([1 - likely, likely]))
    lower, upper = (convolve_all([(atoms, count)], kind, 4000, 1e-6) for kind in ("lower", "upper"))
    wins = np.arange(count + 1)
    p, q = stats.binom.pmf(wins, count, likely), stats.binom.pmf(wins, count, 1 - likely)
    for at in (0.0, 0.5, 1.7, 3.0):
        exact = float(np.maximum(p - math.exp(at) * q, 0).sum())
        assert lower.delta(at) <= exact * (1 + 1e-9) + 1e-14
        assert upper.delta(at) >= exact * (1 - 1e-9)
        assert upper.delta(at) - lower.delta(at) < 0.05 * exact + 1e-4


@pytest.mark.slow
@every_density
def test_both_bounds_enclose_what_atom_by_atom_convolution_encloses(density):
    """Unsampled products are accounted for in another way, by moments of each loss: the intervals must overlap."""
    shifts = [(0.1, 30), (0.25, 10)]
    event = Composed(tuple(ProductNoise(density, (shift,)) * times for shift, times in shifts))
    lower, upper = (joined(density, shifts, kind) for kind in ("lower", "upper"))
    for epsilon in (0.1, 1.0, 3.0):
        other = curve(event).delta_bounds(epsilon)
        assert lower.delta(epsilon) <= other[1] * (1 + 1e-6)
        assert upper.delta(epsilon) >= other[0] * (1 - 1e-6)
        assert upper.delta(epsilon) < 1.02 * lower.delta(epsilon) + 1e-9


@every_density
def test_masses_are_probabilities(density):
    for kind in ("lower", "estimate", "upper"):
        atoms = joined(density, [(0.05, 300)], kind)
        slack = 1e-9 if kind == "upper" else 1e-6
        assert 1 - 1e-6 <= atoms.p.sum() + atoms.only_p <= 1 + slack
        assert 1 - 1e-6 <= atoms.q.sum() + atoms.only_q <= 1 + slack
        assert atoms.loss.size <= 4100


@every_density
@pytest.mark.parametrize("count", [8, 500, 30_000])
@pytest.mark.parametrize("tilt", [-2.0, 0.0, 1.0])
def test_rounding_is_a_sixth_of_what_is_allowed_for(density, count, tilt):
    part = density_atoms(density, 1 / math.sqrt(count), "upper", 1e-19, 2000)
    std = _deviation([(part, count)])
    lattice = _make_lattice([(part, count)], std, 3e-4)
    index = np.floor(part.loss / lattice.width).astype(np.int64)
    start, mass = _place(index, part.p, part.loss / lattice.width - index)
    found, doubt, log_scale = lattice._sum_tilted([(start, mass, count)], tilt)
    exact, exact_log_scale = precise_total(lattice, start, mass, count, tilt)
    assert float(np.abs(found - exact).max()) < doubt / 6
    assert abs(float(exact_log_scale - log_scale)) < count * 2.0**-50 / 2


def precise_total(lattice: _Lattice, start, mass, count, tilt):
    """The same in extended precision."""
    place = (start + np.arange(mass.size)).astype(np.longdouble)
    tilted = mass.astype(np.longdouble) * np.exp(np.longdouble(tilt) * np.longdouble(lattice.width) * place)
    scale = tilted.sum()
    wrapped = np.zeros(lattice.points, dtype=np.longdouble)
    np.add.at(wrapped, (start + np.arange(mass.size)) % lattice.points, tilted / scale)
    transform = np.fft.rfft(wrapped)
    assert transform.dtype == np.clongdouble
    with np.errstate(divide="ignore", invalid="ignore"):
        product = np.exp(count * np.log(transform))
    product[~np.isfinite(product)] = 0
    total = np.fft.irfft(product, lattice.points)
    return np.roll(total, -(lattice.first % lattice.points)), count * np.log(scale)


@pytest.mark.parametrize(("rate", "steps"), [(0.1, 30), (256 / 60_000, 3516)])
def test_a_sampled_lot_of_many_small_gaussians_has_the_epsilon_of_one(rate, steps):
    """Hidden among other noise of no importance, so that the closed form of Gaussians is not used."""
    many = Composed(
        (ProductNoise(GaussianDensity(1.0), (1 / 32,)) * 1024, ProductNoise(LaplaceDensity(1.0), (1e-9,)) * 8)
    )
    exact = curve(Gaussian(1.0).sampled(rate) * steps).epsilon(1e-5)
    lower, upper = curve(many.sampled(rate) * steps).epsilon_bounds(1e-5)
    assert lower <= exact * (1 + 1e-6)
    assert exact * (1 - 1e-9) <= upper <= 1.002 * exact


def test_student_noise_on_a_sampled_lot_in_high_dimensions_is_gaussian_with_its_fisher_information():
    """mu^2 is (dof + 1) / ((dof + 3) scale^2) in the limit; a sampled lot of 2^12 coordinates is close to it."""
    scale = math.sqrt(7 / 9)
    event = ProductNoise(StudentTDensity(9.0, scale), (1 / 64,)) * 4096
    limit = curve(Gaussian(scale * math.sqrt(12 / 10)).sampled(0.01) * 1000).epsilon(1e-5)
    lower, upper = curve(event.sampled(0.01) * 1000).epsilon_bounds(1e-5)
    assert 0.998 * limit < lower < upper < 1.001 * limit


def test_a_tiny_delta_is_answered_too():
    event = (ProductNoise(LaplaceDensity(2.0), (0.2,)) * 20).sampled(0.01) * 100
    lower, upper = curve(event).epsilon_bounds(1e-30)
    assert 0 < lower <= upper < math.inf


def test_no_spread_at_all_has_no_lattice():
    nothing = LossAtoms(np.zeros(1), np.ones(1), np.ones(1))
    assert convolve_all([(nothing, 20)], "upper", 100, 1.0) is None


def test_randomized_responses_on_one_lot_are_accounted_for():
    event = (RandomizedResponse(0.2) * 30).sampled(1.0)
    assert curve(event).epsilon(1e-6) == pytest.approx(curve(RandomizedResponse(0.2) * 30).epsilon(1e-6))
