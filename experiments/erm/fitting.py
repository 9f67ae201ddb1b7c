"""A contender on a table, with a model, at an epsilon: settings chosen on tuning rows, then one fit for each split."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from experiments.library import finite

from tacit.erm import Logistic, Loss, Minimiser, Multinomial, prepare
from tacit.erm.noisy_data import Descent
from tacit.erm.noisy_networks import descend
from tacit.erm.result import PerturbedData
from tacit.errors import TacitError
from tacit.methods import data_perturbation
from tacit.randomness import source_for

from .contenders import CANDIDATES, LOGISTIC, Contender, Fitted, Setting
from .descent import one_hidden_layer
from .tables import Rows, Table

# Rows have norm 1 at most, and the intercept adds a 1 to each.
ROW_NORM, DATA_NORM = 1.0, 2**0.5
# What a network is trained with before its influence is measured; and for how much longer to be near a minimum.
_PRETRAINING, _LONGER = Descent(300, 1.0, lot_size=256), 10


def fit_over_seeds(
    contender: Contender, rows: Rows, model: str, epsilon: float, delta: float, seeds: int
) -> dict[str, Any]:
    """What was found, a number a seed; or why the method refuses. `chosen` is the candidate that tuning took."""
    candidates = contender.candidates[model]
    assert len(candidates) == CANDIDATES
    accuracies: list[float] = []
    gaps: list[float | None] = []
    try:
        chosen = _tune(contender, rows.tuning(), model, epsilon, delta)
        for seed in range(seeds):
            table = rows.split(seed)
            found = _fit(contender, candidates[chosen], table, model, epsilon, delta, seed)
            accuracies.append(round(accuracy(table, found.scores(table.test[0])), 5))
            gap = objective(table, found) - least(table, model)
            gaps.append(finite(float(f"{gap:.4g}")))
    except TacitError as error:
        return {"refused": str(error)}
    guarantee = found.guarantee
    return {
        "accuracy": accuracies,
        "gap": gaps,
        "chosen": chosen,
        "certified": finite(guarantee.epsilon(delta)),
        "unprotected": list(guarantee.unprotected),
    }


def _tune(contender: Contender, table: Table, model: str, epsilon: float, delta: float) -> int:
    """The candidate with the most tuning rows right; of equals, that with the least loss there. Seed 1000."""
    found = []
    for setting in contender.candidates[model]:
        try:
            scores = _fit(contender, setting, table, model, epsilon, delta, 1000).scores(table.test[0])
        except TacitError:
            # A setting that a method's theorem excludes is not chosen; if all are, the last fit says why.
            found.append((-1.0, -math.inf))
            continue
        loss = loss_for(table)
        losses, _ = loss.evaluate(scores, loss.encode(table.test[1]))
        mean = float(np.mean(losses))
        found.append((accuracy(table, scores), -mean if math.isfinite(mean) else -math.inf))
    return max(range(len(found)), key=found.__getitem__)


def _fit(
    contender: Contender, setting: Setting, table: Table, model: str, epsilon: float, delta: float, seed: int
) -> Fitted:
    chosen = dict(setting)
    settings: dict[str, Any] = {
        "loss": loss_for(table),
        "regularisation": table.regularisation * chosen.pop("times", 1),
        "data_norm": ROW_NORM if contender.on_rows or model != LOGISTIC else DATA_NORM,
        "epsilon": epsilon,
        "delta": None if contender.pure else delta,
        "seed": seed,
        **contender.settings,
        **chosen,
    }
    if contender.fit is data_perturbation:
        # The theorem needs lots of about sqrt(n).
        settings["training"] = replace(settings["training"], lot_size=math.isqrt(len(table.train[0])))
    if model != LOGISTIC:
        settings["module"] = network_for(table, seed)
        if "influence" in contender.name:
            settings["pretraining"] = _pretraining(table)
    return contender.fit(*table.train, **settings)


def without_noise(rows: Rows, model: str, seeds: int) -> dict[str, Any]:
    """The models that no noise touched, on the same splits: what privacy is compared with."""
    tables = [rows.split(seed) for seed in range(seeds)]
    return {"accuracy": [round(accuracy(table, _bare(table, model)[1]), 5) for table in tables]}


def least(table: Table, model: str) -> float:
    """The objective of the model without noise: for a linear model the minimum, for a network where training ends."""
    return _bare(table, model)[0]


@lru_cache(maxsize=8)
def _bare(table: Table, model: str) -> tuple[float, Any]:
    """Its objective on the training rows, and its scores on the test rows."""
    problem = prepare(*table.train, loss=loss_for(table), regularisation=table.regularisation, data_norm=DATA_NORM)
    if model == LOGISTIC:
        theta = Minimiser().fit(problem)
        return problem.objective(theta), table.test[0] @ theta[:-1] + theta[-1]
    x, y = table.train
    bare = prepare(x, y, loss=problem.loss, regularisation=table.regularisation, data_norm=ROW_NORM, intercept=False)
    data = PerturbedData(bare.rows, np.asarray(y, dtype=np.float64))
    training = replace(_pretraining(table), steps=_LONGER * _PRETRAINING.steps)
    module = descend(network_for(table, 0), bare, data, bare.targets, training, source_for(0))
    with torch.no_grad():
        scores = module(torch.as_tensor(table.test[0], dtype=torch.float32)).double().numpy()
    return _objective(table, lambda rows: _outputs(module, rows), parameters_of(module)), scores


def objective(table: Table, found: Any) -> float:
    """The regularised training objective of a fit, with the table's own regularisation."""
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


def loss_for(table: Table | Rows) -> Loss:
    """Two classes or a softmax."""
    return Logistic() if table.classes == 2 else Multinomial(table.classes)


def network_for(table: Table, seed: int) -> torch.nn.Module:
    """A fresh network for the table's rows."""
    return one_hidden_layer(table.train[0].shape[1], loss_for(table).outputs, seed)


def _pretraining(table: Table) -> Descent:
    return replace(_PRETRAINING, lot_size=min(_PRETRAINING.lot_size or 0, len(table.train[0])))


def _outputs(module: torch.nn.Module, rows: Any) -> Any:
    with torch.no_grad():
        return module(torch.as_tensor(rows, dtype=torch.float32)).double().numpy()
