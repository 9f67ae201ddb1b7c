"""The empirical risk over rows that were clipped to the declared norm: value, gradient and curvature. Private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from tacit import _validate
from tacit._validate import Array
from tacit.erm.losses import Logistic, Loss, SmoothHinge
from tacit.erm.rows import Rows, StayingRows, hold_rows, measure_norms, scale_rows, weigh_squares
from tacit.errors import InvalidArgument
from tacit.randomness import Indices

# Rounding may leave a clipped row longer than allowed by some units in the last place.
_CLIPPED = 1 - 1e-12


@dataclass(frozen=True, eq=False)
class Problem:
    """mean of losses + (regularisation / 2) |theta|^2 + linear . theta, over theta [columns, outputs].

    Every row has a norm of at most `data_norm`. The column of an intercept is part of the row: it is clipped with it,
    and its coefficient is regularised like the others. `linear` is used by objective perturbation only.
    """

    # Or what stands in for an array: `tacit.erm.rows`.
    rows: Array
    targets: Array
    loss: Loss
    regularisation: float
    data_norm: float
    linear: Array | None = None

    @property
    def n(self) -> int:
        """The number of examples, which is public if examples are replaced."""
        return int(self.rows.shape[0])

    @property
    def columns(self) -> int:
        return int(self.rows.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the coefficients: columns by outputs."""
        return self.columns, self.loss.outputs

    @property
    def dimension(self) -> int:
        """The number of coefficients."""
        return self.columns * self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """The largest norm of one example's gradient without the regulariser; may be infinite."""
        return self.loss.slope_bound * self.data_norm

    @property
    def lipschitz_near(self) -> float:
        """The same at a minimiser."""
        return self.loss.slope_bound_near(self.data_norm, self.regularisation) * self.data_norm

    @property
    def smoothness(self) -> float:
        """The largest curvature of one example's loss with the regulariser."""
        return self.loss.curvature_bound * self.data_norm**2 + self.regularisation

    @property
    def numbers(self) -> Array:
        """Targets [examples]: numbers, or class numbers from 0."""
        if isinstance(self.loss, Logistic | SmoothHinge):
            return (self.targets[:, 0] > 0).astype(np.float64)
        one = self.targets.shape[1] == 1
        return self.targets[:, 0] if one else np.argmax(self.targets, axis=1).astype(np.float64)

    @cached_property
    def norms(self) -> Array:
        return measure_norms(self.rows)

    def require_regularisation(self, why: str, otherwise: str = "") -> None:
        """Raise without one; `why` it is needed, and what else can be done."""
        if self.regularisation == 0:
            raise InvalidArgument(f"regularisation must be above 0{why}. Common values are 1e-4 to 1e-1{otherwise}.")

    def scores(self, theta: Array) -> Array:
        return self.rows @ theta

    def objective(self, theta: Array) -> float:
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        values, slopes = self.loss.evaluate(self.scores(theta), self.targets)
        value = float(values.mean()) + 0.5 * self.regularisation * float(np.sum(theta**2))
        gradient = self.rows.T @ slopes / self.n + self.regularisation * theta
        if self.linear is not None:
            value += float(np.sum(self.linear * theta))
            gradient += self.linear
        return value, gradient

    def hessian(self, theta: Array) -> Array:
        """The second derivative at `theta` as a matrix, for one output."""
        curvatures = self.loss.bend(self.scores(theta), self.targets, np.ones((self.n, 1)))
        hessian = weigh_squares(self.rows, curvatures[:, 0] / self.n)
        hessian[np.diag_indices_from(hessian)] += self.regularisation
        return hessian

    def hessian_times(self, scores: Array, direction: Array) -> Array:
        """The second derivative at these scores, times a direction."""
        bent = self.loss.bend(scores, self.targets, self.rows @ direction)
        return self.rows.T @ bent / self.n + self.regularisation * direction

    def descend(self, gradient: Callable[[Array, int], Array], step_sizes: Array) -> Array:
        """The last of some gradient steps from zero. `gradient` leaves out the regulariser, which is added here."""
        theta = np.zeros(self.shape)
        for step, size in enumerate(step_sizes):
            theta = theta - size * (gradient(theta, step) + self.regularisation * theta)
        return theta

    def slopes(self, theta: Array, indices: Indices | slice = slice(None)) -> Array:
        """The slopes of these examples. The gradient of an example is its row times its slopes."""
        if isinstance(indices, slice) and indices == slice(None):
            return self.loss.evaluate(self.scores(theta), self.targets)[1]
        return self.loss.evaluate(self.rows[indices] @ theta, self.targets[indices])[1]


def prepare(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    data_norm: float,
    intercept: bool = True,
    may_stay: bool = True,
) -> Problem:
    """The problem of fitting `y` by `x`, every row clipped to `data_norm` (together with its 1 for the intercept).

    Clipping scales a whole row, so the sign of its scores stays. An example with a number that is not finite counts
    nothing: its row becomes zero. If they may stay, sparse rows stay sparse, and a large table is not copied.
    """
    if not isinstance(loss, Loss):
        raise InvalidArgument(f"loss must be one of tacit.erm's losses, such as Logistic(). Got {loss!r}.")
    data_norm, intercept = _validate.positive("data_norm", data_norm), _validate.flag("intercept", intercept)
    regularisation = _validate.non_negative("regularisation", regularisation)
    is_held = sparse.issparse(x) or isinstance(x, StayingRows)
    values, targets = x if is_held else np.asarray(x), loss.encode(y)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise InvalidArgument(
            f"x must be a table of numbers, one row per example. Got shape {values.shape} and type {values.dtype}."
        )
    count = values.shape[0]
    if count != len(targets) or count == 0:
        raise InvalidArgument(
            f"x and y must hold the same number of examples, at least one. Got {count} and {len(targets)}."
        )
    rows = hold_rows(values, intercept=intercept, may_stay=may_stay)
    return Problem(_clip(rows, targets, data_norm), targets, loss, regularisation, data_norm)


def _clip(rows: Rows, targets: Array, data_norm: float) -> Rows:
    """Scale rows down to the norm; examples that are not finite become zero rows with target 0."""
    norms = measure_norms(rows)
    lost = ~(np.isfinite(norms) & np.isfinite(targets).all(axis=1))
    targets[lost], norms[lost] = 0.0, 0.0
    if not np.any(lost) and norms.max() <= data_norm:
        return rows
    factors = np.where(norms > data_norm, data_norm * _CLIPPED / np.maximum(norms, data_norm), 1.0)
    factors[lost] = 0.0
    return scale_rows(rows, factors)
