"""What every accountant owes: one suite over all of them."""

import math

import pytest

from tacit.accounting import ACCOUNTANTS, Adaptive, Gaussian, Laplace, Unproven, curve, gdp
from tacit.errors import InvalidArgument, NotProven

DELTA = 1e-5
BOUNDING = [by for by in ACCOUNTANTS if by != "clt"]
WRAPPERS = {
    "bare": lambda event: event,
    "sampled": lambda event: event.sampled(0.1),
    "repeated": lambda event: event * 3,
    "composed": lambda event: Gaussian(1.0) + event,
    "deep": lambda event: (Gaussian(1.0) + (event.sampled(0.5) * 2 + Gaussian(2.0))).sampled(0.1) * 7,
}


def sampled(multiplier=1.1, rate=0.01, steps=500):
    return Gaussian(multiplier).sampled(rate) * steps


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_more_steps_cost_more(by):
    spent = [curve(sampled(steps=steps), by=by).epsilon(DELTA) for steps in (10, 100, 1000, 10_000)]
    assert spent == sorted(spent)
    assert spent[0] < spent[-1]


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_more_noise_costs_less(by):
    spent = [curve(sampled(multiplier), by=by).epsilon(DELTA) for multiplier in (8.0, 4.0, 2.0, 1.0, 0.5)]
    assert spent == sorted(spent)


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_larger_lots_cost_more(by):
    spent = [curve(sampled(rate=rate), by=by).epsilon(DELTA) for rate in (0.001, 0.01, 0.1)]
    assert spent == sorted(spent)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_what_is_unproven_is_refused_wherever_it_stands(by, wrap):
    with pytest.raises(NotProven, match="claimed to be private, but nobody has shown it"):
        curve(wrap(Unproven("private", "nobody has shown it")), by=by)
    with pytest.raises(NotProven, match="chosen after seeing earlier releases"):
        curve(wrap(Adaptive(Gaussian(1.0))), by=by)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("by", BOUNDING)
def test_no_bound_lies_below_the_exact_answer(by, multiplier):
    exact = gdp.epsilon(DELTA, math.sqrt(10) / multiplier)
    assert curve(Gaussian(multiplier) * 10, by=by).epsilon(DELTA) >= exact * (1 - 1e-13)
    one_step = math.log1p(0.2 * math.expm1(gdp.epsilon(DELTA / 0.2, 1 / multiplier)))
    assert curve(Gaussian(multiplier).sampled(0.2), by=by).epsilon(DELTA) >= one_step * (1 - 1e-12)


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_nothing_done_costs_nothing(by):
    assert curve(sampled() * 0, by=by).epsilon(DELTA) == 0
    assert curve(sampled() * 0, by=by).delta(0.1) == 0


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_the_order_of_composition_does_not_matter(by):
    one, other = sampled(1.0, 0.01, 300), sampled(2.0, 0.05, 100)
    assert curve(one + other, by=by).epsilon(DELTA) == curve(other + one, by=by).epsilon(DELTA)


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_repeating_is_composing_with_itself(by):
    thrice = curve(sampled(steps=3), by=by).epsilon(DELTA)
    assert curve(sampled(steps=1) + sampled(steps=2), by=by).epsilon(DELTA) == pytest.approx(thrice, rel=1e-12)


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_delta_falls_as_epsilon_grows(by):
    privacy = curve(sampled(), by=by)
    deltas = [privacy.delta(epsilon) for epsilon in (0.0, 0.5, 1.0, 2.0)]
    assert deltas == sorted(deltas, reverse=True)
    assert 0 <= deltas[-1] <= deltas[0] <= 1


@pytest.mark.parametrize("by", BOUNDING)
def test_every_bound_lies_above_the_certified_lower_bound(by):
    for event in (sampled(), sampled(0.6, 0.004, 5000)):
        assert curve(event, by=by).epsilon(DELTA) >= curve(event).epsilon_bounds(DELTA)[0]


@pytest.mark.parametrize("by", ["pld", "rdp"])
def test_pure_noise_never_costs_more_than_its_pure_bound(by):
    assert curve(Laplace(2.0) * 4, by=by).epsilon(DELTA) <= 4 * 0.5 * (1 + 1e-12)


def test_an_unknown_accountant_is_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"by must be one of 'pld', 'rdp', 'moments', 'clt'\. Got 'magic'"):
        curve(Gaussian(1.0), by="magic")


def test_what_is_no_event_is_refused():
    with pytest.raises(InvalidArgument, match="event must be an event such as Gaussian"):
        curve(1.1)
