"""Encoding: the epsilon beside a score is that of the steps that were made for it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.encoding import as_published, experiment, tuned
from experiments.library.training import Schedule, train
from scipy import stats
from scipy.special import gamma

from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.datasets import load
from tacit.randomness import Stream
from tacit.stages.noise import GaussianNoise
from tacit.stages.post import KSDenoise

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
    known = [one for one in records if {"scores", "certified"} <= one["found"].keys()]
    return [one for one in known if one["asked"]["form"] in ("dpsgd", "gaussian")]


def size_of(asked):
    return asked.get("multiplier", asked.get("scale"))


@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run['part']}-{run['asked']['form']}")
def test_the_epsilon_of_a_run_is_that_of_its_epochs_and_no_more(run):
    asked, found = run["asked"], run["found"]
    rate = asked["lot_size"] / asked["examples"]
    expected = curve(Gaussian(size_of(asked)).sampled(rate) * round(asked["epochs"] / rate)).epsilon(1e-5)
    assert found["certified"][-1] == pytest.approx(expected, abs=1e-4)
    assert found["certified"] == sorted(found["certified"])
    assert len(found["certified"]) == len(found["scores"])


def test_sigma_of_student_noise_is_its_scale():
    made = tuned.mechanism({"form": "student_t", "scale": 1.3, "denoise": "no"}, 1.0)
    x = np.linspace(-9, 9, 7)
    expected = stats.t(9, scale=1.3).logpdf(x)
    np.testing.assert_allclose(made.noise.family.density(made.noise.multiplier).log_density(x), expected, rtol=1e-9)


def test_the_literal_rule_is_the_relative_one_at_another_learning_rate():
    """Its factor is the Kolmogorov-Smirnov distance; the other divides by that of pure noise."""
    noise, values = GaussianNoise(1.0), torch.randn(400, generator=torch.Generator().manual_seed(0)).double() + 0.2
    state = {"noise_std": torch.tensor(1.0, dtype=torch.float64)}
    literal, relative = (KSDenoise(each, noise).apply({"w": values}, state)[0]["w"] for each in (False, True))
    distance = stats.kstest(values.numpy(), "norm").statistic
    np.testing.assert_allclose(literal, values * distance, rtol=1e-9)
    pure = math.sqrt(math.pi / 2) * math.log(2) / math.sqrt(400)
    np.testing.assert_allclose(relative, values * distance / pure, rtol=1e-9)


def test_at_equal_divergence_student_noise_disturbs_as_much_as_gaussian():
    """In many dimensions only Fisher information counts: (nu + 1) / (nu + 3) over the squared scale."""
    found = experiment._at_divergence(0.2, 26_010)
    gaussian = 26_010 * math.sqrt(1 / 0.2) * math.sqrt(2 / math.pi)
    assert found["gaussian"] == pytest.approx(gaussian, rel=1e-5)
    mean = 2 * 3 * gamma(5) / (gamma(4.5) * math.sqrt(math.pi) * 8)
    assert found["student_t"] / gaussian == pytest.approx(math.sqrt(10 / 12) * mean / math.sqrt(2 / math.pi), rel=1e-3)
    assert found["cauchy"] is None


def test_nine_examples_in_pairs_move_the_sum_nine_times_as_far():
    assert as_published.nine_in_pairs() == pytest.approx((9.0, 1.0), rel=1e-6)


def test_the_inversion_for_lots_with_replacement_gives_the_certified_epsilon_for_poisson_lots():
    rate, steps = 0.01, 200
    expected = curve(Gaussian(1.1).sampled(rate) * steps).epsilon(1e-5)
    weights = np.array([1 - rate, rate])
    assert as_published._inverted(weights, 1.1, steps, 1e-5) == pytest.approx(expected, rel=2e-3)


def test_lots_with_replacement_and_micro_batches_train_and_prove_nothing():
    data = load("iris")
    made = as_published.micro_batches(methods.encoded(1.0, 2.0, noise="gaussian"), 2)
    assert made.noise.multiplier == 2.0
    lots = as_published.WithReplacement(20, len(data.train[0]))
    found = train(torch.nn.Linear(4, 3), data, made, Schedule(20, 0.5, 0.1), seed=0, sampling=lots)
    assert found.guarantee.epsilon(1e-5) == math.inf
    drawn = lots.lot(4, Stream(b"replacement, 16.", 0))
    assert len(drawn) == 20 > len(set(drawn.tolist()))
