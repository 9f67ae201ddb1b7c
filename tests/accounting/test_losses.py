"""Loss atoms against hockey sticks from distribution functions of other libraries, closed forms and brute force."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from support.exact_losses import gaussian_delta, hockey_stick, response, sampled, sampled_gaussian_delta, swapped
from support.known_laws import CASES, UNIT_VARIANCE_T9
from tacit.accounting import gdp
from tacit.accounting.densities import (
    GaussianDensity,
    LaplaceDensity,
    StudentTDensity,
)
from tacit.accounting.losses import (
    Cells,
    LossAtoms,
    convolve,
    convolve_power,
    density_atoms,
    merge,
    sample_removal,
    sample_with_coin,
    split,
    thin,
)


def exact_delta(law, shift, epsilon):
    """P(A) - e^eps Q(A) with A = {loss > eps}, an interval whose ends are found by bracketing."""

    def excess(x):
        return law.logpdf(x - shift) - law.logpdf(x) - epsilon

    # All of A lies right of shift / 2, where the loss rises to its peak and then, for Student's t, falls.
    grid = shift / 2 + np.concatenate([[0.0], np.geomspace(1e-6, 1e7, 4000)]) * (1 + shift)
    with np.errstate(over="ignore", divide="ignore"):
        grid = grid[np.isfinite(law.logpdf(grid))]
    above = np.flatnonzero(excess(grid) > 0)
    if above.size == 0:
        return 0.0
    first, last = above[0], above[-1]
    left = optimize.brentq(excess, grid[first - 1], grid[first], xtol=1e-14) if first > 0 else grid[0]
    right = math.inf if last == grid.size - 1 else optimize.brentq(excess, grid[last], grid[last + 1], xtol=1e-14)

    def mass(a, b):
        return float(law.sf(a)) - (0.0 if math.isinf(b) else float(law.sf(b)))

    return mass(left - shift, right - shift) - math.exp(epsilon) * mass(left, right)


def bounds(density, shift, epsilon, tail, size):
    """delta(epsilon) of the merged and of the split atoms."""
    return [density_atoms(density, shift, kind, tail, size).delta(epsilon) for kind in ("lower", "upper")]


def epsilons_for(density, shift):
    limit = max(abs(float(density.loss(np.array([x]), shift)[0])) for x in (shift, *density.loss_turns(shift)))
    return [share * limit for share in (0.0, 0.1, 0.5, 0.9)]


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_split_atoms_dominate_the_true_pair(density, law, shift):
    atoms = density_atoms(density, shift, "upper", 1e-14, 1500)
    for epsilon in epsilons_for(density, shift):
        assert atoms.delta(epsilon) >= exact_delta(law, shift, epsilon) - 1e-14


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_merged_atoms_are_dominated_by_the_true_pair(density, law, shift):
    atoms = density_atoms(density, shift, "lower", 1e-14, 1500)
    for epsilon in epsilons_for(density, shift):
        assert atoms.delta(epsilon) <= exact_delta(law, shift, epsilon) + 1e-14


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_both_kinds_of_atoms_err_to_second_order(density, law, shift):
    coarse, fine = (
        max(
            density_atoms(density, shift, "upper", 1e-14, size).delta(epsilon)
            - density_atoms(density, shift, "lower", 1e-14, size).delta(epsilon)
            for epsilon in epsilons_for(density, shift)
        )
        for size in (500, 2000)
    )
    assert fine < coarse / 4
    assert fine < 5e-4


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_quadrature_atoms_integrate_smooth_functions_of_the_loss(density, law, shift):
    atoms = density_atoms(density, shift, "estimate", 1e-16, 1500)
    # tanh(loss / 2) under (P + Q) / 2 is odd for these symmetric pairs; under P it is their variation of one kind.
    expected = mpmath.quad(
        lambda x: (
            math.exp(law.logpdf(float(x) - shift))
            * math.tanh(float(law.logpdf(float(x) - shift) - law.logpdf(float(x))) / 2)
        ),
        [-60, -5, 0, shift / 2, shift, 5 + shift, 60],
    )
    if not isinstance(density, StudentTDensity) or density.dof > 5:
        assert float(atoms.p @ np.tanh(atoms.loss / 2)) == pytest.approx(float(expected), abs=1e-8)
    assert float(atoms.p.sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
@pytest.mark.parametrize("tail", [1e-5, 1e-12, 1e-30])
def test_split_atoms_are_two_probability_measures(density, law, shift, tail):
    atoms = density_atoms(density, shift, "upper", tail, 800)
    assert float(atoms.p.sum()) + atoms.only_p == pytest.approx(1, abs=1e-13)
    assert float(atoms.q.sum()) + atoms.only_q == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_merged_atoms_are_two_probability_measures(density, law, shift):
    atoms = density_atoms(density, shift, "lower", 1e-12, 800)
    assert atoms.only_p == atoms.only_q == 0
    assert float(atoms.p.sum()) == pytest.approx(1, abs=1e-11)
    assert float(atoms.q.sum()) == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize(("density", "law", "shift"), CASES)
def test_the_mass_under_q_is_that_under_p_divided_by_the_ratio(density, law, shift):
    for kind in ("lower", "upper"):
        atoms = density_atoms(density, shift, kind, 1e-12, 800)
        assert atoms.q == pytest.approx(atoms.p * np.exp(-atoms.loss), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize(
    ("shift", "at_0", "at_half", "at_1", "at_2"),
    [
        (0.25, 0.10958998, 0.0, 0.0, 0.0),
        (0.5, 0.21677322, 0.05644464, 0.0, 0.0),
        (1.0, 0.41538904, 0.26871515, 0.13357144, 0.0),
        (2.0, 0.71386189, 0.63559904, 0.54369334, 0.32424095),
        (4.0, 0.95045801, 0.9364259, 0.91852455, 0.86681448),
    ],
)
def test_hockey_stick_of_student_t_has_the_worked_values(shift, at_0, at_half, at_1, at_2):
    # Worked out elsewhere, to eight digits.
    lower, upper = (density_atoms(UNIT_VARIANCE_T9, shift, kind, 1e-12, 20_000) for kind in ("lower", "upper"))
    for epsilon, expected in ((0.0, at_0), (0.5, at_half), (1.0, at_1), (2.0, at_2)):
        assert lower.delta(epsilon) - 1e-8 <= expected <= upper.delta(epsilon) + 1e-8
        assert upper.delta(epsilon) - lower.delta(epsilon) < 3e-7


@pytest.mark.parametrize(
    ("shift", "moments", "largest"),
    [
        (0.1, (1.0107473988398084, 1.032469088228919, 1.0656247218954622, 1.330776222680336), 0.18897098936944606),
        (0.5, (1.2891755081975826, 2.031820479153897, 3.670797097600949, 73.70950372674433), 0.9435106844283518),
        (1.0, (2.4452973098209507, 9.433403912227078, 44.32428930810641, 41813.97213746341), 1.8787504567451565),
        (2.0, (13.792203928635175, 351.902794383538, 10779.300839899144, 16391544768.835512), 3.6949897192586927),
        (4.0, (454.4216185432942, 343950.9092617533, 298018026.17666733, 2.5262797629883905e20), 6.978835895818861),
    ],
)
def test_moments_and_largest_loss_of_student_t_have_the_worked_values(shift, moments, largest):
    # E_k = integral of z(x - shift)^k z(x)^(1-k), for k = 2, 3, 4, 8; and the pure epsilon.
    lower, upper = (density_atoms(UNIT_VARIANCE_T9, shift, kind, 1e-16, 40_000) for kind in ("lower", "upper"))
    assert upper.loss.max() == pytest.approx(largest, rel=1e-9)
    assert lower.loss.max() <= largest * (1 + 1e-9)
    for order, expected in zip((2, 3, 4, 8), moments, strict=True):
        below, above = (float(atoms.p @ np.exp((order - 1) * atoms.loss)) for atoms in (lower, upper))
        assert below * (1 - 1e-9) <= expected <= above * (1 + 1e-9)
        assert above == pytest.approx(below, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6, 1.2])
def test_one_laplace_release_has_its_closed_form(epsilon):
    # 1 - e^{(eps - s) / 2} up to the pure epsilon s = shift / scale.
    expected = max(1 - math.exp((epsilon - 1.25) / 2), 0)
    lower, upper = bounds(LaplaceDensity(0.8), 1.0, epsilon, 1e-14, 20_000)
    assert lower <= expected <= upper
    assert upper - lower < 5e-7


@pytest.mark.parametrize("shift", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
def test_one_gaussian_release_has_its_closed_form(shift, epsilon):
    expected = float(gaussian_delta(epsilon, shift))
    lower, upper = bounds(GaussianDensity(1.0), shift, epsilon, 1e-40, 8000)
    assert lower <= expected * (1 + 1e-13)
    assert upper >= expected * (1 - 1e-13)


def test_no_shift_is_no_loss():
    for kind in ("lower", "estimate", "upper"):
        atoms = density_atoms(LaplaceDensity(1.0), 0.0, kind, 1e-9, 100)
        assert atoms.delta(0.0) == 0
        assert float(atoms.p.sum()) == 1


# Any discrete pair: masses under P and Q, from which ratio and order follow.
masses = st.floats(-12, 0).map(lambda exponent: 10.0**exponent)
pairs = st.lists(st.tuples(masses, masses), min_size=2, max_size=60)
GRID = (0.0, 0.05, 0.4, 1.5, 6.0, 20.0)


def atoms_from(points):
    p, q = np.array(sorted(points, key=lambda point: math.log(point[0]) - math.log(point[1]))).T
    p, q = p / p.sum(), q / q.sum()
    return LossAtoms(np.log(p) - np.log(q), p, q)


def brute_force(atoms, epsilon):
    return float(np.maximum(atoms.p - math.exp(epsilon) * atoms.q, 0).sum()) + atoms.only_p


@given(pairs)
def test_delta_of_atoms_is_the_hockey_stick(points):
    atoms = atoms_from(points)
    for epsilon in GRID:
        assert atoms.delta(epsilon) == pytest.approx(brute_force(atoms, epsilon), abs=1e-13)


def cells_of(atoms, size):
    """Neighbouring outcomes in cells of `size`; between cells, any loss in the gap will do as an end."""
    starts = np.arange(0, atoms.loss.size, size)
    p, q = np.add.reduceat(atoms.p, starts), np.add.reduceat(atoms.q, starts)
    inner = [(atoms.loss[start - 1] + atoms.loss[start]) / 2 for start in starts[1:]]
    return Cells(p, q, np.array([atoms.loss[0], *inner, atoms.loss[-1]]))


@given(pairs, st.integers(1, 20))
def test_merging_any_cells_gives_a_lower_bound(points, size):
    atoms = atoms_from(points)
    merged = merge(cells_of(atoms, size))
    for epsilon in GRID:
        assert merged.delta(epsilon) <= brute_force(atoms, epsilon) * (1 + 1e-12) + 1e-15


@given(pairs, st.integers(1, 20))
def test_splitting_any_cells_gives_an_upper_bound(points, size):
    atoms = atoms_from(points)
    spread = split(cells_of(atoms, size))
    for epsilon in GRID:
        assert spread.delta(epsilon) >= brute_force(atoms, epsilon) * (1 - 1e-12) - 1e-15


@given(pairs, st.integers(1, 20))
def test_splitting_the_mirror_image_gives_an_upper_bound_too(points, size):
    atoms = atoms_from(points)
    cells = cells_of(atoms, size)
    falling = Cells(cells.p[::-1], cells.q[::-1], cells.ends[::-1])
    assert [split(falling).delta(e) for e in GRID] == pytest.approx([split(cells).delta(e) for e in GRID], abs=1e-13)


@pytest.mark.slow
@given(pairs, pairs)
def test_thinning_upwards_dominates_and_downwards_is_dominated(first, second):
    one, other = atoms_from(first), atoms_from(second)
    whole = convolve(one, other, "upper", 10**6)
    upper, lower = thin(whole, "upper", 64), thin(whole, "lower", 64)
    for epsilon in GRID:
        truth = brute_force(whole, epsilon)
        assert lower.delta(epsilon) <= truth * (1 + 1e-12) + 1e-15
        assert upper.delta(epsilon) >= truth * (1 - 1e-12) - 1e-15


@given(pairs, pairs)
def test_thinning_keeps_both_masses(first, second):
    whole = convolve(atoms_from(first), atoms_from(second), "upper", 10**6)
    for kind in ("lower", "upper"):
        thinned = thin(whole, kind, 64)
        assert thinned.loss.size <= whole.loss.size + 130
        assert float(thinned.p.sum()) == pytest.approx(1, abs=1e-12)
        assert float(thinned.q.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("times", "shift"), [(2, 1.0), (3, 0.4), (7, 0.2)])
def test_convolved_gaussians_bracket_the_gaussian_they_make(times, shift):
    total = shift * math.sqrt(times)
    lower, upper = (
        convolve_power(density_atoms(GaussianDensity(1.0), shift, kind, 1e-14, 600), times, kind, 600)
        for kind in ("lower", "upper")
    )
    for epsilon in (0.0, 0.5, 2.0):
        exact = gdp.delta(epsilon, total)
        assert lower.delta(epsilon) <= exact <= upper.delta(epsilon)
        assert upper.delta(epsilon) == pytest.approx(lower.delta(epsilon), abs=3e-4)


@pytest.mark.parametrize("rate", [1e-3, 0.01, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.4, 5.0])
def test_a_sampled_two_point_pair_is_exact_in_both_directions(rate, epsilon):
    likely = 1 / (1 + math.exp(-epsilon))
    pair = np.array([likely, 1 - likely])
    atoms = sample_removal(LossAtoms(np.array([epsilon, -epsilon]), pair, pair[::-1].copy()), rate)
    exact = sampled(response(epsilon), rate)
    for share in (0.0, 0.3, 0.95):
        level = share * math.log1p(rate * math.expm1(epsilon))
        assert atoms.delta(level) == pytest.approx(float(hockey_stick(exact, level)), rel=1e-9, abs=1e-16)
        level = -share * math.log1p(rate * math.expm1(-epsilon))
        added = float(hockey_stick(swapped(exact), level))
        assert atoms.reverse().delta(level) == pytest.approx(added, rel=1e-9, abs=1e-16)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_a_sampled_gaussian_is_bracketed_in_both_directions(rate, multiplier):
    for kind, side in (("lower", 1), ("upper", -1)):
        whole = sample_removal(density_atoms(GaussianDensity(1.0), 1 / multiplier, kind, 1e-16, 4000), rate)
        for added, atoms in ((False, whole), (True, whole.reverse())):
            for epsilon in (0.0, 0.3 * rate, 0.9 * rate):
                exact = float(sampled_gaussian_delta(epsilon, multiplier, rate, added))
                assert side * (exact - atoms.delta(epsilon)) >= -1e-15
                assert atoms.delta(epsilon) == pytest.approx(exact, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_outcomes_that_only_one_side_has_are_sampled_with_the_rest(rate):
    atoms = LossAtoms(np.array([0.0]), np.array([0.9]), np.array([0.8]), 0.1, 0.2)
    with_example = sample_removal(atoms, rate)
    assert with_example.only_p == pytest.approx(0.1 * rate)
    assert float(with_example.p.sum()) + with_example.only_p == pytest.approx(1)
    assert float(with_example.q.sum()) + with_example.only_q == pytest.approx(1)
    # What is impossible with the example is merely rarer once the example may be absent.
    assert with_example.only_q == (0.2 if rate == 1 else 0)


@given(pairs, st.floats(0.001, 0.999))
def test_with_the_coin_revealed_delta_is_the_rate_times_delta(points, rate):
    atoms = atoms_from(points)
    revealed = sample_with_coin(atoms, rate)
    for epsilon in GRID:
        assert revealed.delta(epsilon) == pytest.approx(rate * atoms.delta(epsilon), abs=1e-15)
    assert float(revealed.p.sum()) == pytest.approx(1)


@given(pairs)
def test_reversing_twice_changes_nothing(points):
    atoms = atoms_from(points)
    back = atoms.reverse().reverse()
    assert np.array_equal(back.loss, atoms.loss)
    assert np.array_equal(back.p, atoms.p)


@given(pairs, st.floats(0.5, 6))
def test_cutting_keeps_every_atom_on_one_side(points, threshold):
    atoms = atoms_from(points)
    small, large = atoms.cut(threshold)
    kept = sum(float(part.p.sum()) for part in (small, large) if part is not None)
    assert kept == pytest.approx(1)
    assert small is None or small.loss.max() <= threshold
    assert large is None or large.loss.min() > threshold


@pytest.mark.parametrize("rate", [1e-9, 1e-6, 1e-3])
def test_the_loss_of_a_rarely_sampled_step_keeps_its_digits(rate):
    loss = 1.01
    atoms = LossAtoms(np.array([loss, -loss]), np.array([0.7, 0.3]), np.array([0.3, 0.7]))
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(loss)))
        assert abs(mpmath.mpf(float(sample_removal(atoms, rate).loss[0])) / exact - 1) < 1e-15


@pytest.mark.parametrize("mass", [1e-18, 1.7e-16, 1e-10])
def test_composition_keeps_the_probability_of_an_infinite_loss(mass):
    atoms = LossAtoms(np.zeros(1), np.ones(1), np.ones(1), mass, mass)
    assert convolve(atoms, atoms, "upper", 100).only_p == pytest.approx(2 * mass, rel=1e-9, abs=0)


def test_cells_far_beyond_what_exponentials_hold_are_split_without_losing_mass():
    p, q = np.array([0.0, 1e-300, 0.3, 0.7]), np.array([0.2, 0.3, 0.4, 0.1])
    atoms = split(Cells(p, q, np.array([-2000.0, -800.0, -680.0, 0.5, 900.0])))
    assert atoms.p.sum() == pytest.approx(p.sum())
    assert atoms.q.sum() == pytest.approx(q.sum())
