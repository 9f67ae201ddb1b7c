"""Linear models from noisy reports: as they are, or corrected for what the noise does on average. Free of charge."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tacit.arguments import Array
from tacit.convex.classes import Multinomial
from tacit.convex.losses import Logistic, Squared
from tacit.convex.problem import Problem
from tacit.convex.solver import minimise
from tacit.errors import InvalidArgument
from tacit.inputs.local import Randomizer, keep_probability
from tacit.inputs.perturb import PerturbedData, with_rows

# Noise moves the minimiser by far more than a gradient of this share of the longest one does.
_TOLERANCE = 1e-7


def fit_reports(
    problem: Problem, data: PerturbedData, randomizer: Randomizer, *, intercept: bool, debias: bool
) -> Array:
    """Coefficients [columns, outputs] of the regularised problem over the reports. Public, as they are.

    De-biased, the objective is, on average over the noise on labels, the one without it: for losses in which the
    label enters linearly (Logistic, Multinomial). For Squared it is so over the noise on features too; what
    is left of the second moments is made positive. Other losses have no such correction and are refused.
    """
    # Noise may take numbers beyond their bound, and clipping them there would pull them towards zero.
    is_number = randomizer.labels.bound is not None
    targets = data.y[:, None] if is_number else problem.loss.encode(data.y)
    noisy = with_rows(replace(problem, targets=targets), data.x, intercept=intercept)
    if not debias:
        return _minimiser(noisy)
    match problem.loss:
        case Squared():
            return _corrected_moments(noisy, randomizer, intercept)
        case Logistic() | Multinomial():
            return _minimiser(replace(noisy, linear=label_correction(noisy, data.y, randomizer)))
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


def _corrected_moments(noisy: Problem, randomizer: Randomizer, intercept: bool) -> Array:
    """Ridge regression on second moments without the noise's own; noise on the targets averages out by itself."""
    features = noisy.columns - intercept
    moments = noisy.rows.T @ noisy.rows / noisy.n
    moments[np.arange(features), np.arange(features)] -= randomizer.variance(features)
    values, vectors = np.linalg.eigh(moments)
    spread = np.maximum(values, 0.0) + noisy.regularisation
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
    return minimise(noisy, _TOLERANCE * (slope * noisy.data_norm + given)).theta
