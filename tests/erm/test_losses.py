"""Losses: values as torch has them, slopes and curvatures as differences of them, constants never passed."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from support.erm_examples import BOUNDED, LOSSES, targets_for
from tacit.erm import Huber, Logistic, Multinomial, OneVsRest, SmoothHinge, Squared, probabilities
from tacit.errors import InvalidArgument

seeds = st.integers(0, 2**32 - 1)


def drawn(loss, seed, n=7, spread=4.0):
    rng = np.random.default_rng(seed)
    scores = spread * rng.normal(size=(n, loss.outputs))
    return scores, loss.encode(targets_for(loss, n, rng)), rng


@pytest.mark.slow
@given(seed=seeds)
def test_values_and_slopes_are_those_of_torch(seed):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(5 * rng.normal(size=(6, 3)), requires_grad=True)
    classes = rng.integers(0, 3, 6)
    pairs = [
        (Multinomial(3), scores, classes, functional.cross_entropy(scores, torch.tensor(classes), reduction="none")),
    ]
    one = scores[:, :1]
    signs = torch.tensor(classes[:, None] > 0, dtype=torch.float64)
    reals = torch.tensor(rng.normal(size=(6, 1)))
    logistic = functional.binary_cross_entropy_with_logits(one, signs, reduction="none")
    pairs.append((Logistic(), one, classes, logistic))
    pairs.append((Huber(0.7), one, reals[:, 0].numpy(), functional.huber_loss(one, reals, reduction="none", delta=0.7)))
    pairs.append((Squared(9.0), one, reals[:, 0].numpy(), 0.5 * functional.mse_loss(one, reals, reduction="none")))
    for loss, inputs, targets, expected in pairs:
        values, slopes = loss.evaluate(inputs.detach().numpy(), loss.encode(targets))
        assert values == pytest.approx(expected.detach().numpy().ravel(), rel=1e-12, abs=1e-14)
        gradient = torch.autograd.grad(expected.sum(), inputs, retain_graph=True)[0].numpy()
        assert slopes == pytest.approx(gradient, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@given(seed=seeds)
def test_slopes_are_differences_of_values_and_bends_of_slopes(loss, seed):
    scores, targets, rng = drawn(loss, seed, spread=1.5)
    direction = rng.normal(size=scores.shape)
    step = 1e-6
    ahead, behind = (loss.evaluate(scores + sign * step * direction, targets) for sign in (1, -1))
    along = np.sum(loss.evaluate(scores, targets)[1] * direction, axis=1)
    assert (ahead[0] - behind[0]) / (2 * step) == pytest.approx(along, rel=1e-5, abs=1e-5)
    bent = loss.bend(scores, targets, direction)
    # Where the slope has a kink in between, a difference is anything between the two sides.
    sides = [loss.bend(scores + sign * step * direction, targets, direction) for sign in (1, -1)]
    smooth = np.all(np.abs(sides[0] - sides[1]) < 1e-4, axis=1)
    assert ((ahead[1] - behind[1]) / (2 * step))[smooth] == pytest.approx(bent[smooth], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
@given(seed=seeds, spread=st.sampled_from([0.1, 1.0, 30.0, 1e4]))
def test_no_slope_is_longer_than_its_bound(loss, seed, spread):
    scores, targets, _ = drawn(loss, seed, spread=spread)
    slopes = loss.evaluate(scores, targets)[1]
    assert np.linalg.norm(slopes, axis=1).max() <= loss.slope_bound * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@given(seed=seeds, spread=st.sampled_from([0.01, 1.0, 10.0]))
def test_curvatures_stay_within_bound_trace_and_rank(loss, seed, spread):
    scores, targets, _ = drawn(loss, seed, n=1, spread=spread)
    columns = [loss.bend(scores, targets, unit[None])[0] for unit in np.eye(loss.outputs)]
    eigenvalues = np.linalg.eigvalsh(np.array(columns))
    assert eigenvalues.min() >= -1e-12
    assert eigenvalues.max() <= loss.curvature_bound * (1 + 1e-12)
    assert eigenvalues.sum() <= loss.curvature_trace * (1 + 1e-12)
    assert np.sum(eigenvalues > 1e-12) <= loss.curvature_rank


def corner_vectors(loss, target):
    """The corners by hand, for one encoded target."""
    if isinstance(loss, Multinomial):
        units = np.eye(loss.classes)
        return [units[j] - units[int(target[0])] for j in range(loss.classes) if j != int(target[0])]
    if isinstance(loss, OneVsRest):
        return [-np.array(wrong) * target for wrong in itertools.product([0, 1], repeat=loss.classes) if any(wrong)]
    if isinstance(loss, Huber):
        return [np.array([loss.threshold]), np.array([-loss.threshold])]
    return [-target]


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
@given(seed=seeds, spread=st.sampled_from([0.3, 3.0, 100.0]))
def test_slopes_lie_between_the_corners(loss, seed, spread):
    scores, targets, rng = drawn(loss, seed, n=3, spread=spread)
    slopes = loss.evaluate(scores, targets)[1]
    for slope, target in zip(slopes, targets, strict=True):
        corners = corner_vectors(loss, target)
        for direction in rng.normal(size=(8, loss.outputs)):
            furthest = max(0.0, *(float(corner @ direction) for corner in corners))
            assert slope @ direction <= furthest + 1e-9


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
def test_corners_are_counted_and_measured(loss):
    target = loss.encode([1])[0]
    lengths = sorted(float(np.linalg.norm(corner)) for corner in corner_vectors(loss, target))
    stated = sorted(distance for number, distance in loss.corners for _ in range(number))
    assert stated == pytest.approx(lengths)


@pytest.mark.parametrize(
    ("loss", "slope", "curvature"),
    [
        (Logistic(), 1.0, 0.25),
        (SmoothHinge(0.25), 1.0, 2.0),
        (Huber(0.4), 0.4, 1.0),
        (Multinomial(4), math.sqrt(2), 0.5),
    ],
    ids=str,
)
def test_constants_are_reached(loss, slope, curvature):
    """Larger constants would be safe, and wasteful."""
    assert (loss.slope_bound, loss.curvature_bound) == pytest.approx((slope, curvature))
    rng = np.random.default_rng(0)
    scores = np.concatenate([s * rng.normal(size=(4000, loss.outputs)) for s in (0.05, 1.0, 40.0)])
    targets = loss.encode(targets_for(loss, len(scores), rng))
    slopes = loss.evaluate(scores, targets)[1]
    assert np.linalg.norm(slopes, axis=1).max() == pytest.approx(slope, rel=1e-3)
    if isinstance(loss, Multinomial):
        even = np.array([[30.0, 30.0, 0.0, 0.0]])
        bent = loss.bend(even, loss.encode([0]), np.array([[1.0, -1.0, 0.0, 0.0]]) / math.sqrt(2))
    else:
        bent = loss.bend(scores, targets, np.ones_like(scores))
    assert np.linalg.norm(bent, axis=1).max() == pytest.approx(curvature, rel=1e-2)


@given(seed=seeds, regularisation=st.sampled_from([1e-3, 0.1, 1.0]))
def test_ridge_regression_stays_where_its_slopes_are_bounded(seed, regularisation):
    """The closed form against the bound that the sensitivity of squared loss rests on."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 2))
    rows *= rng.uniform(0.2, 1.0, 5)[:, None] * 1.5 / np.linalg.norm(rows, axis=1)[:, None]
    loss = Squared(2.0)
    targets = loss.encode(5 * rng.normal(size=5))[:, 0]
    theta = np.linalg.solve(rows.T @ rows / 5 + regularisation * np.eye(2), rows.T @ targets / 5)
    other = 1.5 * theta / np.linalg.norm(theta)
    worst = abs(other @ theta) + 2.0
    assert worst <= loss.slope_bound_near(1.5, regularisation) * (1 + 1e-12)


def test_far_away_scores_give_finite_values():
    for loss in BOUNDED:
        scores = np.full((2, loss.outputs), 1e6) * np.arange(1, loss.outputs + 1)
        values, slopes = loss.evaluate(np.concatenate([scores, -scores]), loss.encode([0, 1, 0, 1]))
        assert np.isfinite(values).all()
        assert np.isfinite(slopes).all()


def test_what_is_no_class_is_refused():
    for wrong in ([0, 3], [-1, 0], [0.5, 1]):
        with pytest.raises(InvalidArgument, match=r"class numbers 0, 1, \.\.\., 2"):
            Multinomial(3).encode(wrong)
    with pytest.raises(InvalidArgument, match="one number per example"):
        Logistic().encode(["a", "b"])


def test_two_classes_are_told_apart_by_their_sign():
    assert Logistic().encode([0, 1, -1, 2]).ravel().tolist() == [-1, 1, -1, 1]


def test_what_is_no_number_stays_none():
    for loss in LOSSES:
        assert np.isnan(loss.encode(np.array([1.0, np.nan, np.inf]))[1:]).all()


def test_probabilities_sum_to_one():
    scores = np.array([[1.0, -2.0, 0.5]])
    for loss in (Multinomial(3), OneVsRest(Logistic(), 3)):
        assert probabilities(loss, scores).sum() == pytest.approx(1.0)
    assert probabilities(Logistic(), np.array([[0.0]])).tolist() == [[0.5, 0.5]]
    with pytest.raises(InvalidArgument, match="no probabilities"):
        probabilities(SmoothHinge(), np.zeros((1, 1)))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_column_of_targets_is_read_like_a_row_of_them(loss):
    targets = np.asarray(targets_for(loss, 6, np.random.default_rng(0)))
    assert np.array_equal(loss.encode(targets[:, None]), loss.encode(targets))
