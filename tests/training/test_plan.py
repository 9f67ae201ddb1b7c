"""Budgets and schedules: fixed before the first step, and kept."""

import pytest

import tacit
from support.small_runs import N, assert_noisy_mean, small_run, train
from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.errors import BudgetExceeded, InvalidArgument


def test_the_multiplier_is_found_from_the_budget():
    run = small_run(mechanism=methods.dpsgd(clip_norm=0.5), budget=tacit.Budget(epsilon=2, delta=1e-4), steps=30)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.parametrize("sampling", [tacit.FullBatch(N), tacit.Shuffled(20, N)], ids=str)
def test_the_budget_is_kept_by_every_sampling(sampling):
    run = small_run(mechanism=methods.dpsgd(0.5), sampling=sampling, budget=tacit.Budget(2, 1e-4), steps=15)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.slow
def test_a_multiplier_that_breaks_the_budget_is_refused_with_one_that_keeps_it():
    with pytest.raises(BudgetExceeded, match=r"Raise the multiplier to 1\.38"):
        small_run(budget=tacit.Budget(epsilon=0.9, delta=1e-4), steps=5)


def test_more_steps_than_can_be_planned_are_refused():
    with pytest.raises(InvalidArgument, match="steps must be at most 100,000,000"):
        small_run(steps=10**30)


@pytest.mark.slow
def test_a_delta_as_large_as_one_in_the_population_is_remarked_upon():
    [_, said] = small_run(budget=tacit.Budget(epsilon=9, delta=0.005)).guarantee().notes
    assert said.startswith("Delta 0.005 is not below 1/200")
    assert len(small_run(budget=tacit.Budget(epsilon=9, delta=0.0049)).guarantee().notes) == 1


def test_neither_budget_nor_multiplier_is_an_error():
    with pytest.raises(InvalidArgument, match="noise is not determined"):
        small_run(mechanism=methods.dpsgd(0.5))


def test_a_lot_size_beyond_the_population_is_refused_before_the_first_step():
    with pytest.raises(InvalidArgument, match="at most the population"):
        small_run(schedule=tacit.Schedule(lot_size=[1, 1, 1, 1, 11]))


@pytest.mark.slow
def test_a_schedule_is_fixed_in_advance_and_every_step_has_its_own_event():
    asked = []

    def factor(step):
        asked.append(step)
        return 1.0 if step < 3 else 2.0

    run = small_run(schedule=tacit.Schedule(multiplier=factor, lot_size=[1, 1, 1, 1, 2]))
    assert asked == [0, 1, 2, 3, 4]
    train(run)
    expected = Gaussian(1.1).sampled(0.1) * 3 + Gaussian(2.2).sampled(0.1) + Gaussian(2.2).sampled(0.2)
    assert run.guarantee().epsilon(1e-5) == pytest.approx(curve(expected).epsilon(1e-5), rel=1e-6)


def test_a_scheduled_step_has_its_own_noise_and_normaliser():
    run = small_run(schedule=tacit.Schedule(multiplier=[3.0] * 5, lot_size=[2.0] * 5))
    assert_noisy_mean(run, next(iter(run)), multiplier=3.3, lot_size=40)


@pytest.mark.slow
def test_the_budget_is_kept_by_a_schedule():
    schedule = tacit.Schedule(multiplier=lambda step: 1.0 if step < 10 else 0.7)
    run = small_run(mechanism=methods.dpsgd(0.5), schedule=schedule, budget=tacit.Budget(2, 1e-4), steps=20)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.parametrize("factors", [[1.0] * 4, [1, 1, 0, 1, 1], lambda step: -1.0])
def test_a_schedule_that_means_nothing_is_refused(factors):
    with pytest.raises(InvalidArgument, match="schedule"):
        small_run(schedule=tacit.Schedule(multiplier=factors))
