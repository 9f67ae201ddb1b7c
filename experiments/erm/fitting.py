"""A contender on a table, with a model, at an epsilon, over several seeds: accuracy, optimality gap, what is proven."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from experiments.library import finite

from tacit.erm import Logistic, Loss, Minimiser, Multinomial, prepare
from tacit.erm.noisy_data import Descent
from tacit.erm.noisy_networks import descend
from tacit.erm.result import PerturbedData
from tacit.errors import TacitError
from tacit.randomness import source_for

from .contenders import LOGISTIC, Contender, Fitted
from .descent import one_hidden_layer
from .tables import Table

# Rows have norm 1 at most, and the intercept adds a 1 to each.
ROW_NORM, DATA_NORM = 1.0, 2**0.5
# What a network is trained with on perturbed data; and for how much longer without any noise, to be near a minimum.
NETWORK_STEPS, NETWORK_LOT, LONGER = 300, 256, 10
# Noise on the data may make the longer steps diverge. The papers choose by cross-validation; here the smallest gap of
# the first seed decides, which is no more private.
STEP_SIZES = (1.0, 0.1, 0.01)


def fit_over_seeds(
    contender: Contender, table: Table, model: str, epsilon: float, delta: float, seeds: int
) -> dict[str, Any]:
    """What was found, a number a seed; or why the method refuses."""
    fit = partial(_fit, contender, table, model, epsilon, delta)
    accuracies: list[float] = []
    gaps: list[float | None] = []
    try:
        step_size = _step_size(fit, table, model) if contender.on_rows and model != LOGISTIC else STEP_SIZES[0]
        for seed in range(seeds):
            found = fit(seed, step_size)
            accuracies.append(round(accuracy(table, found.scores(table.test[0])), 5))
            gaps.append(_gap(table, model, found))
    except TacitError as error:
        return {"refused": str(error)}
    guarantee = found.guarantee
    return {
        "accuracy": accuracies,
        "gap": gaps,
        "certified": finite(guarantee.epsilon(delta)),
        "status": str(guarantee.status),
        "adjacency": guarantee.adjacency.value,
        "unprotected": list(guarantee.unprotected),
    }


def _step_size(fit: Callable[[int, float], Fitted], table: Table, model: str) -> float:
    gaps = {step_size: _gap(table, model, fit(0, step_size)) for step_size in STEP_SIZES}
    return min(STEP_SIZES, key=lambda step_size: math.inf if gaps[step_size] is None else gaps[step_size])


def _gap(table: Table, model: str, found: Fitted) -> float | None:
    """To four digits; None if training diverged."""
    return finite(float(f"{objective(table, found) - least(table, model):.4g}"))


def _fit(
    contender: Contender, table: Table, model: str, epsilon: float, delta: float, seed: int, step_size: float
) -> Fitted:
    settings: dict[str, Any] = {
        "loss": loss_for(table),
        "regularisation": table.regularisation,
        "data_norm": ROW_NORM if contender.on_rows or model != LOGISTIC else DATA_NORM,
        "epsilon": epsilon,
        "delta": None if contender.pure else delta,
        "seed": seed,
        **contender.settings,
    }
    if model != LOGISTIC:
        settings["module"] = network_for(table, seed)
        if contender.on_rows:
            settings["training"] = network_descent(table, step_size)
        elif "influence" in contender.name:
            settings["pretraining"] = network_descent(table)
    return contender.fit(*table.train, **settings)


def without_noise(table: Table, model: str) -> dict[str, Any]:
    """The model that no noise touched: its accuracy is what privacy is compared with."""
    return {"accuracy": [round(accuracy(table, _bare(table, model)[1]), 5)]}


def least(table: Table, model: str) -> float:
    """The objective of the model without noise: for a linear model the minimum, for a network where training ends."""
    return _bare(table, model)[0]


@cache
def _bare(table: Table, model: str) -> tuple[float, Any]:
    """Its objective on the training rows, and its scores on the test rows."""
    problem = prepare(*table.train, loss=loss_for(table), regularisation=table.regularisation, data_norm=DATA_NORM)
    if model == LOGISTIC:
        theta = Minimiser().fit(problem)
        return problem.objective(theta), table.test[0] @ theta[:-1] + theta[-1]
    x, y = table.train
    bare = prepare(x, y, loss=problem.loss, regularisation=table.regularisation, data_norm=ROW_NORM, intercept=False)
    data = PerturbedData(bare.rows, np.asarray(y, dtype=np.float64))
    training = replace(network_descent(table), steps=LONGER * NETWORK_STEPS)
    module = descend(network_for(table, 0), bare, data, bare.targets, training, source_for(0))
    with torch.no_grad():
        scores = module(torch.as_tensor(table.test[0], dtype=torch.float32)).double().numpy()
    return _objective(table, lambda rows: _outputs(module, rows), parameters_of(module)), scores


def objective(table: Table, found: Any) -> float:
    """The regularised training objective of a fit."""
    return _objective(table, found.scores, parameters_of(found))


def _objective(table: Table, scores: Any, parameters: Any) -> float:
    loss, (x, y) = loss_for(table), table.train
    losses, _ = loss.evaluate(scores(x), loss.encode(y))
    if not np.isfinite(losses).all():
        return math.inf
    return float(np.mean(losses)) + 0.5 * table.regularisation * float(np.square(parameters).sum())


def parameters_of(found: Any) -> Any:
    """All parameters of a fit as one vector."""
    module = found if isinstance(found, torch.nn.Module) else getattr(found, "module", None)
    if module is not None:
        return np.concatenate([one.detach().double().numpy().ravel() for one in module.parameters()])
    return np.concatenate([np.ravel(found.coef), np.ravel(found.intercept)])


def accuracy(table: Table, scores: Any) -> float:
    """The share of test rows whose class is found."""
    found = (scores[:, 0] > 0).astype(int) if table.classes == 2 else scores.argmax(axis=1)
    return float(np.mean(found == table.test[1]))


def loss_for(table: Table) -> Loss:
    """Two classes or a softmax."""
    return Logistic() if table.classes == 2 else Multinomial(table.classes)


def network_for(table: Table, seed: int) -> torch.nn.Module:
    """A fresh network for the table's rows."""
    return one_hidden_layer(table.train[0].shape[1], loss_for(table).outputs, seed)


def network_descent(table: Table, step_size: float = STEP_SIZES[0]) -> Descent:
    """How networks are trained on data that have their noise already."""
    return Descent(NETWORK_STEPS, step_size, lot_size=min(NETWORK_LOT, len(table.train[0])))


def _outputs(module: torch.nn.Module, rows: Any) -> Any:
    with torch.no_grad():
        return module(torch.as_tensor(rows, dtype=torch.float32)).double().numpy()
