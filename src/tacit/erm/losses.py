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

from tacit import _validate
from tacit._validate import Array
from tacit.errors import InvalidArgument

# Corners of a set of slopes: how many there are at which distance from zero. Zero itself is left out.
Corners = tuple[tuple[int, float], ...]

# Huber's loss grows by its threshold per unit from here on, whatever the scores: nothing is lost by stopping.
_FAR = 1e6


@runtime_checkable
class Loss(Protocol):
    """A convex loss with public constants. Scores and slopes are arrays [examples, outputs]."""

    @property
    def outputs(self) -> int:
        """How many scores an example has."""

    @property
    def slope_bound(self) -> float:
        """The largest norm of an example's slopes; infinite where they have none."""

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
        """Corners of a polytope that holds all slopes of one target: their numbers and distances from zero."""

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """The largest norm of slopes at a minimiser of a regularised objective over rows within `data_norm`."""

    def encode(self, y: Any) -> Array:
        """Targets as the loss reads them. What is no number stays none: such an example will count nothing."""

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """The value of each example [examples] and its slopes [examples, outputs]."""

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """The second derivative of each example times its direction."""


@dataclass(frozen=True)
class Logistic:
    """log(1 + e^-margin) for two classes; a target above 0 is the positive class.

    >>> Logistic().evaluate(np.array([[0.0]]), Logistic().encode([1]))
    (array([0.69314718]), array([[-0.5]]))
    """

    outputs: ClassVar[int] = 1
    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25
    curvature_trace: ClassVar[float] = 0.25
    curvature_rank: ClassVar[int] = 1
    # The slope of one target has one sign.
    corners: ClassVar[Corners] = ((1, 1.0),)

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """As everywhere."""
        return self.slope_bound

    def encode(self, y: Any) -> Array:
        """1 for the positive class, -1 for the other."""
        return _signs(y)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """log(1 + e^-margin) and its slope."""
        margins = targets * scores
        # One exponential serves both, and none overflows.
        small = np.exp(-np.abs(margins))
        values = np.log1p(small) - np.minimum(margins, 0.0)
        return values[:, 0], -targets * np.where(margins > 0, small, 1.0) / (1.0 + small)

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """p (1 - p) times the direction."""
        small = np.exp(-np.abs(scores))
        bent: Array = small / (1.0 + small) ** 2 * directions
        return bent


@dataclass(frozen=True)
class Squared:
    """Half the squared difference, for targets clipped to [-target_bound, target_bound].

    Its slopes have no bound of their own: only the minimiser of a regularised objective stays near zero. What
    needs a bound everywhere (objective perturbation, output of gradient steps) takes `Huber`.
    """

    target_bound: float
    outputs: ClassVar[int] = 1
    slope_bound: ClassVar[float] = math.inf
    curvature_bound: ClassVar[float] = 1.0
    curvature_trace: ClassVar[float] = 1.0
    curvature_rank: ClassVar[int] = 1
    corners: ClassVar[Corners] = ((2, math.inf),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_bound", _validate.positive("target_bound", self.target_bound))

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
        """Targets within the declared bound."""
        return np.clip(numbers_of(y), -self.target_bound, self.target_bound)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Half the square, and the difference."""
        difference = scores - targets
        return 0.5 * difference[:, 0] ** 2, difference

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """The direction itself."""
        return directions


@dataclass(frozen=True)
class Huber:
    """Half the squared difference up to `threshold`, straight beyond: regression with bounded slopes."""

    threshold: float = 1.0
    outputs: ClassVar[int] = 1
    curvature_bound: ClassVar[float] = 1.0
    curvature_trace: ClassVar[float] = 1.0
    curvature_rank: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _validate.positive("threshold", self.threshold))

    @property
    def slope_bound(self) -> float:
        """The threshold."""
        return self.threshold

    @property
    def corners(self) -> Corners:
        """Slopes of either sign."""
        return ((2, self.threshold),)

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """As everywhere."""
        return self.slope_bound

    def encode(self, y: Any) -> Array:
        """Targets as they are, up to a million thresholds."""
        return np.clip(numbers_of(y), -_FAR * self.threshold, _FAR * self.threshold)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Value and clipped difference."""
        difference = scores - targets
        slopes = np.clip(difference, -self.threshold, self.threshold)
        # With slope c and difference r this is r^2 / 2 inside and t |r| - t^2 / 2 outside.
        return (slopes * (difference - 0.5 * slopes))[:, 0], slopes

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """The direction inside the threshold, zero outside."""
        return np.where(np.abs(scores - targets) <= self.threshold, directions, 0.0)


@dataclass(frozen=True)
class SmoothHinge:
    """The hinge max(0, 1 - margin), rounded by a parabola within `width` of its kink (Chaudhuri et al. 2011)."""

    width: float = 0.5
    outputs: ClassVar[int] = 1
    slope_bound: ClassVar[float] = 1.0
    curvature_rank: ClassVar[int] = 1
    # The slope of one target has one sign.
    corners: ClassVar[Corners] = ((1, 1.0),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", _validate.positive("width", self.width))

    @property
    def curvature_bound(self) -> float:
        """That of the parabola."""
        return 1 / (2 * self.width)

    @property
    def curvature_trace(self) -> float:
        """That of the parabola."""
        return self.curvature_bound

    def slope_bound_near(self, data_norm: float, regularisation: float) -> float:
        """As everywhere."""
        return self.slope_bound

    def encode(self, y: Any) -> Array:
        """1 for a target above 0, -1 for the others."""
        return _signs(y)

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Zero beyond 1 + width, straight before 1 - width, a parabola between."""
        missing = 1.0 - targets * scores
        share = np.clip((missing + self.width) / (2 * self.width), 0.0, 1.0)
        values = np.where(missing > self.width, missing, self.width * share**2)
        return values[:, 0], -targets * share

    def bend(self, scores: Array, targets: Array, directions: Array) -> Array:
        """The parabola's curvature near the kink, zero elsewhere."""
        return np.where(np.abs(1.0 - targets * scores) <= self.width, self.curvature_bound * directions, 0.0)


def numbers_of(y: Any) -> Array:
    """One number per example, as a column; whatever is not finite becomes NaN."""
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


def _signs(y: Any) -> Array:
    numbers = numbers_of(y)
    signs = np.where(numbers > 0, 1.0, -1.0)
    signs[np.isnan(numbers)] = np.nan
    return signs
