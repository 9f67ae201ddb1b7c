"""Networks behind `fit(X, y)`: any torch module, trained with noise on its gradients or on its data, or by a recipe."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn import functional as F

from tacit import _validate, methods
from tacit._validate import Array
from tacit.budget import Budget
from tacit.erm import Loss as ConvexLoss
from tacit.erm import Multinomial, Squared
from tacit.erm.noisy_data import Descent
from tacit.erm.reports import Reporting
from tacit.erm.rows import make_dense
from tacit.errors import InvalidArgument
from tacit.estimators import building_blocks as blocks
from tacit.estimators.by_recipe import fit_by_recipe, score_by_recipe
from tacit.estimators.encoding import read_new_rows, read_rows
from tacit.estimators.other_names import FOR_NETWORKS, NamesOfOthers
from tacit.gradients.losses import Loss
from tacit.guarantee import Assumption
from tacit.recipes.run import read_model
from tacit.stages.sampling import Poisson
from tacit.training.fit import fit
from tacit.training.run import PrivateRun

_HIDDEN = 32
# Rows that go through the network at once when predicting.
_PIECE = 4096


def _make_network(module: Any, features: int, outputs: int, seed: int | None) -> nn.Module:
    """A copy of the module, or a new one; its first weights do not depend on the data."""
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        made = _call_maker(module, features, outputs)
    if not isinstance(made, nn.Module) or not list(made.parameters()):
        raise InvalidArgument(
            "module must be a torch module with weights, or a function of the numbers of features and outputs that "
            f"makes one. Got {module!r}."
        )
    _refuse_other_shapes(made, features, outputs)
    return made


def _call_maker(module: Any, features: int, outputs: int) -> Any:
    if module is None:
        return nn.Sequential(nn.Linear(features, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, outputs))
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    try:
        return module(features, outputs) if callable(module) else None
    except TypeError as error:
        raise InvalidArgument(
            f"module must be a function of two numbers, of features and of outputs. Called so, it failed: {error}."
        ) from error


def _refuse_other_shapes(module: nn.Module, features: int, outputs: int) -> None:
    """Raise unless two rows of zeros give two rows of outputs."""
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


@dataclass(eq=False, repr=False)
class _Network(NamesOfOthers, BaseEstimator):  # type: ignore[misc]
    """The parameters that both networks share, and how they are trained."""

    _names_of_others = FOR_NETWORKS

    module: Any = None
    epsilon: float = 1.0
    delta: float | None = 1e-5
    _: KW_ONLY
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
    rows_per_unit: int | None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def _train(
        self,
        x: Array,
        y: NDArray[Any],
        losses: tuple[Loss, ConvexLoss],
        outputs: int,
        assumptions: tuple[Assumption, ...],
        unit: Any = None,
    ) -> None:
        """Train with noise on the data or on the gradients. The ledger is charged before anything is returned.

        `losses` are the same loss twice: for gradients of single examples, and for a method of noisy data.
        """
        seed = blocks.read_seed(self.random_state)
        model = _make_network(self.module, x.shape[1], outputs, seed)
        if self.bounds_ is not None and self.feature_bound is not None:
            raise InvalidArgument("feature_bound and scale='bounds' both scale the features. Leave one of them out.")
        x = self._scale(make_dense(x))
        owners = blocks.find_owners(self, unit, len(x))
        if self.method in list(blocks.DATA_METHODS):
            if owners is not None:
                raise InvalidArgument(
                    f"method={self.method!r} puts noise on single rows, which does not protect a person with several. "
                    "Leave out unit, or choose a gradient method."
                )
            self._train_on_noisy_data(x, y, losses[1], model, seed, assumptions)
            return
        mechanism = self._make_mechanism()
        targets = torch.from_numpy(y) if outputs > 1 else torch.from_numpy(y).float()[:, None]
        count = len(x) if owners is None else len(owners.sizes)
        if self.population is None:
            assumptions = (*assumptions, blocks.assume_counted(count))
        population = _validate.count("population", count if self.population is None else self.population)
        run = PrivateRun(
            model,
            losses[0],
            data=(torch.from_numpy(x).to(next(model.parameters()).dtype), targets),
            mechanism=mechanism,
            sampling=Poisson(min(_validate.positive("lot_size", self.lot_size), population), population),
            steps=self.steps,
            budget=Budget(epsilon=self.epsilon, delta=self.delta),  # type: ignore[arg-type]
            seed=seed,
            unit=unit,
            rows_per_unit=self.rows_per_unit,
        )
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=_validate.positive("learning_rate", self.learning_rate),
            momentum=_validate.unit("momentum", self.momentum),
        )
        fit(run, optimizer)
        about = () if owners is None else (owners.person,)
        self.guarantee_ = blocks.close_fit(self, run.guarantee(), None, assumptions, x, targets.numpy(), *about)
        self.module_ = model.eval()

    def _make_mechanism(self) -> Any:
        if self.method not in list(methods.GRADIENT_METHODS):
            known = ", ".join(map(repr, [*methods.GRADIENT_METHODS, *blocks.DATA_METHODS]))
            raise InvalidArgument(
                f"method must be one of {known}: noise on the gradients or on the data. Noise on the objective or the "
                f"output is for linear models, as in PrivateLogisticRegression. Got {self.method!r}."
            )
        for name in ("data_norm", "regularisation"):
            if getattr(self, name) is not None:
                raise InvalidArgument(
                    f"{name} is for noise on the data (method='input', 'data' or 'influence'): method={self.method!r} "
                    f"bounds gradients by clip_norm, and leaves the weights to the loss. Leave it out. Got "
                    f"{getattr(self, name)!r}."
                )
        method = methods.GRADIENT_METHODS[self.method]
        return method(clip_norm=self.clip_norm, mode=self.mode, **blocks.check_options(self.options, method))

    def _train_on_noisy_data(
        self,
        x: Array,
        y: NDArray[Any],
        loss: ConvexLoss,
        model: nn.Module,
        seed: int | None,
        assumptions: tuple[Assumption, ...],
    ) -> None:
        """Run the method, charge the ledger, and only then set the network."""
        if self.population is not None:
            raise InvalidArgument(
                "population is for lots that are drawn at random. With noise on the data the guarantee protects one "
                f"example replaced by another, and all examples take part: leave it out. Got {self.population}."
            )
        if self.momentum != 0:
            raise InvalidArgument(
                "With noise on the data the steps are plain ones, as in Kang et al.: momentum must be 0. Got "
                f"{self.momentum!r}."
            )
        run = blocks.find_method(self.method)
        options = {**self._choose_options(len(x)), **blocks.check_options(self.options, run)}
        epsilon = _validate.positive("epsilon", self.epsilon)
        norm, left, estimate = blocks.choose_norm(self.data_norm, x, epsilon, seed, self.bounds_)
        strength = 0.0 if self.regularisation is None else self.regularisation
        with torch.random.fork_rng(devices=[]):
            # The seed also repeats what is random within the network, such as dropout.
            if seed is not None:
                torch.manual_seed(seed)
            settings = {"regularisation": strength, "epsilon": left, "delta": self.delta, "data_norm": norm}
            result = run(x, y, loss=loss, **settings, mode=self.mode, seed=seed, module=model, **options)
        assumptions = (blocks.assume_clipped(self.data_norm, norm), *assumptions)
        self.guarantee_ = blocks.close_fit(self, result.guarantee, estimate, assumptions, x, y)
        self.module_, self.data_norm_ = result.module, norm

    def _choose_options(self, n: int) -> dict[str, Any]:
        """The steps of a method of noisy data; without a delta, noise that is not Gaussian."""
        lot_size = min(_validate.positive("lot_size", self.lot_size), n)
        learning_rate = _validate.positive("learning_rate", self.learning_rate)
        descent = Descent(self.steps, learning_rate, max(round(lot_size), 1))
        if self.method == "influence":
            return {"pretraining": descent}
        reporting = Reporting(features="k_norm" if self.delta is None else "gaussian")
        return {"training": descent, "reporting": reporting}

    def _scale(self, x: Array) -> Array:
        """Scale features by the declared bound: scaling by the data would reveal them."""
        if self.feature_bound is None:
            return x
        return np.clip(x / _validate.positive("feature_bound", self.feature_bound), -1.0, 1.0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _score_rows(self, x: Any) -> Array:
        check_is_fitted(self)
        rows = torch.from_numpy(self._scale(make_dense(read_new_rows(self, x))))
        # In double precision the output of a row does not depend on the rows beside it.
        model = copy.deepcopy(self.module_).double()
        with torch.no_grad():
            pieces = [model(rows[start : start + _PIECE].double()) for start in range(0, len(rows), _PIECE)]
        return cast(Array, torch.cat(pieces).numpy())


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, _Network):  # type: ignore[misc]
    """A network that classifies, trained privately.

    `module` is a torch module, or a function (features, classes) that makes one; one hidden layer of 32 units by
    default. It gives one score per class. `feature_bound` is declared: features are clipped to [-bound, bound] and
    divided by it (None: as they are). Or every column has its own `bounds`, with `scale="bounds"`, as in
    `PrivateLogisticRegression`. `classes` are the public labels; if left out, they are read off y and assumed to be
    public. `options` are further arguments of the method's function in `tacit.methods`.

    With `fit(X, y, unit=ids)`, an id for each row, and `rows_per_unit` (public), people are protected and not rows: at
    most so many rows of a person enter a step, and their gradients are averaged. `population` then counts people.

    `method` names a gradient method (`tacit methods`): lots are Poisson samples of `lot_size` expected examples out of
    `population`, the public number of examples (counted, and assumed to be public, if left out). Gradients are clipped
    to `clip_norm`, and the guarantee protects one example added or removed.

    Or `method` puts the noise on the data, once, before any step: "input", "data" or, in paper form only, "influence".
    Rows are scaled down to `data_norm`, declared or "estimate" for a tenth of epsilon; `regularisation` is optional.
    The guarantee protects one example replaced by another; with `delta=None` it is pure ("input" and "data",
    rigorous). Steps, lots and learning rate cost no privacy (in paper form the noise depends on them); `clip_norm` and
    `population` are not used.

    With `recipe="auto"` features, lots, steps and learning rate follow from public facts
    (docs/explanations/recipes.md). Images are declared by their `shape`, and set upright first if `is_handwriting` (ink
    on a background of 0). Texts are recognised, and everything else is a table, whose first `numbers` columns (all, by
    default) are in [-1, 1]. The recipe replaces `method`, `steps`, `lot_size`, `clip_norm`, `learning_rate`, `momentum`
    and `feature_bound`. A `tacit.recipes.Recipe` is for features of norm 1. `features` of images may come from a
    network that was trained on public images: "efficientnet_lite0", a torch module, or `tacit.features.EncodedImages`.

    After `fit`: `module_`, `classes_`, `bounds_` and `guarantee_`; with noise on the data also `data_norm_`; with a
    recipe `prepared_` and `recipe_`, and no `bounds_`. `random_state`, `ledger` and `dataset` are those of
    `PrivateLogisticRegression`.
    """

    recipe: Any = None
    shape: tuple[int, ...] | None = None
    is_handwriting: bool = False
    numbers: int | None = None
    classes: Any = None
    class_weight: None = None
    features: Any = None

    def fit(self, X: Any, y: Any, unit: Any = None, **refused: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train. With `unit`, an id for each row, people are protected: see `rows_per_unit`.

        Other arguments that scikit-learn may pass (sample_weight) are refused with a reason.
        """
        blocks.refuse_weights(self.class_weight, refused)
        if self.recipe is not None:
            if self.scale is not None or self.bounds is not None:
                raise InvalidArgument(
                    "scale and bounds are not for recipes, whose features have fixed ranges "
                    "(docs/explanations/recipes.md). Scale X by public numbers, and leave them out."
                )
            fit_by_recipe(self, X, y, unit)
            return self
        if self.shape is not None or self.numbers is not None or self.is_handwriting or self.features is not None:
            raise InvalidArgument(
                "shape, is_handwriting, numbers and features tell a recipe what a row is. Give recipe='auto', or leave "
                "them out."
            )
        x, y = read_rows(self, X, y)
        check_classification_targets(y)
        self.classes_, assumptions = blocks.find_classes(self.classes, y)
        outputs = len(self.classes_)
        losses = (F.cross_entropy, Multinomial(outputs))
        self._train(x, np.searchsorted(self.classes_, y), losses, outputs, assumptions, unit)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of `classes_`."""
        return cast(Array, torch.softmax(torch.from_numpy(self._score_classes(X)), dim=1).numpy())

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """The logarithm of `predict_proba`, also where a probability is too small for a float."""
        return cast(Array, torch.log_softmax(torch.from_numpy(self._score_classes(X)), dim=1).numpy())

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most likely class of each row."""
        chosen = self._score_classes(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _score_classes(self, x: Any) -> Array:
        if self.recipe is None:
            return self._score_rows(x)
        check_is_fitted(self)
        return score_by_recipe(self.prepared_, self.module_, x)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(RegressorMixin, _Network):  # type: ignore[misc]
    """A network with one output for a number, trained privately.

    `target_bound` is declared: targets are clipped to [-target_bound, target_bound] and divided by it. The other
    parameters are those of `PrivateClassifier`.
    """

    learning_rate: float = 0.1
    target_bound: float | None = None

    def fit(self, X: Any, y: Any, unit: Any = None, **refused: Any) -> Self:  # noqa: N803
        """Train. With `unit`, an id for each row, people are protected: see `rows_per_unit`.

        Other arguments that scikit-learn may pass (sample_weight) are refused with a reason.
        """
        blocks.refuse_weights(None, refused)
        x, y = read_rows(self, X, y, y_numeric=True)
        targets, _ = blocks.scale_targets(y, self.target_bound)
        self._train(x, targets, (F.mse_loss, Squared(1.0)), 1, (), unit)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The expected target of each row."""
        return float(self.target_bound or 1.0) * self._score_rows(X)[:, 0]


def load(path: str | Path) -> PrivateClassifier:
    """Load a classifier that `tacit train` made by a recipe: from its folder, or from its model.safetensors.

    It predicts from pixels and rows as `tacit.datasets` scales them, and from texts as they are written. `guarantee_`
    is what was proven about it. Classes are numbered in their declared order.
    """
    saved = read_model(path)
    kind, classes = saved.recipe.kind, np.arange(saved.outputs)
    made = PrivateClassifier(
        recipe="auto",
        epsilon=saved.guarantee.epsilon(saved.guarantee.delta),
        delta=saved.guarantee.delta,
        shape=saved.examples.shape,
        is_handwriting=kind == "handwriting",
        numbers=saved.examples.numbers if kind == "table" else None,
        population=saved.recipe.population,
        classes=classes,
    )
    made.module_, made.prepared_, made.recipe_ = saved.model, saved.prepared, saved.recipe
    made.classes_, made.guarantee_ = classes, saved.guarantee
    return made
