"""One run, many coins: published numbers, a linear programme that decides the same, and simulated truths."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from tacit.accounting import Gaussian, curve, gdp
from tacit.audit.guessing import (
    Guesses,
    curve_epsilon,
    curve_mu,
    guess,
    is_refuted,
    one_run,
    p_value,
    refutes,
    steinke_epsilon,
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
