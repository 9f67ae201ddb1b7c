"""Private models with `fit` and `predict`, for scikit-learn's pipelines, searches and scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.estimators.linear import PrivateLinearRegression, PrivateLinearSVC, PrivateLogisticRegression
    from tacit.estimators.neural import PrivateClassifier, PrivateRegressor
    from tacit.estimators.saved import load

__all__ = [
    "PrivateClassifier",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRegressor",
    "load",
]

# The linear ones need no torch, so each is loaded when it is asked for.
_HOMES = {
    "PrivateClassifier": "neural",
    "PrivateLinearRegression": "linear",
    "PrivateLinearSVC": "linear",
    "PrivateLogisticRegression": "linear",
    "PrivateRegressor": "neural",
    "load": "saved",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
