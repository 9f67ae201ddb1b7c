"""Convex losses of linear models, with the constants that privacy proofs need: every number here is a supremum.

A loss looks at an example's scores (its row times the coefficients) and its target. The gradient of an example is
then the outer product of its row and its `slopes`, so a declared norm of the rows turns bounds on slopes and
curvatures into Lipschitz and smoothness constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax

from tacit import _validate
from tacit._validate import Array
from tacit.errors import InvalidArgument

# Corners of a set of slopes: how many there are at which distance from zero. Zero itself is left out.
Corners = tuple[tuple[int, float], ...]

# So many thresholds away Huber's loss is linear in the target: clipping targets there changes no slope.
_FAR = 1e6


@runtime_checkable
class Loss(Protocol):
    """A convex loss with public constants. Scores and slopes are arrays [examples, outputs]."""

    @property
    def outputs(self) -> int:
        """The number of scores of an example."""

    @property
    def slope_bound(self) -> float:
        """The largest norm of an example's slopes; infinite if they are unbounded."""

    @property
    def curvature_bound(self) -> float:
        """The largest eigenvalue of the second derivative by the scores."""

    @property
    def curvature_trace(self) -> float:
        """The largest sum of those eigenvalues."""

    @property
    def curvature_rank(self) -> int:
        """The largest number of those eigenvalues that differ from zero."""

    @property
    def corners(self) -> Corners:
        """Corners of a polytope that contains all slopes of one target: their numbers and distances from zero."""

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """The largest norm of slopes at a minimiser of a regularised objective over rows within `data_norm`."""

    def encode(self, y: Any) -> Array:
        """Targets as the loss uses them. NaN stays NaN: such an example will count nothing."""

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """The value of each example [examples] and its slopes [examples, outputs]."""

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """The second derivative of each example times its direction."""


class _BoundedSlopes:
    """The slopes of the loss have the same bound everywhere."""

    def slope_bound_near(self: Loss, data_norm: float, regularisation: float) -> float:
        """The same bound, also at a minimiser."""
        return self.slope_bound


class _TwoClasses(_BoundedSlopes):
    """One score, of which the slope of one target has one sign; a target above 0 is the positive class."""

    outputs: ClassVar[int] = 1
    slope_bound: ClassVar[float] = 1.0
    curvature_rank: ClassVar[int] = 1
    corners: ClassVar[Corners] = ((1, 1.0),)

    def encode(self, y: Any) -> Array:
        numbers = _to_numbers(y)
        signs = np.where(numbers > 0, 1.0, -1.0)
        signs[np.isnan(numbers)] = np.nan
        return signs


class _OneNumber:
    """One score, compared with a number."""

    outputs: ClassVar[int] = 1
    curvature_bound: ClassVar[float] = 1.0
    curvature_trace: ClassVar[float] = 1.0
    curvature_rank: ClassVar[int] = 1


class _ManyClasses(_BoundedSlopes):
    """A score for each of `classes`; targets are 0, 1, ..., classes - 1."""

    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _validate.count("classes", self.classes, at_least=2))

    @property
    def outputs(self) -> int:
        return self.classes

    def encode(self, y: Any) -> Array:
        """Class numbers; refused if one is not among the declared classes."""
        numbers = _to_numbers(y)
        known = numbers[~np.isnan(numbers)]
        if np.any((known != np.floor(known)) | (known < 0) | (known >= self.classes)):
            raise InvalidArgument(
                f"y must hold class numbers 0, 1, ..., {self.classes - 1}. Classes must be declared: reading them off "
                "the data is not private. Declare all classes that are known in advance, and number them."
            )
        return numbers


@dataclass(frozen=True)
class Logistic(_TwoClasses):
    """log(1 + e^-margin) for two classes; a target above 0 is the positive class.

    >>> Logistic().evaluate(np.array([[0.0]]), Logistic().encode([1]))
    (array([0.69314718]), array([[-0.5]]))
    """

    curvature_bound: ClassVar[float] = 0.25
    curvature_trace: ClassVar[float] = 0.25

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        margins = targets * scores
        # One exponential serves both, and none overflows.
        small = np.exp(-np.abs(margins))
        values = np.log1p(small) - np.minimum(margins, 0.0)
        return values[:, 0], -targets * np.where(margins > 0, small, 1.0) / (1.0 + small)

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """p (1 - p) times the direction."""
        small = np.exp(-np.abs(scores))
        return small / (1.0 + small) ** 2 * directions


@dataclass(frozen=True)
class Squared(_OneNumber):
    """Half the squared difference, for targets clipped to [-target_bound, target_bound].

    Its slopes are unbounded: only the minimiser of a regularised objective stays near zero. Use `Huber` for methods
    that need a bound everywhere (objective perturbation, output of gradient steps).
    """

    target_bound: float
    slope_bound: ClassVar[float] = math.inf
    corners: ClassVar[Corners] = ((2, math.inf),)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="target_bound")

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """Coefficients of ridge regression have a norm of at most target_bound / (2 sqrt(regularisation)).

        They are s / (s^2 + regularisation) times targets / sqrt(n) in the directions of the rows' singular values
        s sqrt(n), and that factor is largest at s^2 = regularisation.
        """
        if regularisation == 0:
            return math.inf
        longest = self.target_bound / (2 * math.sqrt(regularisation))
        return self.target_bound + data_norm * longest

    def encode(self, y: Any) -> Array:
        return np.clip(_to_numbers(y), -self.target_bound, self.target_bound)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        difference = scores - targets
        return 0.5 * difference[:, 0] ** 2, difference

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        return directions


@dataclass(frozen=True)
class Huber(_OneNumber, _BoundedSlopes):
    """Half the squared difference up to `threshold`, straight beyond: regression with bounded slopes."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="threshold")

    @property
    def slope_bound(self) -> float:
        return self.threshold

    @property
    def corners(self) -> Corners:
        return ((2, self.threshold),)

    def encode(self, y: Any) -> Array:
        """Targets, clipped at a million thresholds."""
        return np.clip(_to_numbers(y), -_FAR * self.threshold, _FAR * self.threshold)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        difference = scores - targets
        slopes = np.clip(difference, -self.threshold, self.threshold)
        # With slope c and difference r this is r^2 / 2 inside and t |r| - t^2 / 2 outside.
        return (slopes * (difference - 0.5 * slopes))[:, 0], slopes

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        return np.where(np.abs(scores - targets) <= self.threshold, directions, 0.0)


@dataclass(frozen=True)
class SmoothHinge(_TwoClasses):
    """The hinge max(0, 1 - margin), rounded by a parabola within `width` of its kink (Chaudhuri et al. 2011)."""

    width: float = 0.5

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="width")

    @property
    def curvature_bound(self) -> float:
        return 1 / (2 * self.width)

    @property
    def curvature_trace(self) -> float:
        return self.curvature_bound

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Zero beyond 1 + width, straight before 1 - width, a parabola between."""
        missing = 1.0 - targets * scores
        share = np.clip((missing + self.width) / (2 * self.width), 0.0, 1.0)
        values = np.where(missing > self.width, missing, self.width * share**2)
        return values[:, 0], -targets * share

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        return np.where(np.abs(1.0 - targets * scores) <= self.width, self.curvature_bound * directions, 0.0)


@dataclass(frozen=True)
class Multinomial(_ManyClasses):
    """Cross-entropy of a softmax over `classes`; targets are 0, 1, ..., classes - 1."""

    classes: int

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
class OneVsRest(_ManyClasses):
    """One model per class, each separating it from all others by a loss of two classes; targets are class numbers.

    All models are trained and released together, and one example moves up to `classes` of them, so `Multinomial` costs
    less.
    """

    loss: Logistic | SmoothHinge
    classes: int

    @property
    def slope_bound(self) -> float:
        """All models may be wrong at once."""
        return math.sqrt(self.classes) * self.loss.slope_bound

    @property
    def curvature_bound(self) -> float:
        """Each model has curvature of its own only."""
        return self.loss.curvature_bound

    @property
    def curvature_trace(self) -> float:
        return self.classes * self.loss.curvature_trace

    @property
    def curvature_rank(self) -> int:
        return self.classes

    @property
    def corners(self) -> Corners:
        """Those of a cube: some models wrong, the others right."""
        cube = range(1, self.classes + 1)
        return tuple((math.comb(self.classes, wrong), math.sqrt(wrong) * self.loss.slope_bound) for wrong in cube)

    def encode(self, y: Any) -> Array:
        """For every class 1 if it is the target, -1 if not."""
        numbers = super().encode(y)
        signs = np.where(numbers == np.arange(self.classes), 1.0, -1.0)
        signs[np.isnan(numbers[:, 0])] = np.nan
        return signs

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        values, slopes = self.loss.evaluate(scores.reshape(-1, 1), targets.reshape(-1, 1))
        return values.reshape(scores.shape).sum(axis=1), slopes.reshape(scores.shape)

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
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


def _to_numbers(y: Any) -> Array:
    """One number per example, as a column; NaN for what is not finite."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidArgument(
            f"y must hold one number per example. Got an array of shape {values.shape} and type {values.dtype}."
        )
    column = values.astype(np.float64)[:, None]
    column[~np.isfinite(column)] = np.nan
    return column
