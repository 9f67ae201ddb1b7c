"""The experiment on noise that cancels: what it asks for, how it chooses learning rates, and that it trains."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from experiments.library import Record, Records
from experiments.library.running import records_of, run_missing
from experiments.library.targets import Target

from tacit.datasets import load

TARGET = Target(Path(__file__).resolve().parents[2] / "experiments" / "correlated_noise")


@pytest.fixture
def order(monkeypatch):
    """The quick settings, for one small table with a linear model in place of images."""
    order = TARGET.order("quick")
    about = {"data": "iris", "model": "linear", "lot_size": 10, "steps": 6, "clip_norm": 1.0, "optimizer": "sgd"}
    about |= {"rates": [0.1, 1.0], "last": 20, "most_rows": 1_000}
    return dataclasses.replace(order, settings={**order.settings, "data": {"Iris": about}})


def test_both_noises_are_asked_for_with_the_same_numbers_and_several_seeds():
    order = TARGET.order("full")
    assert order.settings["noises"] == ["independent", "banded"]
    assert order.settings["epsilons"] == [1.0, 3.0, 8.0]
    assert order.settings["seeds"] >= 5
    assert not set(order.settings["tuning_seeds"]) & set(range(order.settings["seeds"]))


@pytest.mark.slow
def test_a_small_table_goes_through_all_of_it(order, tmp_path):
    records, experiment = Records(tmp_path / "results.jsonl"), TARGET.experiment()
    assert run_missing(experiment, order, records, ["learning rates", "Iris"], lambda said: None) == ()
    found = [each for each in records_of(experiment, order, records) if each.part == "Iris"]
    assert [each.asked["noise"] for each in found] == ["independent", "banded"]
    assert all(7.9 < each.found["certified"] <= 8 for each in found)
    assert found[0].found["bands"] == 1 < found[1].found["bands"]
    # More bands cost a higher rate within groups, so a larger multiplier at the same epsilon.
    assert found[0].found["multiplier"] < found[1].found["multiplier"]
    table = experiment.tables(order, records_of(experiment, order, records))["accuracy"]
    assert f"| Iris | banded | {100 * found[1].found['accuracy']:.2f}" in table


def test_the_learning_rate_is_the_best_on_examples_that_are_held_out(order):
    experiment = TARGET.experiment()
    cells = [cell for cell in experiment.cells(order, Records(Path("nowhere"))) if cell.part == "learning rates"]
    scores = {("independent", 0.1): 0.3, ("independent", 1.0): 0.6, ("banded", 0.1): 0.7, ("banded", 1.0): 0.2}
    made = [
        Record(cell.part, dict(cell.asked), {"accuracy": scores[cell.asked["noise"], cell.asked["rate"]]}, 0.0, "", "")
        for cell in cells
    ]
    assert experiment.best_rate(order, made, "Iris", "independent") == 1.0
    assert experiment.best_rate(order, made, "Iris", "banded") == 0.1
    assert experiment.best_rate(order, made[:-1], "Iris", "banded") is None


def test_examples_that_choose_a_rate_are_trained_on_in_none_of_these_runs():
    from experiments.correlated_noise.training import hold_out

    data = load("iris")
    apart = hold_out(data, 20)
    rows = np.concatenate([apart.train[0], apart.test[0]])
    assert len(apart.test[0]) == 20
    assert apart.population == data.population - 20
    assert np.array_equal(np.sort(rows, axis=0), np.sort(data.train[0], axis=0))
