"""Linear models: noise on the objective, the output, the gradients or the data, behind `fit(X, y)`. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.erm import (
    Huber,
    Logistic,
    Loss,
    Multinomial,
    NoisyPass,
    OneVsRest,
    SmoothHinge,
    Squared,
    probabilities,
)
from tacit.erm.reports import Reporting
from tacit.estimators.declared import charge, classes_of, completed, norm_for, refuse_weights, scaled_targets, seed_of
from tacit.estimators.functions import called, options_of, perturbation
from tacit.estimators.preprocessing import bounds_of, scaled
from tacit.guarantee import Assumption, Guarantee


def _fit(estimator: Any, x: Array, y: NDArray[Any], loss: Loss, assumptions: tuple[Assumption, ...]) -> None:
    """Run the method, charge the ledger, and only then hand the coefficients out."""
    seed = seed_of(estimator.random_state)
    options = {**_usual(estimator, loss), **options_of(estimator.options, perturbation(estimator.method))}
    epsilon = _validate.positive("epsilon", estimator.epsilon)
    joint = np.column_stack([x, np.ones(len(x))]) if estimator.fit_intercept else x
    norm, left, estimate = norm_for(estimator.data_norm, joint, epsilon, seed)
    strength = estimator.regularisation
    if strength is None:
        strength = default_strength(estimator.method, x.shape, norm, left, estimator.delta)
    settings = {"regularisation": strength, "epsilon": left, "data_norm": norm, "seed": seed}
    result = called(estimator, x, y, loss, **settings, intercept=estimator.fit_intercept, **options)
    guarantee: Guarantee = completed(estimator, result.guarantee, estimate, assumptions)
    charge(estimator.ledger, estimator.dataset, guarantee, x, y)
    estimator.coef_, estimator.intercept_, estimator.guarantee_ = result.coef, result.intercept, guarantee
    estimator.data_norm_ = norm
    estimator._loss = loss


def _usual(estimator: Any, loss: Loss) -> dict[str, Any]:
    """What a method needs to do with this delta and this loss: without a delta, noise that is not normal."""
    pure = estimator.delta is None
    if estimator.method == "gradient" and pure:
        return {"training": NoisyPass()}
    if estimator.method in ("input", "data"):
        # Targets were scaled to [-1, 1], which Huber's loss by itself does not know.
        bound = 1.0 if isinstance(loss, Huber) else None
        return {"reporting": Reporting(features="k_norm" if pure else "gaussian", target_bound=bound)}
    return {}


def default_strength(
    method: str, shape: tuple[int, int], data_norm: float, epsilon: float, delta: float | None
) -> float:
    """Regularisation from public numbers: so much that noise does not outweigh what is learnt.

    Noise on the output has a length of about 2 norm sqrt(d) / (n strength mu), which is held at one; noise on the
    objective is an order of magnitude gentler. Methods with noise in every step, or on the data, need hardly any.
    """
    n, features = shape
    length = features + 1.0 if delta is None else math.sqrt(features + 1)
    noise = 2 * data_norm * length / (n * (epsilon if delta is None else float(gdp.mu(epsilon, delta))))
    share = {"output": 1.0, "objective": 0.1}.get(method, 0.0)
    return max(share * noise, 1e-5 * data_norm**2)


def _scores(estimator: Any, x: Any) -> Array:
    check_is_fitted(estimator)
    rows = scaled(validate_data(estimator, x, reset=False, dtype=np.float64), getattr(estimator, "bounds_", None))
    scores: Array = rows @ estimator.coef_.T + estimator.intercept_
    return scores


def _prepared(estimator: Any, x: Any, y: Any) -> tuple[Array, NDArray[Any], tuple[Assumption, ...]]:
    """Checked and scaled rows, class numbers and what has to be assumed; sets `classes_` and `bounds_`."""
    x, y = validate_data(estimator, x, y, dtype=np.float64)
    check_classification_targets(y)
    estimator.classes_, assumptions = classes_of(estimator.classes, y)
    estimator.bounds_ = bounds_of(estimator, x.shape[1])
    return scaled(x, estimator.bounds_), np.searchsorted(estimator.classes_, y), assumptions


def _predicted(estimator: Any, x: Any) -> NDArray[Any]:
    scores = _scores(estimator, x)
    chosen = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    labels: NDArray[Any] = estimator.classes_[chosen]
    return labels


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression, of two classes or by a softmax over more, with a guarantee.

    `method` says where the noise goes: "objective" (the default), "output", "gradient", "input", "data" or
    "influence"; `mode="paper"` takes the method as published, and `options` are further arguments of its function in
    `tacit.methods`, such as {"training": PermutedDescent()} for that of Wu et al. 2017. `data_norm` bounds the norm of
    a row (with its 1 for the intercept): longer ones are scaled down. It is declared, or "estimate" for a tenth of
    epsilon. `classes` declares the labels; read off y otherwise, and then assumed to be public. With `delta=None` the
    guarantee is pure, by every method but "influence". Without a `random_state` the noise is cryptographic; with one it
    can be drawn again, and the model is not for release. A `ledger` (with the name of the `dataset` in it) adds up all
    fits, and refuses what goes over its budget.

    With `scale="bounds"` every column is first clipped to its `bounds=(low, high)` and scaled to [-1, 1], in `predict`
    too. Each of the two is one number for all columns, or one for each. They are declared, like `data_norm`.

    After `fit`: `coef_`, `intercept_`, `classes_`, `bounds_` and `guarantee_`, which is about one example replaced by
    another and names the transformers of a pipeline that were fitted before: it does not cover them.

    >>> x = np.array([[0.9, 0.1], [0.8, 0.3], [-0.7, 0.2], [-0.9, -0.1]] * 200)
    >>> y = np.array(["yes", "yes", "no", "no"] * 200)
    >>> model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, data_norm=1.5, classes=["no", "yes"]).fit(x, y)
    >>> model.guarantee_.epsilon(delta=1e-5) <= 1
    True
    """

    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    method: str = "objective"
    mode: str = "rigorous"
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    classes: Any = None
    regularisation: float | None = None
    fit_intercept: bool = True
    options: Mapping[str, Any] | None = None
    class_weight: None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train. Whatever else scikit-learn could pass along (sample_weight) is refused with a reason."""
        refuse_weights(self.class_weight, refused)
        x, numbers, assumptions = _prepared(self, X, y)
        loss: Loss = Logistic() if len(self.classes_) == 2 else Multinomial(len(self.classes_))
        _fit(self, x, numbers, loss, assumptions)
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """The score of the second class, or one score per class."""
        scores = _scores(self, X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likelier class of each row."""
        return _predicted(self, X)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of `classes_`."""
        scores = _scores(self, X)
        return probabilities(self._loss, scores)

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Its logarithm."""
        scores = _scores(self, X)
        # Not the logarithm of the above: a probability may be too small to be written down.
        whole = np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores
        log_probability: Array = log_softmax(whole, axis=1)
        return log_probability


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier with a hinge loss, rounded at its kink; more than two classes one against the rest.

    Parameters and guarantee as of `PrivateLogisticRegression`. `width` is that of the rounding.
    """

    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    method: str = "objective"
    mode: str = "rigorous"
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    classes: Any = None
    regularisation: float | None = None
    fit_intercept: bool = True
    options: Mapping[str, Any] | None = None
    width: float = 0.5
    class_weight: None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803
        """Train. Whatever else scikit-learn could pass along (sample_weight) is refused with a reason."""
        refuse_weights(self.class_weight, refused)
        x, numbers, assumptions = _prepared(self, X, y)
        hinge = SmoothHinge(self.width)
        loss: Loss = hinge if len(self.classes_) == 2 else OneVsRest(hinge, len(self.classes_))
        _fit(self, x, numbers, loss, assumptions)
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """The score of the second class, or one score per class."""
        scores = _scores(self, X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class of each row."""
        return _predicted(self, X)


@dataclass(eq=False, repr=False)
class PrivateLinearRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression by least squares (or Huber's loss, with a `threshold`), with a guarantee.

    `target_bound` is declared like `data_norm`: targets are clipped to [-target_bound, target_bound], and scaled by it
    on the way, so that `threshold` is in units of it. Everything else as of `PrivateLogisticRegression`.
    """

    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    method: str = "objective"
    mode: str = "rigorous"
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    target_bound: float | None = None
    threshold: float | None = 0.5
    regularisation: float | None = None
    fit_intercept: bool = True
    options: Mapping[str, Any] | None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803
        """Train. Whatever else scikit-learn could pass along (sample_weight) is refused with a reason."""
        refuse_weights(None, refused)
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        targets, bound = scaled_targets(y, self.target_bound)
        loss: Loss = Squared(1.0) if self.threshold is None else Huber(self.threshold)
        self.bounds_ = bounds_of(self, x.shape[1])
        _fit(self, scaled(x, self.bounds_), targets, loss, ())
        # One row of coefficients, as scikit-learn has them for one target.
        fitted: Any = self
        self.coef_, self.intercept_ = bound * fitted.coef_[0], float(bound * fitted.intercept_[0])
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The expected target of each row."""
        return _scores(self, X)
