"""Encoding: the epsilon beside a score is that of the steps that were made for it."""

import json
from pathlib import Path

import pytest
import torch
from experiments.library.training import Schedule, train

from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.datasets import load

FOLDER = Path(__file__).parents[2] / "experiments"


def test_scores_say_after_how_many_steps_they_were_taken():
    """Of 119 flowers 20 make an epoch of 6 steps; 2.5 epochs are 15 steps."""
    data = load("iris")
    found = train(torch.nn.Linear(4, 3), data, methods.dpsgd(1.0, 2.0), Schedule(20, 2.5, 0.1), seed=0)
    assert found.scored_at == [6, 12, 15]
    assert len(found.scores) == 3
    expected = curve(Gaussian(2.0).sampled(20 / len(data.train[0])) * 15).epsilon(1e-5)
    assert found.guarantee.epsilon(1e-5) == pytest.approx(expected)


def runs():
    lines = (FOLDER / "encoding" / "results.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [one for one in records if "scores" in one["found"] and one["asked"]["form"] in ("dpsgd", "gaussian")]


@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run['part']}-{run['asked']['form']}")
def test_the_epsilon_of_a_run_is_that_of_its_epochs_and_no_more(run):
    asked, found = run["asked"], run["found"]
    rate = asked["lot_size"] / asked["examples"]
    expected = curve(Gaussian(asked["multiplier"]).sampled(rate) * round(asked["epochs"] / rate)).epsilon(1e-5)
    assert found["certified"][-1] == pytest.approx(expected, abs=1e-4)
    assert found["certified"] == sorted(found["certified"])
    assert len(found["certified"]) == len(found["scores"])
