"""Guesses by weight: closed forms where weights are equal, worst cases that reach the bound, and more strength."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import gdp
from tacit.audit.guessing import one_run
from tacit.audit.weighing import is_worth_weighing, weighed_epsilon, weighed_p_value
from tacit.errors import InvalidArgument


@pytest.mark.parametrize(("right", "epsilon"), [(60, 0.3), (75, 1.0), (95, 2.0)])
def test_guesses_of_one_weight_are_counted(right, epsilon):
    odds = np.where(np.arange(100) % 2 == 0, 3.0, -3.0)
    coins = (odds > 0) == (np.arange(100) < right)
    share = 1 / (1 + math.exp(-epsilon))
    expected = stats.binom.sf(right - 1, 100, share)
    assert weighed_p_value(odds, coins, epsilon, 0.0) == pytest.approx(expected, rel=1e-9)
    # What delta adds: canaries * delta / (1 + e^epsilon).
    more = weighed_p_value(odds, coins, epsilon, 1e-6) - expected
    assert more == pytest.approx(1e-4 / (1 + math.exp(epsilon)), rel=1e-6)


def test_unequal_weights_have_the_distribution_of_coins_thrown():
    # Monte Carlo, 200,000 throws: four standard errors.
    rng = np.random.default_rng(0)
    odds = rng.normal(size=60)
    coins = rng.integers(0, 2, 60).astype(bool)
    epsilon = 0.2
    # No odds are above 60 to one here, so none are cut off.
    weights = np.maximum(np.abs(odds) - epsilon, 0.0)
    assert np.abs(odds).max() < math.log(60)
    thrown = rng.random((200_000, 60)) < 1 / (1 + math.exp(-epsilon))
    share = float(np.mean(thrown @ weights >= weights[(odds > 0) == coins].sum()))
    error = 4 * math.sqrt(share * (1 - share) / 200_000)
    assert weighed_p_value(odds, coins, epsilon, 0.0) == pytest.approx(share, abs=error + 2e-3)


def refutations(game, epsilon, delta, games=600):
    """How many games of so many refute what is true of them, at 95 %."""
    rng = np.random.default_rng(3)
    return sum(weighed_p_value(*game(rng), epsilon, delta) < 0.05 for _ in range(games))


def test_randomised_response_is_refuted_as_often_as_stated_and_no_oftener():
    # The worst there is without a delta. Of 600 games 30 are expected; 52 or more come by chance with probability 1e-4.
    def game(rng):
        coins = rng.integers(0, 2, 200).astype(bool)
        told = coins ^ (rng.random(200) > 1 / (1 + math.exp(-1.0)))
        # Weights that differ, as an attacker may choose them.
        return np.where(told, 1, -1) * (1.0 + rng.exponential(size=200)), coins

    assert 12 < refutations(game, 1.0, 0.0) < 52


def test_what_delta_gives_away_is_allowed_for():
    # Randomised response that now and then tells a coin for certain, and lets the attacker know.
    epsilon, delta = 1.0, 4e-4

    def game(rng):
        coins = rng.integers(0, 2, 200).astype(bool)
        told = coins ^ (rng.random(200) > 1 / (1 + math.exp(-epsilon)))
        odds = np.where(told, 1.0, -1.0) * (1.0 + 0.01 * rng.random(200))
        certain = rng.random(200) < delta
        return np.where(certain, np.where(coins, 1e9, -1e9), odds), coins

    assert refutations(game, epsilon, delta) < 52


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_it_stays_below_the_truth(mu):
    # A Gaussian shift, whose log odds are mu s - mu^2 / 2. A bound may exceed the truth once in a hundred games in the
    # worst case, from which a Gaussian is far.
    rng = np.random.default_rng(4)
    for _ in range(3):
        coins = rng.integers(0, 2, 1000).astype(bool)
        found = one_run(mu * (rng.normal(size=1000) + mu * coins) - mu**2 / 2, coins, delta=1e-5, log_odds=True)
        assert 0 < found.bound.epsilon < gdp.epsilon(1e-5, mu)


def test_it_shows_more_than_counting_where_few_steps_tell_much():
    # A thousand steps at rate 0.004 with multiplier 0.5: ten games of 1,000 canaries, both read off the same scores.
    rate, width, rng = 0.004, 0.5, np.random.default_rng(8)
    gained = []
    for _ in range(10):
        coins = rng.integers(0, 2, 1000).astype(bool)
        seen = rng.normal(size=(1000, 1000)) * width + (coins & (rng.random((1000, 1000)) < rate))
        odds = np.logaddexp(np.log1p(-rate), np.log(rate) + (seen - 0.5) / width**2).sum(axis=0)
        found = one_run(odds, coins, delta=1e-5, log_odds=True)
        gained.append(found.bound.epsilon / found.counted.epsilon)
    assert np.mean(gained) > 1.1


def test_odds_that_are_wrong_cost_strength_only():
    rng = np.random.default_rng(5)
    coins = rng.integers(0, 2, 1000).astype(bool)
    scores = rng.normal(size=1000) + coins - 0.5
    right = weighed_epsilon(scores, coins, delta=1e-5, confidence=0.99)
    for wrong in (10 * scores, 0.1 * scores, scores + 1, np.sign(scores) * np.inf):
        assert weighed_epsilon(wrong, coins, delta=1e-5, confidence=0.99) <= right
    assert weighed_epsilon(rng.permutation(scores), coins, delta=1e-5, confidence=0.99) == 0


def test_all_right_shows_much_and_nothing_shows_nothing():
    coins = np.random.default_rng(6).integers(0, 2, 1000).astype(bool)
    # 0.99 of luck would need a share of right guesses of 0.01^(1/1000) = 0.9954, odds of 216; delta takes a little.
    found = weighed_epsilon(np.where(coins, 50.0, -50.0), coins, delta=1e-5, confidence=0.99)
    assert found == pytest.approx(math.log(216), abs=0.02)
    assert weighed_epsilon(np.zeros(1000), coins, delta=1e-5, confidence=0.99) == 0


def test_guesses_are_counted_where_delta_leaves_no_room():
    assert is_worth_weighing(1000, delta=1e-5, confidence=0.99)
    assert not is_worth_weighing(1000, delta=1e-4, confidence=0.99)
    rng = np.random.default_rng(7)
    coins = rng.integers(0, 2, 1000).astype(bool)
    scores = rng.normal(size=1000) + coins - 0.5
    for settings in ({"delta": 1e-4, "log_odds": True}, {"delta": 1e-5, "log_odds": False}):
        found = one_run(scores, coins, **settings)
        assert found.bound == found.counted


def test_odds_without_coins_are_refused():
    with pytest.raises(InvalidArgument, match="one entry per canary"):
        weighed_epsilon([1.0, 2.0], [True], delta=1e-5, confidence=0.99)
