"""The pairs of data sets that break the claims of Kang et al.: the bounds are the published ones."""

import itertools
import math

import numpy as np
import pytest

from tacit.audit import Verdict, all_fixtures
from tacit.audit.fixtures import kang_2020, kang_2021
from tacit.erm.losses import Logistic
from tacit.erm.noisy_data import Descent, with_rows
from tacit.erm.problem import prepare

FIXTURES = {one.name: one for one in (*kang_2020.FIXTURES, *kang_2021.FIXTURES)}
GAPS = {
    "label": 0.1,
    "balanced": 1.0,
    "balanced_lots": 0.02593335462255351,
    "alg2_deterministic": 1.0,
    "input_balanced": 1,
}


@pytest.mark.parametrize("name", GAPS)
def test_where_a_claim_is_broken_exactly_delta_is_the_published_one(name):
    report = FIXTURES[name].run()
    bound = report.finding.bound
    assert bound.gap == pytest.approx(GAPS[name], rel=1e-12)
    assert math.isinf(bound.epsilon)
    assert bound.is_certain
    assert report.verdict is Verdict.BROKEN


@pytest.mark.parametrize(("name", "epsilon"), [("shift", 24.084542048799182), ("averages_out", 1.000743325799716)])
def test_where_noise_averages_out_epsilon_is_the_published_one(name, epsilon):
    report = FIXTURES[name].run()
    assert report.finding.bound.epsilon == pytest.approx(epsilon, rel=1e-5)
    assert report.verdict is Verdict.BROKEN


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("input_balanced_many_steps", 3.5), ("shift_many_steps", 0.6)])
def test_a_simulated_attack_shows_more_than_is_claimed(name, least):
    # At 99 % confidence, with a fixed seed.
    report = FIXTURES[name].run()
    assert report.finding.bound.confidence == 0.99
    assert report.finding.bound.epsilon > least
    assert report.verdict is Verdict.BROKEN


@pytest.mark.parametrize(("constant", "least"), [(10.0, 3.0), (100.0, 0.5)])
def test_more_noise_does_not_save_the_shared_reading(constant, least, monkeypatch):
    usual = kang_2020.kang_2020_std
    monkeypatch.setattr(kang_2020, "kang_2020_std", lambda **settings: usual(constant=constant, **settings))
    assert kang_2020.many_steps("shared", 100, 50, 8_000).epsilon > least


def test_six_examples_have_the_published_outcomes():
    here, there = (kang_2021._points(x) for x in (kang_2021.SIX, kang_2021.SIX_REPLACED))
    assert len(here) == 5  # two of the six examples are alike
    assert len(there) == 6
    apart = min(math.dist(a, b) for a, b in itertools.product(here, there))
    assert apart == pytest.approx(0.040297206425012146, abs=1e-7)


def test_many_descents_at_once_are_one_descent_each():
    x, y = np.random.default_rng(1).normal(size=(20, 2)) / 4, np.repeat([1.0, -1.0], 10)
    found = kang_2020.descend_many(x, y, 0.0, "per_example", 9, 3, np.random.default_rng(0))
    problem = prepare(x, y, loss=Logistic(), regularisation=kang_2020.STRONG_CONVEXITY, data_norm=1.0, intercept=False)
    single = Descent(steps=9, step_size=1.0).fit(with_rows(problem, x, intercept=False), None)
    assert found == pytest.approx(np.tile(single.ravel(), (3, 1)), rel=1e-5)


@pytest.mark.slow
def test_the_fixtures_are_found_by_the_audit():
    assert set(FIXTURES) <= {one.name for one in all_fixtures()}
