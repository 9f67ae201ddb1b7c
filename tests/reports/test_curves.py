"""Following an event step by step."""

import pytest

from tacit.accounting import Composed, Gaussian, Laplace, Repeated, curve
from tacit.reports.curves import Schedule

STEP = Gaussian(1.1).sampled(0.01)


@pytest.mark.parametrize(
    ("event", "steps"),
    [
        (STEP, 1),
        (STEP * 100, 100),
        (Repeated(Repeated(STEP, 10), 7), 70),
        (Gaussian(5.0) + STEP * 10, 11),
        ((STEP + Laplace(9.0)) * 5, 10),
        (Repeated(Composed((Repeated(STEP, 3), Laplace(9.0))), 5), 20),
        ((STEP * 3).sampled(0.5) * 4, 4),
        (STEP * 0, 0),
    ],
)
def test_steps_are_releases_or_lots(event, steps):
    assert Schedule.of(event).steps == steps


@pytest.mark.slow
@pytest.mark.parametrize("event", [STEP * 40, Gaussian(5.0) + STEP * 40, (STEP + Gaussian(9.0)) * 20])
def test_until_the_end_costs_what_the_whole_costs(event):
    schedule = Schedule.of(event)
    whole = curve(schedule.until(schedule.steps)).epsilon(1e-5)
    assert whole == pytest.approx(curve(event).epsilon(1e-5), rel=1e-9)


def test_the_order_of_the_parts_is_kept():
    schedule = Schedule.of(Gaussian(5.0) + STEP * 10 + Laplace(9.0))
    assert schedule.until(4) == Composed((Gaussian(5.0) * 1, STEP * 3))


def test_a_block_is_followed_in_whole_blocks():
    schedule = Schedule.of((STEP + Laplace(9.0)) * 5)
    assert schedule.until(5) == Composed(((STEP + Laplace(9.0)) * 2,))
