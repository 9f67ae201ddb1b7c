"""Arguments of scikit-learn's estimators and of other private libraries, and the argument that does the same here."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, Self

from tacit.errors import InvalidArgument

_SOLVER = "The solver and its precision follow from the proof. Leave it out."
_STEPS = "The number of steps is steps=..., fixed before training."
_WEIGHTS = "Weights are limited by clip_norm, steps and learning_rate; with noise on the data also by regularisation."
_NOISE = "The noise follows from epsilon and delta. Leave it out."
_SAME = {
    "eps": "It is called epsilon.",
    "target_epsilon": "It is called epsilon.",
    "target_delta": "It is called delta.",
    "noise_multiplier": _NOISE,
    "sigma": _NOISE,
    "accountant": "Fits are added up by ledger=..., with dataset=...",
    "bounds_X": "It is called bounds, with scale='bounds'.",
    "bounds_y": "It is called target_bound.",
    "normalize": "Columns are scaled by scale='bounds' and declared bounds=...",
    "seed": "It is called random_state.",
    "n_jobs": "A fit uses one process. Leave it out.",
    "warm_start": "Every fit starts from zero and is a release of its own. Leave it out.",
    "verbose": "A fit prints nothing. Leave it out.",
    "early_stopping": "It would choose the number of steps by private scores. Leave it out.",
    "validation_fraction": "It would choose the number of steps by private scores. Leave it out.",
    "n_iter_no_change": "It would choose the number of steps by private scores. Leave it out.",
}
FOR_LINEAR = {
    **_SAME,
    "C": "Its counterpart is regularisation = 1 / (C n) for n examples: the objective is mean loss + (regularisation / "
    "2) |coef|^2.",
    "alpha": "Its counterpart is regularisation: the objective is mean loss + (regularisation / 2) |coef|^2.",
    "l1_ratio": "The penalty is always squared: regularisation=... sets its strength.",
    "penalty": "The penalty is always the squared norm: regularisation=... sets its strength.",
    "max_iter": f"{_SOLVER} With method='gradient', steps are set by options={{'training': ...}}.",
    "tol": _SOLVER,
    "solver": f"{_SOLVER} Where the noise goes is method=...",
    "dual": _SOLVER,
    "loss": "The class decides the loss: PrivateLogisticRegression, PrivateLinearSVC or PrivateLinearRegression.",
    "multi_class": "More than two classes are recognised by classes=... Leave it out.",
    "population": "The number of rows is taken as public. Leave it out.",
    "intercept_scaling": "The intercept has a column of 1. Leave it out.",
}
FOR_NETWORKS = {
    **_SAME,
    "max_iter": _STEPS,
    "epochs": f"{_STEPS} One epoch is population / lot_size steps.",
    "max_epochs": f"{_STEPS} One epoch is population / lot_size steps.",
    "batch_size": "It is called lot_size, the expected number of examples in a step.",
    "sample_rate": "It is lot_size / population.",
    "max_grad_norm": "It is called clip_norm.",
    "l2_norm_clip": "It is called clip_norm.",
    "lr": "It is called learning_rate.",
    "learning_rate_init": "It is called learning_rate.",
    "hidden_layer_sizes": "The network is module=..., a torch module or a function that makes one.",
    "activation": "The network is module=..., a torch module or a function that makes one.",
    "C": _WEIGHTS,
    "alpha": _WEIGHTS,
    "penalty": _WEIGHTS,
    "loss": "The class decides the loss: PrivateClassifier or PrivateRegressor.",
    "solver": "Steps are those of SGD, with momentum=... Where the noise goes is method=...",
    "tol": _STEPS,
}


class NamesOfOthers:
    """Refuses arguments of other libraries by naming ours, in the constructor and in `set_params`.

    It is a `__new__`, as scikit-learn reads the parameters off `__init__`.
    """

    _names_of_others: ClassVar[dict[str, str]] = {}

    def __new__(cls, *args: Any, **given: Any) -> Self:
        _refuse(cls, given)
        return super().__new__(cls)

    def set_params(self, **given: Any) -> Self:
        """Set parameters, as in every scikit-learn estimator."""
        _refuse(type(self), given)
        super().set_params(**given)  # type: ignore[misc]
        return self


def _refuse(cls: Any, given: dict[str, Any]) -> None:
    known = cls._get_param_names()
    for name, value in given.items():
        if name in known or "__" in name:
            continue
        told = cls._names_of_others.get(name)
        if told is None:
            close = difflib.get_close_matches(name, known, n=1)
            told = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        raise InvalidArgument(f"{cls.__name__} has no argument {name}. {told} Got {name}={value!r}.")
