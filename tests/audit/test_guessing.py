"""Guesses, counted and weighted: closed forms, worst cases that reach the bound, and statistics that hold as stated."""

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from tacit.accounting import Gaussian, curve, gdp
from tacit.audit.guessing import (
    Guesses,
    can_weight,
    curve_epsilon,
    curve_mu,
    guess,
    is_refuted,
    one_run,
    p_value,
    refutes,
    steinke_epsilon,
    weighted_epsilon,
    weighted_p_value,
)
from tacit.errors import InvalidArgument


def test_the_published_bound_of_steinke_nasr_and_jagielski():
    # Their appendix D: 75 of 100 guesses right, 1000 canaries, delta 1e-4, 95 %.
    assert steinke_epsilon(Guesses(1000, 100, 75), delta=1e-4, confidence=0.95) == pytest.approx(0.673, abs=1e-3)
    # And their example without delta: three of four right is as likely as not for epsilon = log 3.
    assert p_value(Guesses(100, 100, 75), np.log(3), 0.0) == pytest.approx(stats.binom.sf(74, 100, 0.75), rel=1e-9)


@pytest.mark.parametrize("right", [60, 75, 95, 100])
def test_without_delta_both_theorems_agree(right):
    # At delta 0 the worst mechanism is randomised response on every coin, for both.
    guesses = Guesses(100, 100, right)
    assert curve_epsilon(guesses, delta=1e-12, confidence=0.95) == pytest.approx(
        steinke_epsilon(guesses, delta=1e-12, confidence=0.95), abs=0.02
    )


def largest_tail(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses, by a linear programme over all distributions of their number.

    For each j: P(a random canary is guessed right, at least j right) <= f-bar(P(it is guessed wrong, at least
    j - 1 right)), where f-bar(x) = min(delta + e^eps x, 1 - e^-eps (1 - delta - x)).
    """
    made, m = guesses.made, guesses.canaries
    number = np.arange(made + 1)
    rows, limits = [], []
    for j in range(1, made + 1):
        hit = np.where(number >= j, number / m, 0.0)
        miss = np.where(number >= j - 1, (made - number) / m, 0.0)
        rows += [hit - np.exp(epsilon) * miss, hit - np.exp(-epsilon) * miss]
        limits += [delta, 1 - np.exp(-epsilon) * (1 - delta)]
    aim = -np.where(number >= guesses.right, 1.0, 0.0)
    found = optimize.linprog(aim, np.array(rows), limits, np.ones((1, made + 1)), [1.0], method="highs")
    assert found.success
    return -found.fun


@pytest.mark.parametrize("guesses", [Guesses(20, 20, 17), Guesses(40, 10, 9), Guesses(60, 30, 24)], ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-3), (1.0, 1e-5), (0.5, 0.02)])
def test_refuted_is_what_no_distribution_of_hits_allows(guesses, epsilon, delta):
    tail = largest_tail(guesses, epsilon, delta)

    def refuted(level: float) -> bool:
        def tradeoff(alpha: float) -> float:
            return float(gdp.epsilon_delta_tradeoff(alpha, epsilon, delta))

        return is_refuted(guesses, tradeoff, 1 - level)

    assert refuted(min(1.02 * tail + 1e-9, 0.999))
    assert not refuted(0.98 * tail)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_a_true_curve_is_refuted_no_oftener_than_stated(mu):
    # 400 games of 100 canaries whose scores are N(0, 1) or N(mu, 1). At 95 % about 20 refutations at most are expected;
    # more than 34 would come by chance with probability 1e-3.
    def tradeoff(alpha: float) -> float:
        return float(special.ndtr(special.ndtri(1 - alpha) - mu))

    rng = np.random.default_rng(0)
    games = []
    for _ in range(400):
        coins = rng.integers(0, 2, 100).astype(bool)
        games.append(guess(rng.normal(size=100) + mu * coins, coins, share=0.4))
    refuted = {guesses: is_refuted(guesses, tradeoff, 0.95) for guesses in set(games)}
    assert sum(refuted[guesses] for guesses in games) <= 34


def test_the_gaussian_estimate_comes_near_the_truth_from_below():
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, 20_000).astype(bool)
    found = one_run(rng.normal(size=20_000) + 0.9 * coins, coins, delta=1e-5, confidence=0.95)
    truth = gdp.epsilon(1e-5, 0.9)
    assert 0.6 * truth < found.gaussian.epsilon < truth
    assert found.bound.epsilon < found.gaussian.epsilon
    assert found.bound.epsilon == pytest.approx(found.steinke.epsilon, rel=0.1)


def test_a_proven_curve_is_refuted_only_where_the_noise_is_too_small():
    rng = np.random.default_rng(2)
    coins = rng.integers(0, 2, 1000).astype(bool)
    proven = curve(Gaussian(1.0))
    honest = guess(rng.normal(size=1000) + 1.0 * coins, coins)
    halved = guess(rng.normal(size=1000) + 2.0 * coins, coins)
    assert not refutes(honest, proven, 0.99)
    assert refutes(halved, proven, 0.99)
    assert curve_mu(halved, confidence=0.99) > 1.0


def test_coins_that_nobody_can_guess_show_nothing():
    rng = np.random.default_rng(3)
    found = one_run(rng.normal(size=1000), rng.integers(0, 2, 1000), delta=1e-5)
    assert found.bound.epsilon == found.steinke.epsilon == found.gaussian.epsilon == 0


def test_more_right_guesses_show_more():
    bounds = [curve_epsilon(Guesses(1000, 100, right), delta=1e-5, confidence=0.99) for right in range(50, 101, 10)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0
    assert bounds[-1] > 2.5


def test_impossible_guesses_are_refused():
    with pytest.raises(InvalidArgument, match="right <= made"):
        Guesses(10, 5, 6)
    with pytest.raises(InvalidArgument, match="one entry per canary"):
        guess([1.0, 2.0], [True])


@pytest.mark.parametrize(("right", "epsilon"), [(60, 0.3), (75, 1.0), (95, 2.0)])
def test_guesses_of_one_weight_are_counted(right, epsilon):
    odds = np.where(np.arange(100) % 2 == 0, 3.0, -3.0)
    coins = (odds > 0) == (np.arange(100) < right)
    share = 1 / (1 + math.exp(-epsilon))
    expected = stats.binom.sf(right - 1, 100, share)
    assert weighted_p_value(odds, coins, epsilon, 0.0) == pytest.approx(expected, rel=1e-9)
    # What delta adds: canaries * delta / (1 + e^epsilon).
    more = weighted_p_value(odds, coins, epsilon, 1e-6) - expected
    assert more == pytest.approx(1e-4 / (1 + math.exp(epsilon)), rel=1e-6)


@pytest.mark.slow
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
    assert weighted_p_value(odds, coins, epsilon, 0.0) == pytest.approx(share, abs=error + 2e-3)


def refutations(game, epsilon, delta, games=600):
    """How many games of so many refute what is true of them, at 95 %."""
    rng = np.random.default_rng(3)
    return sum(weighted_p_value(*game(rng), epsilon, delta) < 0.05 for _ in range(games))


@pytest.mark.slow
def test_randomised_response_is_refuted_as_often_as_stated_and_no_oftener():
    # The worst there is without a delta. Of 600 games 30 are expected; 52 or more come by chance with probability 1e-4.
    def game(rng):
        coins = rng.integers(0, 2, 200).astype(bool)
        told = coins ^ (rng.random(200) > 1 / (1 + math.exp(-1.0)))
        # Weights that differ, as an attacker may choose them.
        return np.where(told, 1, -1) * (1.0 + rng.exponential(size=200)), coins

    assert 12 < refutations(game, 1.0, 0.0) < 52


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_it_stays_below_the_truth(mu):
    # A Gaussian shift, whose log odds are mu s - mu^2 / 2. A bound may exceed the truth once in a hundred games in the
    # worst case, from which a Gaussian is far.
    rng = np.random.default_rng(4)
    for _ in range(3):
        coins = rng.integers(0, 2, 1000).astype(bool)
        found = one_run(mu * (rng.normal(size=1000) + mu * coins) - mu**2 / 2, coins, delta=1e-5, log_odds=True)
        assert 0 < found.bound.epsilon < gdp.epsilon(1e-5, mu)


@pytest.mark.slow
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


@pytest.mark.slow
def test_odds_that_are_wrong_cost_strength_only():
    rng = np.random.default_rng(5)
    coins = rng.integers(0, 2, 1000).astype(bool)
    scores = rng.normal(size=1000) + coins - 0.5
    right = weighted_epsilon(scores, coins, delta=1e-5, confidence=0.99)
    for wrong in (10 * scores, 0.1 * scores, scores + 1, np.sign(scores) * np.inf):
        assert weighted_epsilon(wrong, coins, delta=1e-5, confidence=0.99) <= right
    assert weighted_epsilon(rng.permutation(scores), coins, delta=1e-5, confidence=0.99) == 0


@pytest.mark.slow
def test_all_right_shows_much_and_nothing_shows_nothing():
    coins = np.random.default_rng(6).integers(0, 2, 1000).astype(bool)
    # 0.99 of luck would need a share of right guesses of 0.01^(1/1000) = 0.9954, odds of 216; delta takes a little.
    found = weighted_epsilon(np.where(coins, 50.0, -50.0), coins, delta=1e-5, confidence=0.99)
    assert found == pytest.approx(math.log(216), abs=0.02)
    assert weighted_epsilon(np.zeros(1000), coins, delta=1e-5, confidence=0.99) == 0


def test_guesses_are_counted_where_delta_leaves_no_room():
    assert can_weight(1000, delta=1e-5, confidence=0.99)
    assert not can_weight(1000, delta=1e-4, confidence=0.99)
    rng = np.random.default_rng(7)
    coins = rng.integers(0, 2, 1000).astype(bool)
    scores = rng.normal(size=1000) + coins - 0.5
    for settings in ({"delta": 1e-4, "log_odds": True}, {"delta": 1e-5, "log_odds": False}):
        found = one_run(scores, coins, **settings)
        assert found.bound == found.counted


def test_odds_without_coins_are_refused():
    with pytest.raises(InvalidArgument, match="one entry per canary"):
        weighted_epsilon([1.0, 2.0], [True], delta=1e-5, confidence=0.99)
