"""Pruning before the noise: by past releases, which is proven; and as published, which leaks."""

import math

import pytest
import torch

from support.slow_gradients import SlowGradients
from tacit.accounting import Unproven, curve
from tacit.errors import InvalidArgument, NotProven
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.bounds import Clip, FeedbackClip, MaskedClip
from tacit.stages.noise import PrunedNoise
from tacit.stages.noise.published import RESIDUAL
from tacit.types import BoundedSum


def gradients(rows):
    return SlowGradients({"w": torch.as_tensor(rows, dtype=torch.float64)})


def like(dimension):
    return {"w": torch.zeros(dimension, dtype=torch.float64)}


def test_the_first_step_looks_at_everything():
    bound = MaskedClip(norm=2.0, keep=0.1)
    lot = gradients(torch.randn(5, 20, generator=torch.Generator().manual_seed(0)))
    found = bound.sum(lot, bound.init(like(20), 5.0)).values["w"]
    torch.testing.assert_close(found, Clip(2.0).sum(lot, {}).values["w"])


def test_later_steps_look_where_the_release_was_largest():
    bound = MaskedClip(norm=1.0, keep=0.4, refresh=3)
    state = bound.init(like(5), 5.0)
    _, state = bound.receive({"w": torch.tensor([0.1, -9.0, 0.2, 5.0, -0.3])}, state)
    found = bound.sum(gradients([[30.0, 3.0, 30.0, 4.0, 30.0]]), state)
    torch.testing.assert_close(found.values["w"], torch.tensor([0.0, 0.6, 0.0, 0.8, 0.0], dtype=torch.float64))
    assert found.sensitivity == 1.0


def test_noise_where_nobody_looked_is_taken_off():
    bound = MaskedClip(keep=0.4, refresh=3)
    _, state = bound.receive({"w": torch.tensor([0.1, -9.0, 0.2, 5.0, -0.3])}, bound.init(like(5), 5.0))
    values, _ = bound.receive({"w": torch.ones(5)}, state)
    assert values["w"].tolist() == [0, 1, 0, 1, 0]


def test_every_so_many_steps_everything_is_looked_at_again():
    bound = MaskedClip(keep=0.2, refresh=3)
    state = bound.init(like(5), 5.0)
    seen = []
    for _ in range(7):
        seen.append(int(state["<mask> w"].sum()))
        _, state = bound.receive({"w": torch.arange(5.0)}, state)
    assert seen == [5, 1, 1, 5, 1, 1, 5]


def test_with_refresh_one_it_is_ordinary_clipping():
    bound = MaskedClip(keep=0.2, refresh=1)
    state = bound.init(like(5), 5.0)
    for _ in range(3):
        assert int(state["<mask> w"].sum()) == 5
        _, state = bound.receive({"w": torch.arange(5.0)}, state)


def test_published_feedback_clips_gradient_plus_residual():
    bound = FeedbackClip(norm=1.5)
    state = bound.init(like(4), 10.0)
    residual = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    _, state = bound.receive({"w": torch.zeros(4), RESIDUAL + "w": 10 * residual}, state)
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shifted = rows + residual
    expected = (shifted / (shifted.norm(dim=1, keepdim=True) / 1.5).clamp(min=1)).sum(0)
    torch.testing.assert_close(bound.sum(gradients(rows), state).values["w"], expected)


def test_published_noise_lies_on_the_largest_coordinates_and_the_rest_is_handed_over():
    values = {"w": torch.tensor([5.0, 0.1, -4.0, 0.2])}
    found = PrunedNoise(0.01, keep=0.5).add(BoundedSum(values, 1.0), SeededSource(0).stream(Purpose.NOISE, 0))
    assert (found["w"] != 0).tolist() == [True, False, True, False]
    assert found["w"][0] == pytest.approx(5, abs=0.1)
    assert found[RESIDUAL + "w"].tolist() == [0, pytest.approx(0.1), 0, pytest.approx(0.2)]


@pytest.mark.parametrize("multiplier", [0.1, 1.0, 1000.0])
def test_the_published_support_tells_two_neighbours_apart_whatever_the_noise(multiplier):
    """The mean gradients (0.30, 0.29, 0.01) and (0.28, 0.29, 0.01): a third kept, supports {0} and {1}, always."""
    source = SecureSource()
    for mean, support in (([0.30, 0.29, 0.01], 0), ([0.28, 0.29, 0.01], 1)):
        places = []
        for _ in range(20):
            bounded = BoundedSum({"w": torch.tensor(mean)}, 1.0)
            found = PrunedNoise(multiplier, keep=1 / 3).add(bounded, source.stream(Purpose.NOISE, 0))["w"]
            places += found.nonzero().flatten().tolist()
        # On the grid of the noise a release is zero once in some hundred times.
        assert set(places) == {support}
        assert len(places) > 15


def test_one_example_of_the_past_reaches_every_gradient_of_the_present():
    """Its residual turns all of them round, and the next sum moves by twice the norm times the number of examples."""
    bound = FeedbackClip(norm=1.0)
    rows = torch.tensor([[1e-3, 0.0]] * 8, dtype=torch.float64)
    sums = []
    for past in (100.0, -100.0):
        _, state = bound.receive(
            {"w": torch.zeros(2), RESIDUAL + "w": torch.tensor([past, 0.0])}, bound.init(like(2), 1.0)
        )
        sums.append(bound.sum(gradients(rows), state).values["w"])
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(2 * 8 * 1.0, rel=1e-6)


def test_the_published_event_is_refused_by_the_accountant():
    event = PrunedNoise(1.1).event(100)
    assert isinstance(event, Unproven)
    with pytest.raises(NotProven, match="deterministic function of private data"):
        curve(event.sampled(0.01) * 100)


def test_published_noise_needs_a_multiplier():
    with pytest.raises(InvalidArgument, match="no multiplier"):
        PrunedNoise().event(3)


@pytest.mark.parametrize("wrong", [0.0, 2.0, math.nan])
def test_keep_is_a_share(wrong):
    for make in (lambda: MaskedClip(keep=wrong), lambda: PrunedNoise(1.0, keep=wrong)):
        with pytest.raises(InvalidArgument, match="keep must be"):
            make()
