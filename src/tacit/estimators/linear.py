"""Linear models with noise on the objective, the output, the gradients or the data, behind `fit(X, y)`. No torch.

By default the method follows from public facts (`choose_method`). Where columns are scaled by declared bounds, that is
the recipe of tables, which loads torch when it is first used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

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
from tacit.erm.rows import clip_rows, list_arrays, multiply_rows
from tacit.errors import InvalidArgument
from tacit.estimators import building_blocks as blocks
from tacit.estimators.encoding import read_new_rows, read_rows
from tacit.estimators.other_names import FOR_LINEAR, NamesOfOthers
from tacit.guarantee import Assumption

AUTO, RECIPE = "auto", "recipe"
_REPLACES, _ADDS = "replace_one", "add_remove"
_ADJACENCIES = {_REPLACES: "one example replaced by another", _ADDS: "one example added or removed"}
# What a fit by another method may have left.
_FITTED = ("coef_", "intercept_", "data_norm_", "regularisation_", "module_", "prepared_", "recipe_", "regression_")


def choose_method(*, delta: float | None, has_bounds: bool, adjacency: str | None) -> str:
    """The method that was the most accurate for such facts (docs/guides/scikit_learn.md has the table).

    With declared bounds and a delta it was the recipe of tables: ahead on every real table at every epsilon that was
    measured, and at most 0.3 per cent behind on rows made by a linear model. It protects one example added or
    removed; where one replaced by another is asked for, or a pure guarantee, or where only the norm of rows is known,
    noise on the objective is used.
    """
    return RECIPE if has_bounds and delta is not None and adjacency != _REPLACES else "objective"


def choose_strength(
    method: str, shape: tuple[int, int], data_norm: float, epsilon: float, delta: float | None
) -> float:
    """Regularisation from public numbers: enough that noise does not outweigh what is learnt.

    Noise on the output has a length of about 2 norm sqrt(d) / (n strength mu), which is set to one; noise on the
    objective needs a tenth of that. Methods with noise in every step, or on the data, need hardly any.
    """
    n, features = shape
    length = features + 1.0 if delta is None else math.sqrt(features + 1)
    noise = 2 * data_norm * length / (n * (epsilon if delta is None else float(gdp.mu(epsilon, delta))))
    share = {"output": 1.0, "objective": 0.1}.get(method, 0.0)
    return max(share * noise, 1e-5 * data_norm**2)


@dataclass(eq=False, repr=False)
class _LinearModel(NamesOfOthers, BaseEstimator):  # type: ignore[misc]
    """The parameters that all linear estimators share, and how a method is run with them."""

    _names_of_others = FOR_LINEAR

    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    method: str = "auto"
    recipe: str | None = None
    mode: str = "rigorous"
    adjacency: str | None = None
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    regularisation: float | None = None
    fit_intercept: bool = True
    options: Mapping[str, Any] | None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def _run(self, x: Array, y: NDArray[Any], loss: Loss, assumptions: tuple[Assumption, ...]) -> None:
        """Clip rows, run the method, charge the ledger, and only then set the coefficients."""
        method = self._take_method()
        for name in _FITTED:
            self.__dict__.pop(name, None)
        if method == RECIPE:
            self._loss = loss
            by_recipe = import_module("tacit.estimators.by_recipe")
            train = by_recipe.fit_linear if isinstance(self, ClassifierMixin) else by_recipe.fit_regression
            train(self, x, y, assumptions)
            self.method_ = RECIPE
            return
        seed = blocks.read_seed(self.random_state)
        run = blocks.find_method(method)
        options = {**self._choose_options(method, loss), **blocks.check_options(self.options, run)}
        epsilon = _validate.positive("epsilon", self.epsilon)
        norm, left, estimate = blocks.choose_norm(self.data_norm, x, epsilon, seed, self.bounds_)
        x = clip_rows(x, norm)
        # Methods that clip a row with its 1 for the intercept need a larger norm.
        is_apart = method in ("input", "data") or (method == "influence" and self.mode == "paper")
        has_one = not is_apart and _validate.flag("fit_intercept", self.fit_intercept)
        joint = math.hypot(norm, 1.0) if has_one else norm
        strength = self.regularisation
        if strength is None:
            strength = choose_strength(method, x.shape, joint, left, self.delta)
        settings = {"regularisation": strength, "epsilon": left, "delta": self.delta, "data_norm": joint}
        how = {"mode": self.mode, "seed": seed, "intercept": self.fit_intercept, **options}
        result = run(x, y, loss=loss, **settings, **how)
        assumptions = (blocks.assume_clipped(self.data_norm, norm), *assumptions)
        self.guarantee_ = blocks.close_fit(self, result.guarantee, estimate, assumptions, *list_arrays(x), y)
        self.coef_, self.intercept_ = result.coef, result.intercept
        self.data_norm_, self._loss, self.method_ = norm, loss, method
        self.regularisation_ = strength if result.regularisation is None else result.regularisation

    def _take_method(self) -> str:
        """The method that was asked for, or that public facts choose; `InvalidArgument` if it cannot be used."""
        if self.adjacency not in (None, *_ADJACENCIES):
            raise InvalidArgument(
                f"adjacency must be None or one of {', '.join(map(repr, _ADJACENCIES))}: whether the guarantee is for "
                f"one example replaced by another, or for one added or removed. Got {self.adjacency!r}."
            )
        is_plain = self.mode == "rigorous" and self.options is None and self.regularisation is None
        is_free = is_plain and self.data_norm is None and _validate.flag("fit_intercept", self.fit_intercept)
        method = self.method
        if self.recipe is not None:
            if self.recipe != AUTO or method not in (AUTO, RECIPE):
                raise InvalidArgument(
                    "recipe must be None or 'auto', and 'auto' is the same as method='recipe'. "
                    f"Got recipe={self.recipe!r} with method={method!r}."
                )
            method = RECIPE
        if method == AUTO:
            has_bounds = is_free and self.bounds_ is not None
            method = choose_method(delta=self.delta, has_bounds=has_bounds, adjacency=self.adjacency)
        has = _ADDS if method == RECIPE else _REPLACES
        if self.adjacency not in (None, has):
            raise InvalidArgument(
                f"method={method!r} protects {_ADJACENCIES[has]}, and adjacency={self.adjacency!r} asks for "
                f"{_ADJACENCIES[self.adjacency]}. Give method={RECIPE!r} with declared bounds for {_ADDS!r}, and "
                f"another method for {_REPLACES!r}."
            )
        if method == RECIPE and not (is_free and self.bounds_ is not None and self.delta is not None):
            raise InvalidArgument(
                "method='recipe' needs scale='bounds' with declared bounds, and a delta. It chooses everything else: "
                "leave out mode, options, regularisation, data_norm and fit_intercept."
            )
        return method

    def _choose_options(self, method: str, loss: Loss) -> dict[str, Any]:
        """Options of the method that follow from this delta and loss: without a delta, noise that is not Gaussian."""
        pure = self.delta is None
        if method == "gradient" and pure:
            return {"training": NoisyPass()}
        if method in ("input", "data"):
            # Targets were scaled to [-1, 1]; Huber's loss itself has no bound.
            bound = 1.0 if isinstance(loss, Huber) else None
            return {"reporting": Reporting(features="k_norm" if pure else "gaussian", target_bound=bound)}
        return {}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _score_rows(self, x: Any) -> Array:
        check_is_fitted(self)
        rows = read_new_rows(self, x)
        if self.method_ == RECIPE:
            return cast(Array, import_module("tacit.estimators.by_recipe").score_linear(self, rows))
        return cast(Array, multiply_rows(rows, self.coef_.T) + self.intercept_)


@dataclass(eq=False, repr=False, kw_only=True)
class _LinearClassifier(ClassifierMixin, _LinearModel, ABC):  # type: ignore[misc]
    """A linear classifier; its loss says which."""

    classes: Any = None
    class_weight: None = None

    @abstractmethod
    def _choose_loss(self, classes: int) -> Loss:
        """The loss for this number of classes."""

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train. Other arguments that scikit-learn may pass (sample_weight) are refused with a reason."""
        blocks.refuse_weights(self.class_weight, refused)
        x, y = read_rows(self, X, y)
        check_classification_targets(y)
        self.classes_, assumptions = blocks.find_classes(self.classes, y)
        self._run(x, np.searchsorted(self.classes_, y), self._choose_loss(len(self.classes_)), assumptions)
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """The score of the second class, or one score per class."""
        scores = self._score_rows(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most likely class of each row."""
        scores = self._score_rows(X)
        return self.classes_.take((scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_LinearClassifier):
    """Logistic regression of two classes, or softmax regression of more, with a guarantee.

    `method` says where the noise goes: "recipe" (features, private preparation and clipped gradients, as
    `PrivateClassifier(recipe="auto")` has them), "objective", "output", "gradient", "input", "data" or "influence".
    By default ("auto") public facts choose: the recipe if bounds are declared, noise on the objective without bounds,
    with `delta=None`, or if `data_norm`, `options`, `regularisation` or another mode is given. `adjacency` may ask for
    a guarantee of one example "add_remove" (the recipe) or "replace_one" (the others). `recipe="auto"`, which is what
    `PrivateClassifier` calls it, is the same as `method="recipe"`.

    `mode="paper"` runs the method as published. `options` are further arguments of its function in `tacit.methods`,
    such as {"training": PermutedDescent()} for that of Wu et al. 2017. `data_norm` bounds the norm of a row of X:
    longer rows are scaled down. It is declared, or "estimate" for a tenth of epsilon. `classes` declares the
    labels; if left out, they are read off y and assumed to be public. With `delta=None` the guarantee is pure, by
    every method but "influence" and "recipe". Without a `random_state` the noise is cryptographic; with one it can
    be repeated, and the model is not for release. A `ledger` (with the name of the `dataset` in it) adds up all
    fits, and refuses those beyond its budget; the notes of the guarantee give the sum.

    With `scale="bounds"` every column is first clipped to its bounds and scaled to [-1, 1], in `predict` too:
    `bounds=(low, high)`, each one number for all columns, or one for each. Or `bounds` maps every column of a
    DataFrame (or position in an array) to a tuple (low, high), to {"low": 0, "high": 1e6, "log": True}, or to the list
    of all values of a category, which become columns of 0 and 1. All of it is declared. `data_norm` may then be left
    out: it is the largest norm within the bounds. A declared norm that is too small for nearly all rows within the
    bounds gives a `Caution`.

    After `fit`: `method_`, `classes_`, `bounds_`, `guarantee_`, and for a mapping of bounds `encoded_names_`. The
    recipe also sets `module_`, `prepared_` and `recipe_`: its scores are linear in features, not in columns. Other
    methods set `coef_`, `intercept_`, `data_norm_` and `regularisation_`: objective perturbation raises the last if
    the proof needs that, and a note of the guarantee says so. The guarantee says whether it protects one example
    added or removed, or one replaced by another, and names transformers of a pipeline that were fitted before: it
    does not cover them.

    >>> x = np.array([[0.9, 0.1], [0.8, 0.3], [-0.7, 0.2], [-0.9, -0.1]] * 200)
    >>> y = np.array(["yes", "yes", "no", "no"] * 200)
    >>> model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, data_norm=1.5, classes=["no", "yes"]).fit(x, y)
    >>> model.guarantee_.epsilon(delta=1e-5) <= 1
    True
    """

    def _choose_loss(self, classes: int) -> Loss:
        return Logistic() if classes == 2 else Multinomial(classes)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of `classes_`."""
        scores = self._score_rows(X)
        return probabilities(self._loss, scores)

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """The logarithm of `predict_proba`, also where a probability is too small for a float."""
        scores = self._score_rows(X)
        whole = np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores
        return cast(Array, log_softmax(whole, axis=1))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_LinearClassifier):
    """A linear classifier with a hinge loss, smoothed at its kink; one against the rest for more than two classes.

    Parameters and guarantee are those of `PrivateLogisticRegression`. `width` is that of the smoothing.
    """

    width: float = 0.5

    def _choose_loss(self, classes: int) -> Loss:
        hinge = SmoothHinge(self.width)
        return hinge if classes == 2 else OneVsRest(hinge, classes)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearRegression(RegressorMixin, _LinearModel):  # type: ignore[misc]
    """Linear regression by least squares (or Huber's loss, with a `threshold`), with a guarantee.

    `target_bound` is declared like `data_norm`: targets are clipped to [-target_bound, target_bound] and divided by it,
    so `threshold` is in units of it. The other parameters are those of `PrivateLogisticRegression`. The recipe, which
    is the default where bounds are declared, also releases the mean and the scale of the targets, and clips residuals
    at one standard deviation; `threshold` is not used.
    """

    target_bound: float | None = None
    threshold: float | None = 0.5

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803
        """Train. Other arguments that scikit-learn may pass (sample_weight) are refused with a reason."""
        blocks.refuse_weights(None, refused)
        x, y = read_rows(self, X, y, y_numeric=True)
        targets, bound = blocks.scale_targets(y, self.target_bound)
        self._run(x, targets, Squared(1.0) if self.threshold is None else Huber(self.threshold), ())
        self.target_bound_ = bound
        if self.method_ != RECIPE:
            # One row of coefficients, as scikit-learn has them for one target.
            self.coef_, self.intercept_ = bound * self.coef_[0], float(bound * self.intercept_[0])
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The expected target of each row."""
        scores = self._score_rows(X)
        return self.target_bound_ * scores if self.method_ == RECIPE else scores
