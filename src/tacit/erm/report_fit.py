"""Linear models from noisy reports: as they are, or corrected for what the noise does on average. Free of charge."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tacit._validate import Array
from tacit.erm.classes import Multinomial
from tacit.erm.losses import Logistic, Squared
from tacit.erm.noisy_data import PerturbedData, with_rows
from tacit.erm.problem import Problem
from tacit.erm.reports import Randomizer, keep_probability
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument

# Noise moves the minimiser by far more than a gradient of this share of the longest one does.
_TOLERANCE = 1e-7


def fit_reports(
    problem: Problem, data: PerturbedData, randomizer: Randomizer, *, intercept: bool, debias: bool
) -> Array:
    """Coefficients [columns, outputs] of the regularised problem over the reports. Public, as they are.

    De-biased, Squared uses second moments without those of the noise. For Logistic and Multinomial the labels are
    corrected so that the objective is, on average over their noise, the one without it; features are replaced by what
    they most likely were (regression calibration: exact for linear regression, to first order here), or noise would
    shrink their coefficients and not the intercept. Other losses have no such correction and are refused.
    """
    # Noise may take numbers beyond their bound, and clipping them there would pull them towards zero.
    is_number = randomizer.labels.bound is not None
    targets = data.y[:, None] if is_number else problem.loss.encode(data.y)
    noisy = with_rows(replace(problem, targets=targets), data.x, intercept=intercept)
    if not debias:
        return _minimiser(noisy)
    match problem.loss:
        case Squared():
            return _corrected_moments(noisy, randomizer, intercept, problem.data_norm)
        case Logistic() | Multinomial():
            return _calibrated(noisy, data, randomizer, problem.data_norm, intercept)
    raise InvalidArgument(
        f"{problem.loss!r} cannot be de-biased: the label does not enter it linearly. Use Logistic, Multinomial or "
        "Squared, or leave debias out."
    )


def label_correction(noisy: Problem, numbers: Array, randomizer: Randomizer) -> Array:
    """The linear term that takes the noise on labels off the objective, on average.

    With k classes kept with odds g = e^epsilon against each other one, the loss of the label y is, on average,
    ((k - 1 + g) l(y) - sum over all j of l(j)) / (g - 1) of the noisy one: the inverse of the flips. For a softmax, and
    for the logistic loss, that is l(y) and a term that is linear in the scores.
    """
    epsilon = randomizer.label_epsilon
    if epsilon is None:
        return np.zeros(noisy.shape)
    choices = randomizer.labels.choices
    assert choices is not None
    kept = keep_probability(epsilon, choices)
    others = (1 - kept) / (choices - 1)
    share = others / (kept - others)
    classes = np.equal.outer(numbers, np.arange(choices)).astype(np.float64)
    # Of every class's score: minus (k share) where it is the label, and plus share for all.
    weights = share - choices * share * classes
    if noisy.loss.outputs == 1:
        # One score for the second class against the first: with scores -s/2 and s/2 the losses are the same.
        weights = (weights[:, 1:] - weights[:, :1]) / 2
    correction: Array = noisy.rows.T @ weights / noisy.n
    return correction


def _calibrated(
    noisy: Problem, data: PerturbedData, randomizer: Randomizer, data_norm: float, intercept: bool
) -> Array:
    """Corrected labels and calibrated features, regularised so that squares would give ridge regression.

    Features that vary by S under noise that varies by v most likely were S / (S + v) of what is seen (regression
    calibration). Scores share that factor evenly between features and coefficients, whose regularisation is then as
    without noise (but for the intercept, which is that of centred features).
    """
    centre = data.x.mean(axis=0) if intercept else np.zeros(data.x.shape[1])
    variance = randomizer.variance(centre.size)
    shifted = data.x - centre
    values, vectors = np.linalg.eigh(shifted.T @ shifted / len(shifted))
    spread = within_trace(values - variance, data_norm**2)
    root = np.sqrt(spread / (spread + variance))
    calm = with_rows(noisy, shifted @ vectors * root, intercept=intercept)
    theta = _minimiser(replace(calm, linear=label_correction(calm, data.y, randomizer)))
    weights = vectors @ (theta[: centre.size] / np.where(root > 0, root, np.inf)[:, None])
    if intercept:
        weights = np.concatenate([weights, theta[centre.size :] - centre @ weights])
    return np.asarray(weights)


def within_trace(values: Array, most: float) -> Array:
    """The nearest numbers that are not negative and add up to no more than `most`.

    The squares of rows of norm r add up to r^2, so second moments cannot have a larger trace; noise can.
    """
    positive = np.maximum(values, 0.0)
    if positive.sum() <= most:
        return positive
    falling = np.sort(positive)[::-1]
    over = (np.cumsum(falling) - most) / np.arange(1, falling.size + 1)
    return np.asarray(np.maximum(positive - over[np.flatnonzero(falling > over)[-1]], 0.0))


def _corrected_moments(noisy: Problem, randomizer: Randomizer, intercept: bool, data_norm: float) -> Array:
    """Ridge regression on second moments without the noise's own; noise on the targets averages out by itself."""
    features = noisy.columns - intercept
    moments = noisy.rows.T @ noisy.rows / noisy.n
    moments[np.arange(features), np.arange(features)] -= randomizer.variance(features)
    values, vectors = np.linalg.eigh(moments)
    spread = within_trace(values, data_norm**2 + intercept) + noisy.regularisation
    if not np.all(spread > 0):
        raise InvalidArgument(
            "De-biased second moments are not positive, so the fit needs a regularisation above 0. Common values lie "
            "between 1e-4 and 1e-1."
        )
    cross = vectors.T @ (noisy.rows.T @ noisy.targets / noisy.n)
    coefficients: Array = vectors @ (cross / spread[:, None])
    return coefficients


def _minimiser(noisy: Problem) -> Array:
    slope = noisy.loss.slope_bound
    if not math.isfinite(slope):
        slope = float(np.abs(noisy.targets).max()) + 1.0
    given = 0.0 if noisy.linear is None else float(np.linalg.norm(noisy.linear))
    steepest = slope * noisy.data_norm + given
    tolerance = _TOLERANCE * steepest
    if noisy.regularisation > 0:
        # Large corrections may lead far away, where double precision cannot tell so little apart.
        tolerance = max(tolerance, reachable_tolerance(noisy, steepest / noisy.regularisation))
    return minimise(noisy, tolerance).theta
