"""Networks behind `fit(X, y)`: any torch module, trained with noise on its gradients or on its data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.nn import functional as F

from tacit import _validate, methods
from tacit._validate import Array
from tacit.budget import Budget
from tacit.erm import Loss as ConvexLoss
from tacit.erm import Multinomial, Squared
from tacit.errors import InvalidArgument
from tacit.estimators.by_recipe import fit_by_recipe, scores_by_recipe
from tacit.estimators.declared import charge, classes_of, completed, counted, refuse_weights, scaled_targets, seed_of
from tacit.estimators.functions import DATA_METHODS, options_of
from tacit.estimators.noisy_data import fit_on_noisy_data, refuse_for_gradients
from tacit.estimators.preprocessing import Bounds, bounds_of, scaled
from tacit.gradients.losses import Loss
from tacit.guarantee import Assumption
from tacit.stages.sampling import Poisson
from tacit.training.run import PrivateRun

_HIDDEN = 32
# Rows that go through the network at once when predicting.
_PIECE = 4096


def small_network(features: int, outputs: int) -> nn.Module:
    """One hidden layer of 32 units."""
    return nn.Sequential(nn.Linear(features, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, outputs))


def _network(module: Any, features: int, outputs: int, seed: int | None) -> nn.Module:
    """A copy of the module, or a fresh one; its first weights never depend on the data."""
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        made = _made(module, features, outputs)
    if not isinstance(made, nn.Module) or not list(made.parameters()):
        raise InvalidArgument(
            "module must be a torch module with weights, or a function of the numbers of features and outputs that "
            f"makes one. Got {module!r}."
        )
    _refuse_other_shapes(made, features, outputs)
    return made


def _made(module: Any, features: int, outputs: int) -> Any:
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    build = small_network if module is None else module
    try:
        return build(features, outputs) if callable(build) else None
    except TypeError as error:
        raise InvalidArgument(
            f"module must be a function of two numbers, of features and of outputs. Called so, it failed: {error}."
        ) from error


def _refuse_other_shapes(module: nn.Module, features: int, outputs: int) -> None:
    """Two rows of zeros must give two rows of outputs."""
    kind = next(module.parameters()).dtype
    try:
        with torch.no_grad():
            shape = tuple(copy.deepcopy(module).eval()(torch.zeros(2, features, dtype=kind)).shape)
    except RuntimeError as error:
        raise InvalidArgument(f"module must take rows of {features} features. Two of them failed: {error}.") from error
    if shape != (2, outputs):
        raise InvalidArgument(
            f"module must give {outputs} numbers for each row of {features} features: shape (2, {outputs}) for two. "
            f"Got {shape}."
        )


@dataclass(frozen=True)
class _Judged:
    """The loss of a task: for gradients of single examples, and the same as a method of noisy data knows it."""

    gradients: Loss
    data: ConvexLoss


def _train(
    estimator: Any, x: Array, y: NDArray[Any], judged: _Judged, outputs: int, assumptions: tuple[Assumption, ...]
) -> None:
    """By noise on the data or on the gradients; the ledger is charged before anything is handed out."""
    seed = seed_of(estimator.random_state)
    model = _network(estimator.module, x.shape[1], outputs, seed)
    estimator.bounds_ = _bounds(estimator, x.shape[1])
    x = _clipped(scaled(x, estimator.bounds_), estimator.feature_bound)
    if estimator.method in list(DATA_METHODS):
        fit_on_noisy_data(estimator, x, y, judged.data, model=model, seed=seed, assumptions=assumptions)
        return
    mechanism = _mechanism(estimator)
    targets = torch.from_numpy(y) if outputs > 1 else torch.from_numpy(y).float()[:, None]
    _descend(estimator, (x, targets), judged.gradients, mechanism, model=model, seed=seed, assumptions=assumptions)


def _descend(
    estimator: Any,
    data: tuple[Array, torch.Tensor],
    loss: Loss,
    mechanism: Any,
    *,
    model: nn.Module,
    seed: int | None,
    assumptions: tuple[Assumption, ...],
) -> None:
    """A private run over the rows."""
    x, y = data
    population = estimator.population
    if population is None:
        population = len(x)
        assumptions = (*assumptions, counted(population))
    population = _validate.count("population", population)
    lot_size = min(_validate.positive("lot_size", estimator.lot_size), population)
    run = PrivateRun(
        model,
        loss,
        data=(torch.from_numpy(x).to(next(model.parameters()).dtype), y),
        mechanism=mechanism,
        sampling=Poisson(lot_size=lot_size, population=population),
        steps=estimator.steps,
        budget=Budget(epsilon=estimator.epsilon, delta=estimator.delta),
        seed=seed,
    )
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=_validate.positive("learning_rate", estimator.learning_rate),
        momentum=_validate.unit("momentum", estimator.momentum),
    )
    for lot in run:
        run.backward(lot)
        optimizer.step()
    guarantee = completed(estimator, run.guarantee(), None, assumptions)
    charge(estimator.ledger, estimator.dataset, guarantee, x, y.numpy())
    estimator.module_, estimator.guarantee_ = model.eval(), guarantee


def _mechanism(estimator: Any) -> Any:
    name = estimator.method
    if name not in list(methods.GRADIENT_METHODS):
        known = ", ".join(map(repr, [*methods.GRADIENT_METHODS, *DATA_METHODS]))
        raise InvalidArgument(
            f"method must be one of {known}: noise on the gradients or on the data. Noise on the objective or the "
            f"output is for linear models, as in PrivateLogisticRegression. Got {name!r}."
        )
    refuse_for_gradients(estimator)
    method = methods.GRADIENT_METHODS[name]
    return method(clip_norm=estimator.clip_norm, mode=estimator.mode, **options_of(estimator.options, method))


def _bounds(estimator: Any, columns: int) -> Bounds | None:
    bounds = bounds_of(estimator, columns)
    if bounds is not None and estimator.feature_bound is not None:
        raise InvalidArgument("feature_bound and scale='bounds' both scale the features. Leave one of them out.")
    return bounds


def _clipped(x: Array, bound: float | None) -> Array:
    """Features within a public bound, divided by it: scaling by what the data hold would give them away."""
    if bound is None:
        return x
    bound = _validate.positive("feature_bound", bound)
    scaled: Array = np.clip(x / bound, -1.0, 1.0)
    return scaled


def _outputs(estimator: Any, x: Any) -> Array:
    check_is_fitted(estimator)
    if getattr(estimator, "recipe", None) is not None:
        return scores_by_recipe(estimator.prepared_, estimator.module_, x)
    checked = validate_data(estimator, x, reset=False, dtype=np.float64)
    rows = torch.from_numpy(_clipped(scaled(checked, getattr(estimator, "bounds_", None)), estimator.feature_bound))
    # In double precision a row's outcome does not depend on which rows it came with.
    model = copy.deepcopy(estimator.module_).double()
    with torch.no_grad():
        pieces = [model(rows[start : start + _PIECE]) for start in range(0, len(rows), _PIECE)]
    outputs: Array = torch.cat(pieces).numpy()
    return outputs


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network that tells classes apart, trained privately.

    `module` is a torch module, or a function (features, classes) that makes one; one hidden layer of 32 units by
    default. It gives one score per class. `feature_bound` is declared: features are clipped to [-bound, bound] and
    divided by it (None: as they are); or every column has `bounds` of its own, with `scale="bounds"`, as in
    `PrivateLogisticRegression`. `classes` are the public labels; where they are left out they are taken from the
    data, and the guarantee says that it takes them for public. `options` are further arguments of the method's function
    in `tacit.methods`.

    `method` names a gradient method (`tacit methods`): lots are then Poisson samples of `lot_size` expected examples
    out of `population`, the public number of them (counted if left out, and then said to be public), gradients are
    clipped to `clip_norm`, and the guarantee is about one example added or removed.

    Or it says that the noise goes on the data, once, before any step: "input", "data" or, in paper form only,
    "influence". Rows are then scaled down to `data_norm`, declared or "estimate" for a tenth of epsilon, and
    `regularisation` is optional. The guarantee is about one example replaced by another; with `delta=None` it is pure
    ("input" and "data", rigorous). Steps, lots and step lengths are free of charge (in paper form the noise follows
    from them); neither `clip_norm` nor `population` plays a part.

    With `recipe="auto"` features, lots, steps and step lengths are chosen from public facts (docs/recipes.md): images
    are declared by their `shape`, and set upright first if `is_handwriting` says so (ink on a ground of 0); texts are
    recognised, and everything else is a table, of which the first `numbers` columns (all, by default) lie in [-1, 1].
    What the recipe sets is then not read: `method`, `steps`, `lot_size`, `clip_norm`, `learning_rate`, `momentum`,
    `feature_bound`. A `tacit.recipes.recipe.Recipe` is for features of norm 1.

    After `fit`: `module_`, `classes_`, `bounds_` and `guarantee_`; with noise on the data also `data_norm_`; by a
    recipe `prepared_` and `recipe_`, and no `bounds_`. `random_state`, `ledger` and `dataset` as in
    `PrivateLogisticRegression`.
    """

    module: Any = None
    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    recipe: Any = None
    shape: tuple[int, ...] | None = None
    is_handwriting: bool = False
    numbers: int | None = None
    method: str = "dpsgd"
    mode: str = "rigorous"
    steps: int = 200
    lot_size: float = 256
    clip_norm: float = 1.0
    learning_rate: float = 0.5
    momentum: float = 0.0
    feature_bound: float | None = None
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    regularisation: float | None = None
    options: Mapping[str, Any] | None = None
    population: int | None = None
    classes: Any = None
    class_weight: None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train. Whatever else scikit-learn could pass along (sample_weight) is refused with a reason."""
        refuse_weights(self.class_weight, refused)
        if self.recipe is not None:
            if self.scale is not None or self.bounds is not None:
                raise InvalidArgument(
                    "scale and bounds are not for recipes, whose features have fixed ranges (docs/recipes.md). Scale X "
                    "by public numbers, and leave them out."
                )
            fit_by_recipe(self, X, y)
            return self
        if self.shape is not None or self.numbers is not None or self.is_handwriting:
            raise InvalidArgument(
                "shape, is_handwriting and numbers tell a recipe what a row is. Give recipe='auto', or leave them out."
            )
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, assumptions = classes_of(self.classes, y)
        outputs = len(self.classes_)
        judged = _Judged(F.cross_entropy, Multinomial(outputs))
        _train(self, x, np.searchsorted(self.classes_, y), judged, outputs, assumptions)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of `classes_`."""
        shares: Array = torch.softmax(torch.from_numpy(_outputs(self, X)), dim=1).numpy()
        return shares

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Its logarithm."""
        log_shares: Array = torch.log_softmax(torch.from_numpy(_outputs(self, X)), dim=1).numpy()
        return log_shares

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        chosen = _outputs(self, X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A network with one output for a number, trained privately.

    `target_bound` is declared: targets are clipped to [-target_bound, target_bound] and divided by it on the way.
    Everything else as of `PrivateClassifier`.
    """

    module: Any = None
    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
    method: str = "dpsgd"
    mode: str = "rigorous"
    steps: int = 200
    lot_size: float = 256
    clip_norm: float = 1.0
    learning_rate: float = 0.1
    momentum: float = 0.0
    feature_bound: float | None = None
    scale: str | None = None
    bounds: Any = None
    data_norm: float | str | None = None
    regularisation: float | None = None
    options: Mapping[str, Any] | None = None
    target_bound: float | None = None
    population: int | None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:  # noqa: N803
        """Train. Whatever else scikit-learn could pass along (sample_weight) is refused with a reason."""
        refuse_weights(None, refused)
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        targets, _ = scaled_targets(y, self.target_bound)
        _train(self, x, targets, _Judged(F.mse_loss, Squared(1.0)), 1, ())
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The expected target of each row."""
        predicted: Array = float(self.target_bound or 1.0) * _outputs(self, X)[:, 0]
        return predicted
