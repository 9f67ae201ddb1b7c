"""What every Bound promises. A new bound gets these tests by being listed."""

import math

import pytest
import torch

from support.slow_gradients import SlowGradients
from tacit.accounting import Gaussian
from tacit.audit.given import as_gradients
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import (
    AdaClip,
    Clip,
    DrawnVectors,
    Encode,
    FeedbackClip,
    MaskedClip,
    NormalisedClip,
    Profile,
    QuantileClip,
    ShapedClip,
    Whiten,
)
from tacit.stages.noise import GaussianNoise, PrunedNoise

BOUNDS = [
    Clip(1.0),
    Clip(0.3),
    Clip(1.0, per_layer=True),
    NormalisedClip(),
    NormalisedClip(0.5, gamma=0.1),
    QuantileClip(start=1.0),
    QuantileClip(start=0.1, quantile=0.9, share=0.2),
    Encode(),
    Encode(Profile(levels=3), norm=0.3),
    Encode(DrawnVectors(count=50, seed=1)),
    MaskedClip(keep=0.2, refresh=3),
    FeedbackClip(),
    Whiten(),
    Whiten(0.3, "l2", floor=0.1),
    Whiten(grain="parameter"),
    AdaClip(),
    AdaClip(0.3, gamma=0.1, most=100.0),
    ShapedClip(),
    ShapedClip(0.3, memory=0.5),
]
SHAPES = {"first.weight": (4, 3), "first.bias": (4,), "second.weight": (2, 4), "scale": ()}
LOT_SIZE = 10.0
every_bound = pytest.mark.parametrize("bound", BOUNDS, ids=str)


def gradients_of(examples, seed=0, dtype=torch.float64):
    """Gradients of very different lengths, some below every clip norm and some far above."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.logspace(-3, 3, max(examples, 1), dtype=dtype)[:examples]
    rows = {}
    for name, shape in SHAPES.items():
        rows[name] = torch.randn((examples, *shape), generator=generator, dtype=dtype)
        rows[name] *= lengths.reshape(-1, *[1] * len(shape))
    return SlowGradients(rows)


def like(dtype=torch.float64):
    return {name: torch.zeros(shape, dtype=dtype) for name, shape in SHAPES.items()}


def states_over_time(bound, releases=4):
    """The state at the start, and after each of several noisy releases."""
    state = bound.init(like(), LOT_SIZE)
    yield state
    for step in range(releases):
        # What FeedbackClip feeds back is handed over by its own noise only.
        noise = PrunedNoise(0.5, keep=0.3) if isinstance(bound, FeedbackClip) else GaussianNoise(0.5)
        noisy = noise.add(bound.sum(gradients_of(10, seed=step), state), SeededSource(0).stream(Purpose.NOISE, step))
        _, state = bound.receive(noisy, state)
        yield state


def length(values):
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def distance(one, other):
    return length({name: value - other.values[name] for name, value in one.values.items()})


@every_bound
def test_removing_any_example_moves_the_sum_by_at_most_the_sensitivity(bound):
    for state in states_over_time(bound):
        lot = gradients_of(12, seed=7)
        whole = bound.sum(lot, state)
        for index in range(12):
            assert distance(whole, bound.sum(lot.without(index), state)) <= whole.sensitivity * (1 + 1e-9)


@every_bound
def test_the_sensitivity_is_reached_by_some_example(bound):
    lot = gradients_of(12)
    state = bound.init(like(), LOT_SIZE)
    whole = bound.sum(lot, state)
    assert max(distance(whole, bound.sum(lot.without(i), state)) for i in range(12)) > 0.99 * whole.sensitivity


@every_bound
def test_single_precision_keeps_the_sensitivity_up_to_rounding(bound):
    lot = gradients_of(12, dtype=torch.float32)
    state = bound.init(like(torch.float32), LOT_SIZE)
    for index in range(12):
        alone = bound.sum(lot.piece(slice(index, index + 1)), state)
        assert length(alone.values) <= alone.sensitivity * (1 + 1e-6)


@every_bound
def test_an_empty_lot_gives_zeros_and_the_same_sensitivity(bound):
    for state in states_over_time(bound):
        empty, full = bound.sum(gradients_of(0), state), bound.sum(gradients_of(5), state)
        assert length(empty.values) == 0
        assert empty.values.keys() == full.values.keys()
        assert all(value.shape == full.values[name].shape for name, value in empty.values.items())
        assert empty.sensitivity == full.sensitivity


@every_bound
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["scale", "first.weight"])
def test_an_example_that_is_not_finite_contributes_zero(bound, poison, where):
    lot = gradients_of(6)
    clean = lot.without(3)
    lot.dense()[where][3] = poison
    for state in states_over_time(bound):
        poisoned, expected = bound.sum(lot, state), bound.sum(clean, state)
        assert math.isfinite(length(poisoned.values))
        assert distance(poisoned, expected) < 1e-12


@every_bound
def test_sum_leaves_state_and_gradients_as_they_were(bound):
    lot = gradients_of(6)
    rows_before = {name: rows.clone() for name, rows in lot.dense().items()}
    for state in states_over_time(bound):
        state_before = {name: value.clone() for name, value in state.items()}
        bound.sum(lot, state)
        assert all(torch.equal(value, state_before[name]) for name, value in state.items())
        assert all(torch.equal(rows, rows_before[name]) for name, rows in lot.dense().items())


@every_bound
def test_pieces_of_a_lot_add_up_to_the_whole(bound):
    lot = gradients_of(9)
    for state in states_over_time(bound):
        whole = bound.sum(lot, state)
        pieces = bound.sum(lot.piece(slice(0, 4)), state) + bound.sum(lot.piece(slice(4, 9)), state)
        assert distance(whole, pieces) < 1e-9
        assert pieces.sensitivity == whole.sensitivity


@every_bound
def test_receive_gives_back_exactly_the_parameters(bound):
    state = bound.init(like(), LOT_SIZE)
    values, after = bound.receive(bound.sum(gradients_of(5), state).values, state)
    assert {name: tuple(value.shape) for name, value in values.items()} == SHAPES
    assert after.keys() == state.keys()


@pytest.mark.slow
def test_clipping_matches_a_loop_over_examples():
    lot = gradients_of(8)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for row, norm in zip(lot.dense()["first.weight"], lot.norms(), strict=True):
        expected += row / max(1, float(norm) / 0.3)
    found = Clip(0.3).sum(lot, {}).values["first.weight"]
    torch.testing.assert_close(found, expected)


def test_per_layer_clipping_bounds_each_module_by_its_share():
    lot = gradients_of(8).piece(slice(7, 8))
    values = Clip(3.0, per_layer=True).sum(lot, {}).values
    modules = [("first.weight", "first.bias"), ("second.weight",), ("scale",)]
    for names in modules:
        assert length({name: values[name] for name in names}) == pytest.approx(3 / math.sqrt(3))


def test_normalised_clipping_lifts_short_gradients():
    lot = gradients_of(8).piece(slice(0, 1))
    norm = float(lot.norms())
    assert length(NormalisedClip(1.0, gamma=1e-9).sum(lot, {}).values) == pytest.approx(1.0, rel=1e-5)
    assert length(Clip(1.0).sum(lot, {}).values) == pytest.approx(norm)


def test_the_norm_settles_at_the_quantile():
    """Lengths are even on a log scale from 1e-3 to 1e3, so the median is 1; noise moves the norm by some per cent."""
    bound = QuantileClip(start=50.0, quantile=0.5, share=0.05, learning_rate=0.2)
    state = bound.init(like(), 200.0)
    norms = []
    for step in range(150):
        noisy = GaussianNoise(1.0).add(bound.sum(gradients_of(200), state), SeededSource(1).stream(Purpose.NOISE, step))
        _, state = bound.receive(noisy, state)
        norms.append(float(state["norm"]))
    below = float((gradients_of(200).norms() <= sum(norms[-50:]) / 50).double().mean())
    assert below == pytest.approx(0.5, abs=0.05)


def test_the_count_takes_its_share_of_the_noise_as_andrew_et_al_have_it():
    """1 / multiplier^2 = 1 / (noise on gradients over norm)^2 + 1 / (2 noise on the centred count)^2."""
    bound = QuantileClip(start=2.0, share=0.04)
    bounded = bound.sum(gradients_of(5), bound.init(like(), LOT_SIZE))
    std = Gaussian(1.3).multiplier * bounded.sensitivity
    on_gradients = std / 2.0
    on_count = std / (2.0 * math.sqrt(0.04 / 0.96)) / 2
    assert on_gradients**-2 + (2 * on_count) ** -2 == pytest.approx(1.3**-2)


def test_one_wild_release_cannot_throw_the_norm_off():
    bound = QuantileClip(start=1.0, learning_rate=0.2)
    state = bound.init(like(), LOT_SIZE)
    noisy = {name: value.clone() for name, value in bound.sum(gradients_of(5), state).values.items()}
    for value in noisy.values():
        value += 1e12
    assert float(bound.receive(noisy, state)[1]["norm"]) == pytest.approx(math.exp(-0.1))


@pytest.mark.parametrize(
    "bound",
    [
        Clip(1e-25),
        Clip(1e-25, per_layer=True),
        NormalisedClip(1e-25, gamma=1e-30),
        QuantileClip(start=1e-25),
        MaskedClip(1e-25),
        FeedbackClip(1e-25),
        Whiten(1e-25),
        ShapedClip(1e-25),
    ],
    ids=str,
)
def test_gradients_whose_squares_vanish_are_not_taken_for_short_ones(bound):
    rows = {name: torch.full((1, *shape), 1e-23) for name, shape in SHAPES.items()}
    bounded = bound.sum(SlowGradients(rows), bound.init(like(torch.float32), LOT_SIZE))
    assert length(bounded.values) <= bounded.sensitivity * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_whose_norms_come_in_half_precision_are_clipped_at_the_norm(dtype):
    gradients = as_gradients(torch.tensor([[3.0, 4.0, 0.0]], dtype=dtype))
    assert gradients.norms().dtype is dtype
    for bound in (Clip(1.0), Clip(1.0, per_layer=True), NormalisedClip(1.0)):
        [total] = bound.sum(gradients, bound.init(gradients.parameters, 1.0)).values.values()
        assert 0.98 < float(total.float().norm()) < 1.01
