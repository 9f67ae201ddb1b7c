"""Directional noise: w by chance stands for Algorithm 1, and every run has the learning rate and place it says."""

import sys
from pathlib import Path

import pytest
import torch

from tacit import Budget, methods
from tacit.accounting import Gaussian, curve
from tacit.experiments import Record
from tacit.experiments.targets import find_target
from tacit.mechanism import Settings

FOLDER = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(FOLDER.parent))

from experiments.directional import by_chance, experiment  # noqa: E402

LOT, POPULATION, STEPS, DELTA, CLIP = 512, 55_000, 6445, 1e-5, 0.1
LIKE = {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}


def published(epsilon):
    mechanism, budget = methods.directional(CLIP, mode="paper"), Budget(epsilon, DELTA)
    settings = Settings(LOT, POPULATION, STEPS, False, 15, DELTA, mechanism, budget, lambda multiplier: None)
    return mechanism.method.claims.calibrated(settings, budget)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_by_chance_there_is_as_much_noise_as_algorithm_1_draws(epsilon):
    ours, theirs = by_chance.full_method(CLIP, LOT / POPULATION, STEPS, epsilon, DELTA, seed=0), published(epsilon)
    assert ours.noise.multiplier == pytest.approx(theirs.noise.multiplier, rel=1e-12)
    assert by_chance.noise_on_w(STEPS, epsilon, DELTA) == pytest.approx(theirs.guide.multiplier, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_the_distance_is_the_total_variation_that_the_accountant_gives(epsilon):
    releases = Gaussian(by_chance.noise_on_w(STEPS, epsilon, DELTA)) * STEPS
    assert by_chance.distance(STEPS, epsilon, DELTA) == pytest.approx(curve(releases).advantage(), rel=1e-3)
    assert by_chance.distance(STEPS, epsilon, DELTA) < 0.01


def test_every_release_has_a_w_of_its_own_and_the_seed_gives_it_again():
    shapes = []
    for _ in range(2):
        bound = by_chance.ShapedByChance(CLIP, seed=3)
        states = [bound.init(LIKE, LOT)]
        states.append(bound.receive(LIKE, states[-1])[1])
        shapes.append([{name: value for name, value in state.items() if name != "number"} for state in states])
    first, again = shapes
    assert all(torch.equal(first[step][name], again[step][name]) for step in (0, 1) for name in first[0])
    assert any(not torch.equal(first[0][name], first[1][name]) for name in first[0])


def cells():
    order = find_target(FOLDER, "directional").order("reduced")
    return order, list(experiment.cells(order, None))


def test_all_methods_have_one_learning_rate_that_was_tried_on_images_left_out():
    order, found = cells()
    rates = {cell.asked["rate_times_clip"] for cell in found if cell.part == "mnist"}
    assert len(rates) == 1
    assert all(rates <= set(each["tried"]) for each in order.settings["rates"])


def test_figures_5_and_6_vary_one_thing_and_take_the_rest_from_their_set():
    order, found = cells()
    usual = order.settings["sets"]["mnist"]
    for cell in found:
        if cell.part == "figure 5":
            assert cell.asked["clip_norm"] == usual["clip_norm"]
            assert cell.asked["lot_size"] != usual["lot_size"]
        if cell.part == "figure 6":
            rate = cell.asked["rate_times_clip"] / cell.asked["clip_norm"]
            assert rate == pytest.approx(usual["rate_times_clip"] / usual["clip_norm"])
    records = [Record(cell.part, dict(cell.asked), {"scores": [0.5], "certified": 1.0}, 1.0, "", "") for cell in found]
    lots, clips = experiment._sweeps(order, records)
    wanted = order.settings["sensitivity"]
    assert sorted({run.asked["lot_size"] for run in lots}) == wanted["lot_sizes"]
    assert sorted({run.asked["clip_norm"] for run in clips}) == wanted["clip_norms"]
    assert len(lots) == len(experiment.SWEPT) * len(wanted["lot_sizes"])
    assert len(clips) == len(experiment.SWEPT) * len(wanted["clip_norms"])
