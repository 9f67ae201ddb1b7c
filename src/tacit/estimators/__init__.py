"""Private models with `fit` and `predict`, for scikit-learn's pipelines, searches and scores.

Every class in this folder whose name begins with "Private" is found by listing the files: one new file adds an
estimator. Outside this package an estimator is a plain class that uses `tacit.estimators.building_blocks`.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.estimators.linear import PrivateLinearRegression as PrivateLinearRegression
    from tacit.estimators.linear import PrivateLinearSVC as PrivateLinearSVC
    from tacit.estimators.linear import PrivateLogisticRegression as PrivateLogisticRegression
    from tacit.estimators.neural import PrivateClassifier as PrivateClassifier
    from tacit.estimators.neural import PrivateRegressor as PrivateRegressor
    from tacit.estimators.neural import load as load

# Read from the files, not imported: the linear estimators need no torch.
_MODULES = {
    name: file.stem
    for file in Path(__file__).parent.glob("[!_]*.py")
    for name in re.findall(r"^class (Private\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
}
_MODULES["load"] = "neural"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
