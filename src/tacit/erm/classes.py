"""Losses of several classes: a softmax, or one model per class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax

from tacit import _validate
from tacit._validate import Array
from tacit.erm.losses import Corners, Logistic, Loss, SmoothHinge, numbers_of
from tacit.errors import InvalidArgument


@dataclass(frozen=True)
class Multinomial:
    """Cross-entropy of a softmax over `classes`; targets are 0, 1, ..., classes - 1."""

    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _validate.count("classes", self.classes, at_least=2))

    @property
    def outputs(self) -> int:
        """One score per class."""
        return self.classes

    @property
    def slope_bound(self) -> float:
        """p - e_y reaches e_j - e_y."""
        return math.sqrt(2)

    @property
    def curvature_bound(self) -> float:
        """diag(p) - pp' has eigenvalues up to 1/2, with two classes at 1/2 each."""
        return 0.5

    @property
    def curvature_trace(self) -> float:
        """1 - sum of p^2."""
        return 1 - 1 / self.classes

    @property
    def curvature_rank(self) -> int:
        """A constant added to all scores changes nothing."""
        return self.classes - 1

    @property
    def corners(self) -> Corners:
        """e_j - e_y, for every other class j."""
        return ((self.classes - 1, math.sqrt(2)),)

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """As everywhere."""
        return self.slope_bound

    def encode(self, y: Any) -> Array:
        """The classes as they are; refused where one is not among those declared."""
        return _class_numbers(y, self.classes)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """log sum e^score - score of the target, and p - e_y."""
        rows, chosen = np.arange(len(scores)), targets[:, 0].astype(np.int64)
        total = logsumexp(scores, axis=1)
        slopes: Array = np.exp(scores - total[:, None])
        slopes[rows, chosen] -= 1.0
        return total - scores[rows, chosen], slopes

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """(diag(p) - pp') times the direction."""
        p = softmax(scores, axis=1)
        weighted = p * directions
        bent: Array = weighted - p * weighted.sum(axis=1, keepdims=True)
        return bent


@dataclass(frozen=True)
class OneVsRest:
    """One model per class, each telling it from all others by a loss of two classes; targets are class numbers.

    All models are trained and released together, so one example moves up to `classes` of them: `Multinomial` is
    cheaper where a softmax will do.
    """

    loss: Logistic | SmoothHinge
    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _validate.count("classes", self.classes, at_least=2))

    @property
    def outputs(self) -> int:
        """One score per class."""
        return self.classes

    @property
    def slope_bound(self) -> float:
        """Every model may be wrong at once."""
        return math.sqrt(self.classes) * self.loss.slope_bound

    @property
    def curvature_bound(self) -> float:
        """The models do not bend each other."""
        return self.loss.curvature_bound

    @property
    def curvature_trace(self) -> float:
        """Those of all models."""
        return self.classes * self.loss.curvature_trace

    @property
    def curvature_rank(self) -> int:
        """One for every model."""
        return self.classes

    @property
    def corners(self) -> Corners:
        """Those of a cube: any of the models wrong, the others right."""
        cube = range(1, self.classes + 1)
        return tuple((math.comb(self.classes, wrong), math.sqrt(wrong) * self.loss.slope_bound) for wrong in cube)

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """As everywhere."""
        return self.slope_bound

    def encode(self, y: Any) -> Array:
        """For every class 1 where it is the target, -1 where not."""
        numbers = _class_numbers(y, self.classes)
        signs = np.where(numbers == np.arange(self.classes), 1.0, -1.0)
        signs[np.isnan(numbers[:, 0])] = np.nan
        return signs

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """The sum over the models, and the slope of each."""
        values, slopes = self.loss.evaluate(scores.reshape(-1, 1), targets.reshape(-1, 1))
        return values.reshape(scores.shape).sum(axis=1), slopes.reshape(scores.shape)

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """Each model by itself."""
        return self.loss.bend(scores, targets, directions)


def probabilities(loss: Loss, scores: Array) -> Array:
    """The probability of every class [examples, classes] under a logistic or multinomial loss."""
    if isinstance(loss, Logistic):
        return np.concatenate([expit(-scores), expit(scores)], axis=1)
    if isinstance(loss, Multinomial):
        return np.asarray(softmax(scores, axis=1))
    if isinstance(loss, OneVsRest) and isinstance(loss.loss, Logistic):
        shares = np.exp(log_expit(scores) - logsumexp(log_expit(scores), axis=1, keepdims=True))
        return np.asarray(shares)
    raise InvalidArgument(f"{loss!r} models no probabilities. Use Logistic or Multinomial.")


def _class_numbers(y: Any, classes: int) -> Array:
    numbers = numbers_of(y)
    known = numbers[~np.isnan(numbers)]
    if np.any((known != np.floor(known)) | (known < 0) | (known >= classes)):
        raise InvalidArgument(
            f"y must hold class numbers 0, 1, ..., {classes - 1}: the classes are declared, not looked up in the data. "
            "Number the classes that are known in advance, and declare as many."
        )
    return numbers
