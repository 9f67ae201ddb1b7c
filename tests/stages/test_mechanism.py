"""Mechanism: the stages in order, each seeing only what it may."""

from dataclasses import dataclass, replace

import pytest
import torch

from support.slow_gradients import slow_gradients
from tacit import methods
from tacit.accounting import Gaussian
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import Clip, NormalisedClip, QuantileClip
from tacit.stages.bounds.clip import COUNT
from tacit.stages.mechanism import Mechanism, with_lot_size
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum


@dataclass(frozen=True)
class Halve:
    """A post that counts how often it was applied."""

    def init(self, like):
        return {"times": torch.zeros(())}

    def apply(self, values, state):
        return {name: value / 2 for name, value in values.items()}, {"times": state["times"] + 1}


@pytest.fixture
def gradients():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    return slow_gradients(model, torch.nn.functional.cross_entropy, torch.randn(6, 3), torch.randint(2, (6,)))


def like(gradients):
    return {name: rows[0] for name, rows in gradients.dense().items()}


def stream(step=0):
    return SeededSource(0).stream(Purpose.NOISE, step)


def test_a_step_is_the_clipped_sum_plus_the_noise(gradients):
    mechanism = Mechanism(Clip(0.1), GaussianNoise(0.7))
    release, _ = mechanism.step(gradients, mechanism.init(like(gradients), 6), stream())
    clipped = Clip(0.1).sum(gradients, {})
    empty = BoundedSum({name: torch.zeros_like(value) for name, value in clipped.values.items()}, 0.1)
    noise = GaussianNoise(0.7).add(empty, stream())
    for name, value in clipped.values.items():
        torch.testing.assert_close(release.values[name], value + noise[name], atol=0.1 * 0.7 / 2**5, rtol=0)


def test_a_release_carries_the_event_of_the_noise_that_was_drawn(gradients):
    mechanism = Mechanism(Clip(1.0), GaussianNoise(0.7))
    release, _ = mechanism.step(gradients, mechanism.init(like(gradients), 6), stream())
    assert release.event == Gaussian(0.7) == mechanism.noise.event(100)


def test_posts_see_the_release_in_turn_and_keep_their_state(gradients):
    plain = Mechanism(Clip(1.0), GaussianNoise(0.7))
    mechanism = replace(plain, post=(Halve(), Halve()))
    state = mechanism.init(like(gradients), 6)
    release, state = mechanism.step(gradients, state, stream())
    expected, _ = plain.step(gradients, plain.init(like(gradients), 6), stream())
    for name, value in release.values.items():
        torch.testing.assert_close(value, expected.values[name] / 4)
    assert [float(one["times"]) for one in state.post] == [1, 1]


def test_the_count_of_a_quantile_never_reaches_a_post_or_a_parameter(gradients):
    mechanism = Mechanism(QuantileClip(), GaussianNoise(0.7), post=(Halve(),))
    release, state = mechanism.step(gradients, mechanism.init(like(gradients), 6), stream())
    assert release.values.keys() == gradients.dense().keys()
    assert COUNT not in release.values
    assert float(state.bound["norm"]) != 1.0


def test_one_event_covers_the_gradients_and_the_count(gradients):
    mechanism = methods.dpsgd(clip_norm=1.0, multiplier=1.1, clipping="quantile")
    release, _ = mechanism.step(gradients, mechanism.init(like(gradients), 6), stream())
    assert release.event == Gaussian(1.1)


def test_a_state_follows_a_lot_size_that_changes(gradients):
    mechanism = Mechanism(QuantileClip(), GaussianNoise(0.7))
    state = with_lot_size(mechanism.init(like(gradients), 6), 12)
    assert float(state.bound["lot_size"]) == 12
    plain = Mechanism(Clip(), GaussianNoise(0.7)).init(like(gradients), 6)
    assert with_lot_size(plain, 12) is plain


def test_stages_print_compare_and_are_replaced():
    mechanism = methods.dpsgd(clip_norm=0.5)
    assert mechanism == methods.dpsgd(clip_norm=0.5)
    assert mechanism.with_multiplier(2.0) == methods.dpsgd(clip_norm=0.5, multiplier=2.0)
    assert "Clip(norm=0.5, per_layer=False), noise=GaussianNoise(multiplier=None)" in repr(mechanism)


def test_a_bounded_sum_does_not_print_what_it_holds():
    assert repr(BoundedSum({"weight": torch.tensor([123.0])}, 1.0)) == "BoundedSum(1 numbers, sensitivity=1)"


def test_pieces_over_different_parameters_do_not_add():
    with pytest.raises(InvalidArgument, match="differ in bias, weight"):
        BoundedSum({"weight": torch.zeros(1)}, 1.0) + BoundedSum({"bias": torch.zeros(1)}, 1.0)


def test_a_stage_in_the_wrong_place_is_refused():
    with pytest.raises(InvalidArgument, match="needs a Noise"):
        Mechanism(Clip(1.0), Clip(1.0))


@pytest.mark.parametrize(
    ("clipping", "bound"),
    [
        ("flat", Clip(0.5)),
        ("per_layer", Clip(0.5, per_layer=True)),
        ("normalised", NormalisedClip(0.5)),
        ("quantile", QuantileClip(0.5)),
    ],
)
@pytest.mark.parametrize("method", [methods.dpsgd, methods.noisy_sgd, methods.noisy_adam])
def test_methods_take_every_clipping(method, clipping, bound):
    assert method(clip_norm=0.5, clipping=clipping).bound == bound


def test_an_unknown_clipping_is_refused():
    with pytest.raises(InvalidArgument, match="clipping must be one of 'flat'"):
        methods.dpsgd(clipping="ghost")
