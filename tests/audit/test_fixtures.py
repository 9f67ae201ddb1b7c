"""Every fixture does what it is there for, and shows the number that was worked out apart from it."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tacit.accounting import Gaussian, curve, gdp
from tacit.audit.evidence import Kind, LowerBound, Verdict
from tacit.audit.fixtures import Fixture, all_fixtures, bu, gradient, nasr, wang, xiang
from tacit.audit.fixtures.bu import composed_epsilon
from tacit.audit.given import NAME, Releases, sum_rows
from tacit.errors import InvalidArgument
from tacit.guarantee import Claim
from tacit.methods import noisy_sgd
from tacit.methods.gradient_perturbation import wang_2017_least_constant
from tacit.methods.registry import list_methods
from tacit.randomness import Purpose, SeededSource
from tacit.stages.noise.published import noise_shape
from tacit.stages.sampling import FullBatch

# Simulated ones take seconds; they are run by the tests of their methods.
FIXTURES = [one for one in all_fixtures() if one.kind is not Kind.SIMULATED]
BY_NAME = {one.name: one for one in FIXTURES}


@pytest.mark.slow
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: f"{one}: {one.name}")
def test_what_is_to_break_breaks_and_what_is_proven_holds(fixture):
    report = fixture.run()
    bound = report.finding.bound
    assert bound.is_certain
    assert fixture.is_as_expected(report)
    assert report.verdict is (Verdict.BROKEN if fixture.breaks else Verdict.STANDS)
    assert bound.epsilon <= fixture.proven
    assert (report.claimed, report.source) == (fixture.claim.epsilon, fixture.claim.source)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rigorous", "paper"])
@pytest.mark.parametrize("method", [one.name for one in list_methods()])
def test_every_method_is_attacked_in_each_of_its_modes(method, mode):
    rows = [one for one in all_fixtures() if (one.method, one.mode) == (method, mode)]
    assert rows, f"Add a fixture for {method} in {mode} form: tacit audit --claims would be silent about it."
    # What is run unless something else is asked for is proven, so some attack on it must be expected to fail.
    assert mode == "paper" or not all(one.breaks for one in rows)


def test_what_a_paper_has_wrong_is_expected_to_break():
    broken = {one.method for one in all_fixtures() if one.mode == "paper" and one.breaks}
    assert broken >= {one.name for one in list_methods() if one.status == "refuted"}


@pytest.mark.slow
def test_an_attack_on_what_is_proven_sees_some_of_it_and_not_more():
    fixture = next(one for one in gradient.FIXTURES if str(one) == "dpsgd")
    report = fixture.run()
    # Three releases at mu = 1 have mu = 1.73, and epsilon 8.39.
    assert report.proven == pytest.approx(gdp.epsilon(1e-5, math.sqrt(3)), rel=1e-4)
    assert 0.5 < report.finding.bound.epsilon < report.proven
    assert report.finding.points
    assert fixture.is_as_expected(report)


def test_names_are_told_apart():
    fixtures = all_fixtures()
    assert len({(str(one), one.name) for one in fixtures}) == len(fixtures)
    assert {one.method for one in fixtures} == {one.name for one in list_methods()}


def test_steady_gradients_need_the_constant_that_was_worked_out():
    # With the least constant that keeps the claim, the shift is the mu of the claim.
    constant = wang_2017_least_constant(1.0, 1e-5)
    assert wang.steady_shift() == pytest.approx(math.sqrt(constant) * gdp.mu(1.0, 1e-5), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon", "tolerance"),
    [
        ("one against all others", 12.955, 0.03),  # 12.927 rounded down, 12.955 to the nearest
        ("a limit taken for the truth", 2.3816, 1e-4),
        ("along the least noise", 2.3047198, 1e-6),
        ("one that turns the mean", 0.1779309, 1e-6),
        ("few epochs at a large epsilon", 2.16, 5e-3),
        ("an example that fills the box", 2.6085, 2e-4),
        ("one that turns its bucket", gdp.epsilon(1e-5, 0.2), 1e-9),
        ("a lot that is cut elsewhere", gdp.epsilon(1e-5, 0.9), 1e-9),
    ],
)
def test_fixtures_show_the_worked_numbers(name, epsilon, tolerance):
    assert BY_NAME[name].run().finding.bound.epsilon == pytest.approx(epsilon, abs=tolerance)


def test_one_step_against_all_others_has_the_worked_delta():
    with_it, without = bu.mean_cells()
    excess = max(np.maximum(a - math.exp(0.5) * b, 0.0).sum() for a, b in ((with_it, without), (without, with_it)))
    assert excess == pytest.approx(4.0473e-5, rel=0.01)
    # With the public denominator the same step has next to nothing there.
    assert curve(Gaussian(1.1).sampled(256 / 60_000)).delta(0.5) == pytest.approx(1.1624e-10, rel=1e-3)


@pytest.mark.slow
def test_cells_of_the_mean_are_those_of_the_mechanism_itself():
    # 3,000 releases by the stages, with and without the odd one, all lots complete: Kolmogorov-Smirnov at 1e-3.
    mechanism = noisy_sgd(clip_norm=1.0, multiplier=1.1, mode="paper")
    rng = np.random.default_rng(0)
    for with_it in (False, True):
        counts = rng.binomial(600, 0.1, 3000)
        values = []
        for run, count in enumerate(counts):
            rows = [[1.0]] * int(count) + ([[-1.0]] if with_it else [])
            noise = SeededSource(run + 10_000 * with_it).stream(Purpose.NOISE, 0)
            values.append(float(mechanism.noise.add(sum_rows(mechanism.bound, rows, 1), noise)[NAME]))
        support = np.arange(20, 110)
        means, deviations = bu._laws(support, mechanism, with_it)
        weights = stats.binom.pmf(support, 600, 0.1)

        def distribution(x, means=means, deviations=deviations, weights=weights):
            return stats.norm.cdf((np.asarray(x)[..., None] - means) / deviations) @ weights

        assert stats.kstest(values, distribution).pvalue > 1e-3


def test_composing_cells_from_below_comes_close_to_the_certified_bounds():
    x = np.linspace(-12, 13, 8001)
    without = np.diff(stats.norm.cdf(x))
    with_it = 0.99 * without + 0.01 * np.diff(stats.norm.cdf(x, loc=1.0))
    lower, upper = curve(Gaussian(1.0).sampled(0.01) * 500).epsilon_bounds(1e-5)
    found = composed_epsilon(with_it, without, 500, 1e-5)
    assert lower - 0.01 < found <= upper


@pytest.mark.parametrize(("claimed", "truth"), [(0.5, 12.308), (1.0, 46.911), (2.0, 179.05)])
def test_in_many_dimensions_a_fixed_direction_shows_what_was_worked_out(claimed, truth):
    # w is normal: the first coordinate is integrated over, the other 4,000 are normal quantiles.
    others = torch.from_numpy(stats.norm.ppf((np.arange(4000) + 0.5) / 4000))
    root = math.sqrt(xiang.tau(claimed, 1e-5, 1))
    nodes = np.concatenate([np.geomspace(1e-9, 1e-2, 800), np.linspace(1e-2, 6, 200)[1:]])
    shapes = [float(noise_shape({NAME: torch.cat([torch.tensor([z]), others])})[NAME][0]) for z in nodes]
    deltas = [float(gdp.delta(truth, root / shape)) for shape in shapes]
    found = integrate.simpson(2 * stats.norm.pdf(nodes) * deltas, x=nodes)
    assert found == pytest.approx(1e-5, rel=0.05)


def test_chunks_move_by_nine_vectors_and_buckets_by_two():
    assert nasr.chunked_sum(nasr._GRADIENTS) == 5.0
    assert nasr.chunked_sum(nasr._GRADIENTS[1:]) == -4.0
    assert nasr.bucket_shift() == 2.0


def test_supports_of_pruned_releases_never_overlap():
    assert xiang.supports(with_it=True, runs=50) == {(0,)}
    assert xiang.supports(with_it=False, runs=50) == {(1,)}


def test_a_fixture_that_answers_another_question_is_refused():
    claim = Claim(1.0, 1e-5, "nobody")
    wrong = Fixture("wrong", "none", claim, Kind.EXACT, "", lambda: LowerBound(2.0, 1e-6))
    with pytest.raises(InvalidArgument, match="at delta 1e-05"):
        wrong.run()


def test_releases_repeat_with_their_seed_and_differ_without():
    releases = Releases(noisy_sgd(1.0, 1.0), FullBatch(population=4), steps=2)
    data = (np.eye(4), np.zeros(4))
    torch.manual_seed(1)
    first, second = releases(data), releases(data)
    torch.manual_seed(1)
    assert torch.equal(releases(data), first)
    assert not torch.equal(first, second)
