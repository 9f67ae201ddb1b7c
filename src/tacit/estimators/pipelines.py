"""Transformers that were fitted on private rows before an estimator saw them, found in the running pipelines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

# Attributes that transformers set in `fit` from the columns alone, not from values in them.
_ABOUT_COLUMNS = {"n_features_in_", "feature_names_in_", "n_output_features_"}


def find_fitted_transformers() -> list[str]:
    """The classes of transformers that learnt from the rows, in the pipelines that are running this `fit`.

    A step does not know its pipeline, so this reads the call stack for pipelines with a running method. Transformers
    fitted outside a pipeline, or by the parent of a worker process, are not found.
    """
    found: list[str] = []
    seen: set[int] = set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline | TransformedTargetRegressor) and id(owner) not in seen:
            seen.add(id(owner))
            # An outer pipeline has transformed the rows before an inner one.
            found = [*_list_fitted(owner, frame), *found]
        frame = frame.f_back
    return list(dict.fromkeys(found))


def _list_fitted(owner: Pipeline | TransformedTargetRegressor, frame: FrameType) -> Iterator[str]:
    if isinstance(owner, TransformedTargetRegressor):
        yield from _list_learnt(getattr(owner, "transformer_", None))
        return
    # While a transformer is fitted, `_fit` counts the steps; later ones may stem from an earlier fit.
    running = frame.f_locals.get("step_idx", len(owner.steps) - 1)
    for _, step in owner.steps[:running]:
        yield from _list_learnt(step)


def _list_learnt(step: Any) -> Iterator[str]:
    """The classes of all transformers in this one that learnt from the rows."""
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
        yield from _list_learnt(each)


def _has_learnt(step: Any) -> bool:
    if type(step).__module__.partition(".")[0] == "tacit" or _is_declared(step):
        return False
    if hasattr(step, "__sklearn_tags__") and not step.__sklearn_tags__().requires_fit:
        return False
    own = step.get_params(deep=False) if hasattr(step, "get_params") else vars(step)
    known = _ABOUT_COLUMNS | own.keys()
    return any(not name.startswith("_") and name not in known for name in getattr(step, "__dict__", {}))


def _is_declared(step: Any) -> bool:
    """Whether everything that `fit` stores was given as a parameter."""
    if isinstance(step, OneHotEncoder | OrdinalEncoder):
        is_grouped = step.max_categories is not None or step.min_frequency is not None
        return not isinstance(step.categories, str) and not is_grouped
    if isinstance(step, SimpleImputer):
        # Otherwise `fit` drops columns without values, or marks columns with missing ones.
        return bool(step.strategy == "constant" and step.keep_empty_features and not step.add_indicator)
    return False
