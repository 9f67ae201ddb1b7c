"""What was done to X before the method saw it: scaled by declared bounds, or by transformers that nobody paid for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tacit._validate import Array
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption

BOUNDS = "bounds"
Bounds = tuple[Array, Array]

_PREPARED = "X was scaled, encoded and imputed without looking at private rows, or that was paid for separately."
# What transformers note in `fit` that follows from the columns alone, not from values in them.
_ABOUT_COLUMNS = {"n_features_in_", "feature_names_in_", "n_output_features_"}


def assumptions_about_x(estimator: Any) -> tuple[Assumption, ...]:
    """What a fit takes for granted about X. Call it within `fit`, as it looks for the pipelines that are running it.

    Not listed for an estimator that scales by declared bounds, unless a transformer was fitted before it.
    """
    fitted = fitted_transformers()
    is_scaled = estimator.scale == BOUNDS
    if not fitted:
        return () if is_scaled else (Assumption("prepared_before_fit", _PREPARED),)
    were, them = ("was", "it") if len(fitted) == 1 else ("were", "them")
    named = Assumption(
        "transformers_not_covered",
        f"{_listed(fitted)} {were} fitted on the rows given to fit, and this guarantee does not cover {them}.",
    )
    return named, Assumption("prepared_before_fit", f"Apart from {them}, {_PREPARED}")


def fitted_transformers() -> list[str]:
    """The classes of transformers that learnt from the rows in a pipeline of which the running `fit` is a step.

    A step does not know its pipeline, so this reads the call stack: pipelines are objects whose method is running. What
    was fitted outside of a pipeline, or by the parent of a worker process, is not seen.
    """
    found: list[str] = []
    seen: set[int] = set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline | TransformedTargetRegressor) and id(owner) not in seen:
            seen.add(id(owner))
            # An outer pipeline has transformed the rows before an inner one.
            found = [*_fitted_by(owner, frame), *found]
        frame = frame.f_back
    return list(dict.fromkeys(found))


def _fitted_by(owner: Pipeline | TransformedTargetRegressor, frame: FrameType) -> Iterator[str]:
    if isinstance(owner, TransformedTargetRegressor):
        yield from _learnt(getattr(owner, "transformer_", None))
        return
    # While a transformer is fitted, `_fit` counts the steps; later ones may be left from an earlier fit.
    running = frame.f_locals.get("step_idx", len(owner.steps) - 1)
    for _, step in owner.steps[:running]:
        yield from _learnt(step)


def _learnt(step: Any) -> Iterator[str]:
    """The classes of all transformers within this one that hold something of the rows."""
    if isinstance(step, Pipeline):
        inner = [each for _, each in step.steps]
    elif isinstance(step, ColumnTransformer):
        inner = [each for _, each, _ in getattr(step, "transformers_", ())]
    elif isinstance(step, FeatureUnion):
        inner = [each for _, each in step.transformer_list]
    else:
        # "passthrough" and "drop" are words, not transformers.
        if step is not None and not isinstance(step, str) and _has_learnt(step):
            yield type(step).__name__
        return
    for each in inner:
        yield from _learnt(each)


def _has_learnt(step: Any) -> bool:
    if type(step).__module__.partition(".")[0] == "tacit" or _is_declared(step) or not _requires_fit(step):
        return False
    own = step.get_params(deep=False) if hasattr(step, "get_params") else vars(step)
    return any(_is_result(name) and name not in own for name in getattr(step, "__dict__", {}))


def _is_result(name: str) -> bool:
    """Whether an attribute of this name, if no parameter, was learnt: "mean_" by convention, "mean" without one."""
    return not name.startswith("_") and name not in _ABOUT_COLUMNS


def _requires_fit(step: Any) -> bool:
    return bool(step.__sklearn_tags__().requires_fit) if hasattr(step, "__sklearn_tags__") else True


def _is_declared(step: Any) -> bool:
    """Whether all that `fit` stores was given by whoever made the transformer."""
    if isinstance(step, OneHotEncoder | OrdinalEncoder):
        is_grouped = step.max_categories is not None or step.min_frequency is not None
        return not isinstance(step.categories, str) and not is_grouped
    if isinstance(step, SimpleImputer):
        # Otherwise columns without any value are dropped, or columns with missing ones are marked.
        return bool(step.strategy == "constant" and step.keep_empty_features and not step.add_indicator)
    return False


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def bounds_of(estimator: Any, columns: int) -> Bounds | None:
    """The declared lowest and highest value of every column; None for an estimator that does not scale."""
    if estimator.scale is None:
        if estimator.bounds is not None:
            raise InvalidArgument("bounds are for scale='bounds', which scales every column by them. Give it as well.")
        return None
    if estimator.scale != BOUNDS:
        raise InvalidArgument(f"scale must be 'bounds' or None. Got {estimator.scale!r}.")
    if estimator.bounds is None:
        raise InvalidArgument(
            "scale='bounds' needs bounds=(low, high), the lowest and highest value of each column. They must be known "
            "without looking at the data, or they would give them away: bounds=(0, 100), or bounds=([0, 18], [1, 99])."
        )
    return _checked(estimator.bounds, columns)


def _checked(given: Any, columns: int) -> Bounds:
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in given)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"bounds must be a pair (low, high), each a number or one number for each of the {columns} columns. Got "
            f"{given!r}."
        ) from None
    with np.errstate(over="ignore"):
        is_wrong = ~(np.isfinite(low) & np.isfinite(high - low) & (low < high))
    if is_wrong.any():
        column = int(is_wrong.argmax())
        raise InvalidArgument(
            f"The lower of two bounds must be below the upper one, and both finite. Got {low[column]:g} and "
            f"{high[column]:g} for column {column}."
        )
    return low.copy(), high.copy()


def scaled(x: Array, bounds: Bounds | None) -> Array:
    """Every column from its bounds to [-1, 1]; what lies outside is moved to the nearer bound.

    >>> scaled(np.array([[0.0, 5.0], [20.0, 7.0]]), (np.array([0.0, 5.0]), np.array([10.0, 9.0])))
    array([[-1., -1.],
           [ 1.,  0.]])
    """
    if bounds is None:
        return x
    low, high = bounds
    rows: Array = 2 * (np.clip(x, low, high) - low) / (high - low) - 1
    return rows
