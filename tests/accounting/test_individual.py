"""Individual filters: nobody spends more than the budget, whatever they contribute; what they spent stays private."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, RenyiProfile, curve, gdp
from tacit.accounting.individual import ExampleCosts, GaussianFilter, RenyiFilter, filter_mu, renyi_budget
from tacit.errors import InvalidArgument, NotAchievable

WORKED = GaussianFilter(mu=0.5, std=10.0)


FILTERS = [
    WORKED,
    GaussianFilter(mu=0.5, std=10.0, shrink=False),
    RenyiFilter.best(epsilon=1.0, delta=1e-5, std=3.0, rate=0.1, clip_norm=1.0),
    RenyiFilter.best(epsilon=0.5, delta=1e-6, std=20.0, rate=1.0, clip_norm=1.0),
]


@pytest.mark.parametrize(("norm", "cost", "steps"), [(1.0, 0.01, 25), (0.5, 0.0025, 100), (0.2, 0.0004, 625)])
def test_small_contributions_last_longer(norm, cost, steps):
    assert WORKED.cost(np.array([norm])) == pytest.approx(cost)
    assert WORKED.steps(norm) == steps
    for shrink in (True, False):
        judge = GaussianFilter(0.5, 10.0, shrink)
        spent, taken = judge.start(1), 0
        while judge.admit(np.array([norm]), spent)[0][0] == 1.0:
            _, spent = judge.admit(np.array([norm]), spent)
            taken += 1
        assert taken == steps


def test_the_budget_is_what_the_transcript_costs():
    assert curve(WORKED.event).epsilon(1e-5) == pytest.approx(1.9930914044151182, rel=1e-7)
    assert WORKED.event.adjacency is Adjacency.ADD_REMOVE


@pytest.mark.parametrize("judge", FILTERS, ids=str)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_nobody_ever_spends_more_than_the_budget(judge, seed):
    """Contributions of any length, chosen after seeing everything so far."""
    rng = np.random.default_rng(seed)
    spent = judge.start(20)
    exact = np.zeros(20)
    for _ in range(80):
        norms = rng.choice([0.0, 1e-3, 0.3, 1.0], 20) * rng.random(20) ** rng.choice([0, 1])
        factors, spent = judge.admit(norms, spent)
        assert np.all((factors >= 0) & (factors <= 1))
        if isinstance(judge, GaussianFilter):
            exact += (factors * norms / judge.std) ** 2
        else:
            exact += judge.divergence(factors * norms)
    assert exact.max() <= judge.budget * (1 + 1e-8)
    assert np.all(spent.for_curator() >= exact * (1 - 1e-12))


@pytest.mark.parametrize("judge", FILTERS, ids=str)
def test_one_examples_budget_is_no_business_of_anothers(judge):
    rng = np.random.default_rng(0)
    norms = rng.random((60, 4))
    together, alone = judge.start(4), judge.start(1)
    for row in norms:
        factors, together = judge.admit(row, together)
        factor, alone = judge.admit(row[:1], alone)
        assert factors[0] == factor[0]


@pytest.mark.parametrize("judge", FILTERS, ids=str)
def test_whoever_has_left_stays_out(judge):
    spent = judge.start(1)
    for _ in range(5000):
        factors, spent = judge.admit(np.array([1.0]), spent)
    assert factors[0] == 0
    assert judge.admit(np.array([1e-3]), spent)[0][0] == 0


def test_what_goes_over_is_shrunk_to_what_is_left():
    judge = GaussianFilter(mu=0.5, std=1.0)
    spent = judge.start(1)
    _, spent = judge.admit(np.array([0.3]), spent)
    factors, spent = judge.admit(np.array([1.0]), spent)
    assert factors[0] == pytest.approx(0.4)
    assert judge.admit(np.array([1.0]), spent)[0][0] == pytest.approx(0.0, abs=1e-4)


def test_or_dropped():
    judge = GaussianFilter(mu=0.5, std=1.0, shrink=False)
    _, spent = judge.admit(np.array([0.3]), judge.start(1))
    factors, spent = judge.admit(np.array([1.0]), spent)
    assert factors[0] == 0
    assert judge.admit(np.array([0.1]), spent)[0][0] == 0


@pytest.mark.parametrize("judge", FILTERS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_contribution_that_is_no_number_is_left_out(judge, bad):
    factors, _ = judge.admit(np.array([bad, 0.5]), judge.start(2))
    assert factors.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("order", [2, 5, 40])
@pytest.mark.parametrize("norm", [0.1, 0.5, 1.0])
def test_divergences_are_those_of_the_accountant(rate, order, norm):
    judge = RenyiFilter(epsilon=50.0, delta=1e-5, order=order, std=4.0, rate=rate, clip_norm=3.0)
    expected = RenyiProfile.of(Gaussian(4.0 / norm).sampled(rate)).divergence(order)
    assert judge.divergence(np.array([norm]))[0] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_the_table_never_charges_less_than_the_divergence(rate):
    judge = RenyiFilter(epsilon=50.0, delta=1e-5, order=30, std=2.0, rate=rate, clip_norm=1.0)
    norms = np.linspace(0, 1, 9973)
    exact, charged = judge.divergence(norms), judge.cost(norms)
    assert np.all(charged >= exact)
    assert charged == pytest.approx(exact, rel=1e-3, abs=1e-9)


def test_a_renyi_budget_converts_back_to_its_epsilon():
    for order in (2, 10, 64):
        budget = renyi_budget(3.0, 1e-5, order)
        back = budget + math.log((order - 1) / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        assert back == pytest.approx(3.0)


def test_the_best_order_is_the_one_that_lasts_longest():
    chosen = {"epsilon": 1.0, "delta": 1e-5, "std": 3.0, "rate": 0.1, "clip_norm": 1.0}
    best = RenyiFilter.best(**chosen)
    assert best.budget == renyi_budget(1.0, 1e-5, best.order)
    for order in (best.order - 1, best.order + 1):
        assert RenyiFilter(order=order, **chosen).lasts <= best.lasts
    # An example of full norm gets nearly as far as a fixed schedule by Rényi accounting would.
    steps = math.floor(best.lasts)
    event = Gaussian(3.0).sampled(0.1) * steps
    assert curve(event, by="rdp").epsilon(1e-5) == pytest.approx(1.0, rel=0.02)


def test_orders_that_leave_nothing_are_refused():
    with pytest.raises(NotAchievable, match="nothing is left of epsilon"):
        RenyiFilter(epsilon=0.1, delta=1e-5, order=2, std=1.0, rate=0.1, clip_norm=1.0)
    with pytest.raises(NotAchievable, match="Raise epsilon"):
        RenyiFilter.best(epsilon=1e-3, delta=1e-12, std=1.0, rate=0.1, clip_norm=1.0)


def test_a_renyi_transcript_costs_epsilon_and_delta():
    judge = RenyiFilter(epsilon=1.0, delta=1e-5, order=20, std=3.0, rate=0.1, clip_norm=1.0)
    assert judge.event == EpsilonDelta(1.0, 1e-5, Adjacency.ADD_REMOVE)


def test_contributions_must_be_clipped_before_they_are_charged():
    judge = FILTERS[2]
    with pytest.raises(InvalidArgument, match="longer than clip_norm"):
        judge.admit(np.array([1.5]), judge.start(1))


def test_everyone_is_charged_in_every_step():
    """A norm per example, drawn or not: charging only those that were drawn would void the proof."""
    judge = FILTERS[2]
    with pytest.raises(InvalidArgument, match="drawn or not: 3 of them"):
        judge.admit(np.array([0.5, 0.5]), judge.start(3))
    _, spent = judge.admit(np.full(3, 0.5), judge.start(3))
    assert np.all(spent.for_curator() > 0)


def test_replacing_an_example_takes_half_the_budget_each_way():
    whole, half = (filter_mu(1.0, 1e-5, adjacency) for adjacency in Adjacency)
    assert whole == pytest.approx(gdp.mu(1.0, 1e-5))
    assert half == pytest.approx(whole / 2)


def test_what_was_spent_is_neither_shown_nor_saved_by_accident():
    spent = ExampleCosts(np.array([0.123456, 0.5]))
    assert "0.123456" not in repr(spent)
    assert repr(spent) == "ExampleCosts(2 examples, private)"
    for save in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="private"):
            save(spent)
    numbers = spent.for_curator()
    numbers[:] = 0
    assert spent.for_curator()[1] == 0.5


def test_an_attacker_who_adapts_gains_nothing_over_the_budget():
    """The exact divergence of two releases, the second chosen by the first: never above mu-GDP's.

    The attacker spends 0.6 of the budget on a first bit, then either all the rest or nothing, by its outcome.
    """
    mu, first = 1.0, 0.6
    grid = np.linspace(-12, 12, 4801)
    cell = grid[1] - grid[0]
    normal = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    shifted = np.exp(-((grid - first) ** 2) / 2) / math.sqrt(2 * math.pi)
    judge = GaussianFilter(mu=mu, std=1.0)
    _, spent = judge.admit(np.array([first]), judge.start(1))
    rest = judge.admit(np.array([10.0]), spent)[0][0] * 10.0
    for epsilon in (0.3, 1.0, 2.5):
        # After the first outcome the second contributes delta(epsilon - loss so far) of a Gaussian of what is left.
        loss = np.log(shifted / normal)
        stays = np.maximum(1 - np.exp(epsilon - loss), 0.0)
        goes_on = np.array([gdp.delta(float(e), rest) for e in epsilon - loss[::20]])
        spread = np.interp(grid, grid[::20], goes_on)
        delta = np.sum(shifted * np.where(grid > 0.5, spread, stays)) * cell
        assert delta <= gdp.delta(epsilon, mu) * (1 + 1e-3)
