"""Whitened clipping: scales from past releases, exact sensitivity, numbers of a worked example."""

import math

import pytest
import torch
from scipy import optimize

from support.slow_gradients import SlowGradients
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import AdaClip, Clip, ShapedClip, Whiten
from tacit.stages.bounds.whiten import whitening_scale
from tacit.stages.flat import put, select
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

SIZES = torch.tensor([0.3, 0.1, 0.05, 0.02], dtype=torch.float64)
MATTERS = torch.tensor([2.0, 0.5, 1.0, 0.1], dtype=torch.float64)
SCALES = {
    "l1": [0.35545706650289915, 0.2712645110947304, 0.1356322555473652, 0.15863644843772648],
    "l2": [0.32449961479175904, 0.3746998799039039, 0.18734993995195195, 0.3746998799039039],
}
OBJECTIVES = {
    "l1": (lambda s: float((MATTERS * s).sum()), 0.9980422889443014, 1.1548090751288715),
    "l2": (lambda s: float((MATTERS * s).square().sum()), 0.492804, 0.541254),
}
both = pytest.mark.parametrize("objective", ["l1", "l2"])


def scale_of(objective, norm=1.0):
    return whitening_scale({"": SIZES}, {"": MATTERS}, {"": 1.0}, norm=norm, objective=objective)[""]


@both
def test_the_scales_of_a_worked_example(objective):
    scale = scale_of(objective)
    value, least, isotropic = OBJECTIVES[objective]
    assert scale.tolist() == pytest.approx(SCALES[objective], rel=1e-12)
    assert float((SIZES / scale).square().sum()) == pytest.approx(1.0)
    assert value(scale) == pytest.approx(least, rel=1e-9)
    assert value(SIZES.norm().expand(4)) == pytest.approx(isotropic, rel=1e-6)


@both
def test_no_other_scale_has_less_noise_at_the_same_length(objective):
    """A search that knows no calculus, over all scales under which the sizes have a whitened length of 1."""
    value, least, _ = OBJECTIVES[objective]

    def noise(logs):
        scale = torch.tensor(logs, dtype=torch.float64).exp()
        return value(scale * float((SIZES / scale).norm()))

    found = optimize.minimize(noise, torch.log(SIZES).tolist(), method="Nelder-Mead", options={"maxiter": 4000})
    assert found.fun == pytest.approx(least, rel=1e-5)
    assert found.fun >= least * (1 - 1e-12)


@both
def test_a_larger_norm_shrinks_the_scale_and_leaves_the_noise(objective):
    assert (scale_of(objective, norm=2.0) * 2).tolist() == pytest.approx(SCALES[objective])


def test_equal_sizes_in_proportion_to_what_matters_gain_nothing():
    """Hölder's inequality is an equality where m^2 is proportional to w."""
    sizes, matters = SIZES, SIZES.square() * 7
    scale = whitening_scale({"": sizes}, {"": matters}, {"": 1.0}, norm=1.0, objective="l1")[""]
    assert scale.tolist() == pytest.approx([float(sizes.norm())] * 4)


def whitened(scale, norm=1.0):
    bound = Whiten(norm)
    like = {"w": torch.zeros_like(scale)}
    return bound, {**bound.init(like, 10.0), **put("scale/", {"w": scale})}


def test_clipping_a_gradient_of_the_worked_example():
    scale = torch.tensor(SCALES["l1"], dtype=torch.float64)
    bound, state = whitened(scale)
    rows = SlowGradients({"w": torch.tensor([[0.6, -0.2, 0.1, 0.01]], dtype=torch.float64)})
    assert float(rows.scaled_norms({"w": 1 / scale})) == pytest.approx(1.9850427304637706, rel=1e-12)
    values, _ = bound.receive(bound.sum(rows, state).values, state)
    expected = [0.3022604958533162, -0.10075349861777208, 0.05037674930888604, 0.005037674930888604]
    assert values["w"].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("constant", [0.1, 1.0, 7.0])
def test_a_constant_scale_is_ordinary_clipping(constant):
    torch.manual_seed(0)
    rows = SlowGradients({"w": torch.randn(20, 4, dtype=torch.float64) * torch.logspace(-2, 2, 20)[:, None].double()})
    bound, state = whitened(torch.full((4,), constant, dtype=torch.float64), norm=0.5)
    values, _ = bound.receive(bound.sum(rows, state).values, state)
    torch.testing.assert_close(values["w"], Clip(0.5 * constant).sum(rows, {}).values["w"])


def test_a_release_has_noise_in_proportion_to_the_scale():
    """40,000 draws of four numbers: each standard deviation is right to 2.5 %, with a false alarm below 1e-6."""
    scale = torch.tensor(SCALES["l1"], dtype=torch.float64).repeat(40_000)
    bound, state = whitened(scale, norm=2.0)
    mechanism = Mechanism(bound, GaussianNoise(1.3))
    noisy = mechanism.noise.add(BoundedSum({"w": torch.zeros_like(scale)}, 2.0), stream())
    values, _ = bound.receive(noisy, state)
    found = values["w"].view(-1, 4).std(0)
    assert found.tolist() == pytest.approx([1.3 * 2.0 * s for s in SCALES["l1"]], rel=0.025)


def stream(step=0):
    return SeededSource(0).stream(Purpose.NOISE, step)


def trained(bound, steps=300, multiplier=0.02, size=50):
    """A mechanism after many releases of gradients whose coordinates have very different sizes."""
    generator = torch.Generator().manual_seed(0)
    mechanism = Mechanism(bound, GaussianNoise(multiplier))
    sizes = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)
    state = mechanism.init({"w": torch.zeros(4, dtype=torch.float64)}, float(size))
    for step in range(steps):
        rows = sizes + 0.3 * sizes * torch.randn(size, 4, generator=generator, dtype=torch.float64)
        _, state = mechanism.step(SlowGradients({"w": rows}), state, stream(step))
    return mechanism, state


@pytest.mark.slow
def test_scales_follow_the_sizes_of_gradients():
    """Sizes fall by tens, and what matters with them: the scale m^(2/3) w^(-1/3) falls by cube roots of ten."""
    _, state = trained(Whiten(1.0, "l1"), steps=1500)
    scale = select("scale/", state.bound)["w"]
    assert (scale[:-1] / scale[1:]).tolist() == pytest.approx([10 ** (1 / 3)] * 3, rel=0.1)


@both
@pytest.mark.parametrize("grain", ["coordinate", "parameter"])
def test_a_typical_gradient_keeps_its_whitened_length(objective, grain):
    """However the scale turns out, gradients of the sizes it was made for have the length `norm` in it."""
    bound = Whiten(0.7, objective, grain)
    _, state = trained(bound)
    squares, scale = select("square/", state.bound)["w"], select("scale/", state.bound)["w"]
    sizes = squares.clamp_min(0).sqrt().expand(4)
    sizes = sizes.clamp_min(1e-3 * sizes.square().mean().sqrt())
    sizes = sizes * (0.7 / sizes.norm())
    assert float((sizes / scale).norm()) == pytest.approx(0.7, rel=1e-6)


def test_one_scale_a_parameter_where_that_is_asked_for():
    _, state = trained(Whiten(grain="parameter"))
    assert select("scale/", state.bound)["w"].shape == ()
    assert select("scale/", state.bound)["w"].item() == pytest.approx(1.0)


def test_noise_is_taken_off_what_the_scale_is_made_of():
    """Gradients of zero: what is left of the squares is noise about zero, far below the noise that was drawn."""
    bound = Whiten(memory=0.99)
    mechanism = Mechanism(bound, GaussianNoise(1.0))
    like = {"w": torch.zeros(1000, dtype=torch.float64)}
    state = mechanism.init(like, 10.0)
    for step in range(500):
        fixed = MechanismStateWithScale(state, like)
        _, state = mechanism.step(SlowGradients({"w": torch.zeros(5, 1000, dtype=torch.float64)}), fixed, stream(step))
    squares = select("square/", state.bound)["w"]
    # The noise has variance 0.01; averaged over 200 steps and 1000 coordinates it is known to 0.1 %.
    assert abs(float(squares.mean())) < 1e-4
    doubt = float(select("doubt/", state.bound)["w"].mean())
    assert float(select("average/", state.bound)["w"].square().mean()) == pytest.approx(doubt, rel=0.25)


def MechanismStateWithScale(state, like):  # noqa: N802 - stands for a state
    """The same state with the scale it began with."""
    from dataclasses import replace

    return replace(state, bound={**state.bound, **put("scale/", {"w": torch.ones_like(like["w"])})})


@pytest.mark.parametrize("bound", [Whiten(), Whiten(grain="parameter"), AdaClip(), ShapedClip()], ids=str)
def test_the_state_is_a_function_of_releases_alone(bound):
    """Two runs on different data that happened to release the same have the same state."""
    like = {"w": torch.zeros(4, dtype=torch.float64)}
    state = bound.init(like, 10.0)
    noisy = {"w": torch.tensor([0.5, -0.2, 0.1, 2.0], dtype=torch.float64)}
    _, after = bound.receive(noisy, state)
    _, again = bound.receive(noisy, bound.init(like, 10.0))
    assert all(torch.equal(value, again[name]) for name, value in after.items())
    assert any(not torch.equal(value, state[name]) for name, value in after.items())


def test_a_mechanism_tells_the_bound_how_much_noise_there_was():
    _, state = trained(Whiten(2.0), steps=1, multiplier=1.5)
    assert float(state.bound["noise_std"]) == pytest.approx(3.0)


def test_half_precision_models_have_a_state_in_single_precision():
    state = Whiten().init({"w": torch.zeros(3, dtype=torch.bfloat16)}, 5.0)
    assert {value.dtype for name, value in state.items() if "/" in name} == {torch.float32}


@pytest.mark.parametrize(
    ("wrong", "match"), [({"objective": "l3"}, "'l1' or 'l2'"), ({"grain": "row"}, "'coordinate'")]
)
def test_unknown_choices_are_refused(wrong, match):
    with pytest.raises(InvalidArgument, match=match):
        Whiten(**wrong)


def widths(spread, gamma=1.0):
    return AdaClip(gamma=gamma).widths(put("variance/", {"w": spread.square()}))["w"]


def test_the_widths_of_adaclip_for_known_spreads():
    expected = [0.37549966711037175, 0.21679483388678802, 0.15329709716755893, 0.09695359714832658]
    assert widths(SIZES).tolist() == pytest.approx(expected, rel=1e-12)
    assert float((SIZES / widths(SIZES)).square().sum()) == pytest.approx(1.0)
    assert float((SIZES / widths(SIZES, 0.3)).square().sum()) == pytest.approx(0.3)


def test_adaclip_is_the_l2_scale_for_equal_weights():
    ones = torch.ones_like(SIZES)
    scale = whitening_scale({"": SIZES}, {"": ones}, {"": 1.0}, norm=1.0, objective="l2")[""]
    torch.testing.assert_close(widths(SIZES), scale)


def adaclip_state(mean, variance, lot_size=10.0):
    bound = AdaClip()
    state = bound.init({"w": torch.zeros_like(mean)}, lot_size)
    return bound, {**state, **put("mean/", {"w": mean}), **put("variance/", {"w": variance})}


def test_adaclip_is_a_loop_over_centred_gradients():
    torch.manual_seed(0)
    mean = torch.tensor([0.5, -0.1, 0.0, 0.02], dtype=torch.float64)
    bound, state = adaclip_state(mean, SIZES.square())
    rows = mean + SIZES * torch.randn(30, 4, dtype=torch.float64) * torch.logspace(-1, 1, 30)[:, None].double()
    expected = torch.zeros(4, dtype=torch.float64)
    for row in rows:
        centred = (row - mean) / widths(SIZES)
        expected += centred / max(1.0, float(centred.norm()))
    torch.testing.assert_close(bound.sum(SlowGradients({"w": rows}), state).values["w"], expected)


def test_adaclip_adds_its_mean_as_a_constant_and_moves_by_the_published_rule():
    mean = torch.tensor([0.5, -0.1, 0.0, 0.02], dtype=torch.float64)
    bound, state = adaclip_state(mean, SIZES.square())
    state = {**state, "noise_std": torch.tensor(0.7, dtype=torch.float64)}
    noisy = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    values, after = bound.receive({"w": noisy}, state)
    b = widths(SIZES)
    released = mean + b * noisy / 10
    torch.testing.assert_close(values["w"], released * 10)
    variance = ((released - mean) ** 2 - (b * 0.7 / 10) ** 2).clamp(1e-12, 1.0)
    torch.testing.assert_close(select("variance/", after)["w"], 0.9 * SIZES.square() + 0.1 * variance)
    torch.testing.assert_close(select("mean/", after)["w"], 0.99 * mean + 0.01 * released)


def test_an_absent_example_does_not_bring_the_mean():
    bound, state = adaclip_state(torch.ones(4, dtype=torch.float64), SIZES.square())
    empty = bound.sum(SlowGradients({"w": torch.zeros(0, 4, dtype=torch.float64)}), state)
    assert empty.values["w"].tolist() == [0.0] * 4


def test_rounding_never_lets_a_centred_gradient_through_too_long():
    """Single precision, and a mean a thousand times as long as the width: most digits of the difference are lost."""
    torch.manual_seed(0)
    mean = torch.randn(5000) * 30
    bound, state = adaclip_state(mean, torch.full((5000,), (1 / 5000) ** 2))
    for length in (0.5, 1.0, 1.5, 3.0):
        direction = torch.nn.functional.normalize(torch.randn(5000), dim=0)
        rows = SlowGradients({"w": (mean + length * widths_of(bound, state) * direction)[None]})
        exact = (rows.dense()["w"][0].double() - mean.double()) / widths_of(bound, state).double()
        inverse = {"w": 1 / widths_of(bound, state)}
        weight = float(bound._weights(rows, {"w": mean}, inverse)[0])
        assert weight * float(exact.norm()) <= 1 + 1e-6


def widths_of(bound, state):
    return bound.widths(state)["w"]


def test_noise_shaped_as_published_but_never_below_isotropic():
    bound = ShapedClip(1.0, memory=0.5)
    state = bound.init({"w": torch.zeros(3)}, 10.0)
    _, state = bound.receive({"w": torch.tensor([1.0, 8.0, 27.0])}, state)
    bounded = bound.sum(SlowGradients({"w": torch.eye(3)}), state)
    assert bounded.sensitivity == 1.0
    released, _ = bound.receive({"w": torch.ones(3)}, state)
    assert released["w"].tolist() == pytest.approx([1.0, 1.0, 5.269798938899203 / 5], rel=1e-5)


def test_the_sensitivity_of_unfloored_noise_is_its_worst_direction():
    bound = ShapedClip(1.0, floored=False)
    state = bound.steer({"w": torch.tensor([1.0, 8.0, 27.0])}, bound.init({"w": torch.zeros(3)}, 10.0))
    worst = SlowGradients({"w": torch.tensor([[100.0, 0.0, 0.0]])})
    bounded = bound.sum(worst, state)
    assert bounded.sensitivity == pytest.approx(5 / 1.7565996462997342, rel=1e-5)
    assert float(bounded.values["w"].norm()) == pytest.approx(bounded.sensitivity)
    assert not math.isinf(bounded.sensitivity)
