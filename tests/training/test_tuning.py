"""Random search: the price is that of the theorem, the best is kept and nothing else, and the ledger knows."""

import math

import numpy as np
import pytest

import tacit
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, curve
from tacit.accounting.selection import BestOf, TruncatedNegativeBinomial
from tacit.budget import Budget
from tacit.errors import AdjacencyMismatch, BudgetExceeded, InvalidArgument, NotProven, OutOfOrder
from tacit.guarantee import FIXED_SEED, Guarantee
from tacit.ledger import Ledger
from tacit.training.tuning import Choices, LogUniform, Search, Trial, combinations, scaled_to, tune

GEOMETRIC = TruncatedNegativeBinomial.with_mean(4)
SPACE = {"rate": LogUniform(0.1, 10.0), "steps": Choices((10, 20))}


def cost(settings):
    return Gaussian(30.0) * settings["steps"]


def trial(settings, score=None):
    """A trial that is no training at all: its score is its rate."""
    return Trial(settings["rate"] if score is None else score, settings, Guarantee(cost(settings), 1e-5))


def test_the_whole_search_costs_what_the_dearest_trial_would_as_the_best_of_many():
    search = Search(SPACE, cost, GEOMETRIC)
    assert search.event(1e-6) == EpsilonDelta(BestOf(Gaussian(30.0) * 20, GEOMETRIC).epsilon(1e-6), 1e-6)
    assert curve(Gaussian(30.0) * 20).epsilon(1e-6) < search.event(1e-6).epsilon
    assert search.event(1e-6).epsilon < curve(Gaussian(30.0) * 20 * 4).epsilon(1e-6)


def test_prices_that_cross_each_other_are_bounded_by_both():
    """One event is dearer at small deltas, the other at large ones: the bound is above that of each."""
    often, rare = Gaussian(5.0), Gaussian(0.9).sampled(0.01)
    assert (curve(often).delta(0.2) > curve(rare).delta(0.2)) != (curve(often).delta(3.0) > curve(rare).delta(3.0))
    both = BestOf(often, GEOMETRIC, (rare,))
    for delta in (1e-3, 1e-7):
        assert both.epsilon(delta) >= max(BestOf(one, GEOMETRIC).epsilon(delta) for one in (often, rare))
    with pytest.raises(AdjacencyMismatch):
        BestOf(often, GEOMETRIC, (Gaussian(1.0, Adjacency.REPLACE_ONE),))


def attained(repetitions, shifts, delta):
    """The exact epsilon where each run draws one of these Gaussian mechanisms at random, and the largest is best.

    The mechanism that was drawn is part of the outcome.
    """
    y = np.linspace(-12, 14, 130_001)
    step = y[1] - y[0]
    sums = {}
    for moved in (0, 1):
        densities = [np.exp(-((y - moved * shift) ** 2) / 2) / math.sqrt(2 * math.pi) for shift in shifts]
        below = np.cumsum(np.mean(densities, axis=0)) * step
        often = repetitions.mean * (
            repetitions.gamma / (repetitions.gamma + (1 - repetitions.gamma) * (1 - below).clip(0))
        ) ** (1 + repetitions.shape)
        sums[moved] = np.array([one * often / len(shifts) for one in densities])
    low, high = 0.0, 20.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        pairs = ((sums[0], sums[1]), (sums[1], sums[0]))
        found = max(float(np.maximum(p - math.exp(middle) * q, 0).sum()) * step for p, q in pairs)
        low, high = (middle, high) if found > delta else (low, middle)
    return high


@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_no_price_lies_below_what_a_search_over_two_mechanisms_attains(shape):
    repetitions, shifts = TruncatedNegativeBinomial.with_mean(6, shape), (1.0, 0.4)
    best = BestOf(Gaussian(1 / shifts[0]), repetitions, (Gaussian(1 / shifts[1]),))
    for delta in (1e-2, 1e-4):
        assert 0.3 < attained(repetitions, shifts, delta) <= best.epsilon(delta)


def test_the_best_is_released_with_a_guarantee_about_all():
    seen = []

    def noted(settings):
        seen.append(settings)
        return trial(settings)

    tuned = tune(noted, Search(SPACE, cost, TruncatedNegativeBinomial.with_mean(30)), delta=1e-6, seed=1)
    assert len(seen) > 1
    assert tuned.settings == max(seen, key=lambda one: one["rate"]) == tuned.outcome
    assert tuned.guarantee.event == Search(SPACE, cost, TruncatedNegativeBinomial.with_mean(30)).event(1e-6)
    assert tuned.guarantee.violations == (FIXED_SEED,)
    assert "secret_trials" in {one.key for one in tuned.guarantee.assumptions}
    # How many there were is no part of what comes out: another search of another length says the same.
    again = tune(trial, Search(SPACE, cost, TruncatedNegativeBinomial.with_mean(30)), delta=1e-6, seed=2)
    assert again.guarantee == tuned.guarantee


def test_a_score_that_is_no_number_is_the_worst_and_the_first_of_equals_wins():
    scores = iter([math.nan, 2.0, math.nan, 2.0, *[1.0] * 500])
    made = []

    def scored(settings):
        made.append(settings)
        return trial(settings, next(scores))

    tuned = tune(scored, Search(SPACE, cost, TruncatedNegativeBinomial.with_mean(50)), delta=1e-6, seed=1)
    assert len(made) > 3
    assert tuned.outcome == made[1]


def test_the_number_of_trials_follows_its_law_and_settings_their_space():
    """600 searches of 4 on average: a mean of 4 with sd 0.14, so five of these is one false alarm in two million."""
    numbers, rates, steps = [], [], []
    search = Search(SPACE, cost, GEOMETRIC)
    for _ in range(600):
        before = len(rates)

        def noted(settings):
            rates.append(math.log10(settings["rate"]))
            steps.append(settings["steps"])
            return trial(settings)

        tune(noted, search, delta=1e-6)
        numbers.append(len(rates) - before)
    assert min(numbers) == 1
    assert np.mean(numbers) == pytest.approx(4, abs=0.71)
    # Uniform on (-1, 1): some 2400 draws, sd 0.012; and a fair coin, sd 0.01.
    assert -1 <= min(rates) < -0.98 < 0.98 < max(rates) <= 1
    assert np.mean(rates) == pytest.approx(0, abs=0.06)
    assert np.mean(np.array(steps) == 10) == pytest.approx(0.5, abs=0.05)


def test_the_search_is_charged_once_before_its_first_trial(tmp_path):
    ledger = Ledger(tmp_path / "data.ledger")
    ledger.set_budget("data", Budget(3, 1e-5))
    search = Search(SPACE, cost, GEOMETRIC)
    seen = []

    def noted(settings):
        seen.append([charge.event for charge in ledger.account("data").charges])
        return trial(settings)

    tune(noted, search, delta=1e-6, ledger=ledger, dataset="data", about={"method": "means"})
    assert seen[0] == [search.event(1e-6)]
    [charge] = ledger.account("data").charges
    assert charge.event == search.event(1e-6)
    assert charge.about["method"] == "means"
    assert charge.about["trials_on_average"] == pytest.approx(4)


def test_a_search_that_is_too_much_makes_no_trial(tmp_path):
    ledger = Ledger(tmp_path / "data.ledger")
    ledger.set_budget("data", Budget(0.5, 1e-5))
    with pytest.raises(BudgetExceeded, match="Lower epsilon to"):
        tune(lambda _: pytest.fail("tried"), Search(SPACE, cost), delta=1e-6, ledger=ledger, dataset="data")
    with pytest.raises(InvalidArgument, match="by name"):
        tune(lambda _: pytest.fail("tried"), Search(SPACE, cost), delta=1e-6, ledger=ledger)


def test_a_trial_that_cost_something_else_than_was_charged_is_refused():
    def dearer(settings):
        return Trial(1.0, None, Guarantee(Gaussian(29.0) * settings["steps"], 1e-5))

    with pytest.raises(OutOfOrder, match="the search was charged for"):
        tune(dearer, Search(SPACE, cost), delta=1e-6)

    def by_range(settings):
        return Gaussian(30.0 * settings["rate"])

    with pytest.raises(OutOfOrder, match="not on ranges"):
        tune(lambda s: Trial(1.0, None, Guarantee(by_range(s), 1e-5)), Search(SPACE, by_range), delta=1e-6)


def test_what_is_not_proven_cannot_be_tuned():
    from tacit.accounting import Unproven

    with pytest.raises(NotProven):
        tune(trial, Search(SPACE, lambda _: Unproven("(1, 0)-DP", "nobody has shown it")), delta=1e-6)


def noisier(factor):
    return [Gaussian(5.0 * factor).sampled(0.1) * 50, Gaussian(9.0 * factor).sampled(0.2) * 80]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 0.5])
def test_noise_is_found_with_which_the_search_costs_the_budget_and_hardly_less(epsilon):
    first, *others = noisier(scaled_to(noisier, GEOMETRIC, Budget(epsilon, 1e-5)))
    assert 0.99 * epsilon < BestOf(first, GEOMETRIC, tuple(others)).epsilon(1e-5) <= epsilon


@pytest.mark.slow
def test_a_search_never_has_less_noise_than_a_single_trial_would():
    assert 1 <= scaled_to(noisier, GEOMETRIC, Budget(3, 1e-5)) < 1.001


def test_a_plain_grid_over_runs_on_one_ledger_adds_up(tmp_path):
    """Five runs that were looked at cost five; the best of five on average costs less than two."""
    import torch

    ledger = Ledger(tmp_path / "data.ledger")
    data = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    step = Gaussian(30.0)
    for rate in (0.01, 0.1, 1.0, 10.0, 100.0):
        run = tacit.PrivateRun(
            torch.nn.Linear(3, 2),
            torch.nn.functional.cross_entropy,
            data=data,
            mechanism=tacit.methods.dpsgd(1.0, 30.0),
            sampling=tacit.FullBatch(40),
            steps=4,
            ledger=ledger,
            dataset="data",
        )
        optimizer = torch.optim.SGD(run.model.parameters(), lr=rate)
        for lot in run:
            run.backward(lot)
            optimizer.step()
    assert ledger.account("data").total == step * 20
    grid = ledger.account("data").epsilon(1e-5)
    assert grid == pytest.approx(curve(step * 20).epsilon(1e-5))
    alone = curve(step * 4).epsilon(1e-5)
    tuned = BestOf(step * 4, TruncatedNegativeBinomial.with_mean(5)).epsilon(1e-5)
    assert alone < tuned < 2 * alone < grid


def test_combinations_hold_every_choice_once():
    assert combinations(SPACE) == [{"rate": 0.1, "steps": 10}, {"rate": 0.1, "steps": 20}]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Choices(()),
        lambda: LogUniform(0.0, 1.0),
        lambda: LogUniform(2.0, 1.0),
        lambda: LogUniform(1.0, math.inf),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()
