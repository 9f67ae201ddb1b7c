"""Networks trained on noisy data behind `fit(X, y)`: input, data and influence perturbation."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from tacit import _validate
from tacit._validate import Array
from tacit.erm import Loss
from tacit.erm.noisy_data import Descent
from tacit.erm.reports import Reporting
from tacit.errors import InvalidArgument
from tacit.estimators.declared import charge, completed, norm_for
from tacit.estimators.functions import called, options_of, perturbation
from tacit.guarantee import Assumption, Guarantee


def fit_on_noisy_data(
    estimator: Any,
    x: Array,
    y: NDArray[Any],
    loss: Loss,
    *,
    model: nn.Module,
    seed: int | None,
    assumptions: tuple[Assumption, ...],
) -> None:
    """Run the method of `tacit.methods`, charge the ledger, and only then hand the network out."""
    _refuse_what_is_not_read(estimator)
    options = {**_usual(estimator, len(x)), **options_of(estimator.options, perturbation(estimator.method))}
    epsilon = _validate.positive("epsilon", estimator.epsilon)
    norm, left, estimate = norm_for(estimator.data_norm, x, epsilon, seed)
    strength = 0.0 if estimator.regularisation is None else estimator.regularisation
    with torch.random.fork_rng(devices=[]):
        # What is random within the network, such as dropout, is drawn again with the rest.
        if seed is not None:
            torch.manual_seed(seed)
        settings: dict[str, Any] = {"regularisation": strength, "epsilon": left, "data_norm": norm, "seed": seed}
        result = called(estimator, x, y, loss, **settings, module=model, **options)
    guarantee: Guarantee = completed(estimator, result.guarantee, estimate, assumptions)
    charge(estimator.ledger, estimator.dataset, guarantee, x, y)
    estimator.module_, estimator.guarantee_, estimator.data_norm_ = result.module, guarantee, norm


def refuse_for_gradients(estimator: Any) -> None:
    """Raise for what a method with noise on the gradients would pass over."""
    for name in ("data_norm", "regularisation"):
        if getattr(estimator, name) is not None:
            raise InvalidArgument(
                f"{name} is for noise on the data (method='input', 'data' or 'influence'): "
                f"method={estimator.method!r} bounds gradients by clip_norm, and leaves the weights to the loss. "
                f"Leave it out. Got {getattr(estimator, name)!r}."
            )


def _refuse_what_is_not_read(estimator: Any) -> None:
    if estimator.population is not None:
        raise InvalidArgument(
            "population is for lots that are drawn at random. With noise on the data the guarantee is about one "
            f"example replaced by another, and all that there are take part: leave it out. Got {estimator.population}."
        )
    if estimator.momentum != 0:
        raise InvalidArgument(
            "With noise on the data the steps are plain ones, as in Kang et al.: momentum must be 0. Got "
            f"{estimator.momentum!r}."
        )


def _usual(estimator: Any, n: int) -> dict[str, Any]:
    """The steps that the estimator was given; and without a delta, noise that is not normal."""
    lot_size = min(_validate.positive("lot_size", estimator.lot_size), n)
    learning_rate = _validate.positive("learning_rate", estimator.learning_rate)
    descent = Descent(estimator.steps, learning_rate, max(round(lot_size), 1))
    if estimator.method == "influence":
        return {"pretraining": descent}
    reporting = Reporting(features="k_norm" if estimator.delta is None else "gaussian")
    return {"training": descent, "reporting": reporting}
