"""What was typed, and the run that it means."""

import pytest

from tacit.accounting import Adjacency, Gaussian
from tacit.workflows.numbers import RunNumbers

RUN = Gaussian(2.0).sampled(0.1) * 20


@pytest.mark.parametrize(
    "plan",
    [
        RunNumbers(multiplier=2, rate=0.1, steps=20),
        RunNumbers(multiplier=2, lot_size=10, population=100, steps=20.0),
        RunNumbers(multiplier=2, lot_size=10, population=100, epochs=2),
        RunNumbers(multiplier=2, rate=0.1, epochs=2),
        # 19.1 steps, rounded up.
        RunNumbers(multiplier=2, lot_size=10, population=100, epochs=1.91),
    ],
    ids=lambda plan: " ".join(plan.given()),
)
def test_a_run_can_be_said_in_several_ways(plan):
    assert plan.event() == RUN


@pytest.mark.parametrize(
    ("epochs", "rate", "steps"),
    # In binary, 1.1 / 0.1 is a little above 11 and 0.3 / 0.1 a little below 3.
    [(1.1, 0.1, 11), (0.3, 0.1, 3), (1, 1, 1), (0.001, 1, 1)],
)
def test_epochs_count_in_decimals(epochs, rate, steps):
    assert RunNumbers(rate=rate, epochs=epochs).step_count() == steps


def test_sixty_epochs_of_mnist_take_a_last_small_step():
    assert RunNumbers(lot_size=256, population=60_000, epochs=60).step_count() == 14_063


def test_adjacency_is_add_remove_unless_said_otherwise():
    assert RunNumbers().neighbours() is Adjacency.ADD_REMOVE
    plan = RunNumbers(multiplier=2, rate=0.1, steps=20, adjacency="replace_one")
    assert plan.event().adjacency is Adjacency.REPLACE_ONE


def test_what_was_typed_is_named_as_it_was_typed():
    assert RunNumbers(multiplier=1, lot_size=3).given() == ["--multiplier", "--lot-size"]
