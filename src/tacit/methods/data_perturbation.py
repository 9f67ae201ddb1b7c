"""Data perturbation (Kang et al. 2021, algorithm 1): noise on the training data, then steps over random lots.

The claim is (epsilon, delta)-DP of the model, from a linearised argument with an unspecified constant. It is refuted:
labels have no noise, so with an intercept the first step shows them; noise that all examples share cancels on balanced
lots; and noise per example averages out within a lot, which breaks the claim without an intercept at a million
examples. Proven as published: noise per example protects each row of features by itself. The rigorous form is that of
`input_perturbation`: reports with noise on features and labels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.erm.losses import Loss
from tacit.erm.noisy_data import DataRule, Descent, Noise, check_noise
from tacit.erm.noisy_training import Result, set_up, train_as_published, train_on_reports
from tacit.erm.reports import Reporting
from tacit.erm.result import Mode, check_mode
from tacit.methods.registry import Entry

if TYPE_CHECKING:
    import torch

ENTRY = Entry(
    name="data_perturbation",
    kind="linear",
    paper="Kang et al. 2021, algorithm 1",
    idea="Noise is added to the training data, and steps over random lots follow.",
    status="refuted",
    verdict="Labels have no noise, shared noise cancels on balanced lots, and noise for each example averages out.",
    rigorous="As for input_perturbation.",
    options={"module": "a torch module to train on the noisy examples, in place of a linear model"},
    exposed=("labels", "examples"),
)

_NAME = "data_perturbation"
_BECAUSE = {
    "per_example": "No noise touches the labels, which an intercept shows after one step; and noise on features "
    "averages out within a lot.",
    "shared": "Noise that all examples share cancels on lots with balanced labels; and no noise touches the labels.",
}


def data_perturbation(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float | None,
    data_norm: float,
    mode: Mode = "rigorous",
    noise: Noise = "per_example",
    intercept: bool = True,
    module: torch.nn.Module | None = None,
    training: Descent | None = None,
    rule: DataRule = DataRule(),  # noqa: B008 - a frozen value
    reporting: Reporting = Reporting(),  # noqa: B008 - a frozen value
    seed: int | None = None,
) -> Result:
    """A model of noisy examples and the noisy examples themselves, both as published and in rigorous form.

    Guarantee, rigorous: as `input_perturbation`. In paper form: each row of features by itself with noise per example,
    also in the returned data; none with shared noise. By default lots have about sqrt(n) examples, as the paper's
    theorem needs.

    >>> import numpy as np
    >>> from tacit.erm import Logistic
    >>> x, y = np.eye(4).repeat(50, axis=0), np.arange(200) % 2
    >>> settings = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 1.0}
    >>> result = data_perturbation(x, y, **settings, epsilon=1.0, delta=1e-5)
    >>> result.data.x.shape == x.shape and result.guarantee.epsilon(1e-5) <= 1.0
    True
    """
    mode, noise = check_mode(mode), check_noise(noise)
    _validate.kind("rule", rule, DataRule, "DataRule(constant=1.0)")
    _validate.kind("reporting", reporting, Reporting, "Reporting(shuffled=False)")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    about |= {"intercept": intercept, "module": module, "training": training, "seed": seed}
    setup = set_up(x, y, mode, epsilon=epsilon, delta=delta, **about)
    if mode == "rigorous":
        return train_on_reports(setup, _NAME, reporting, training)
    descent = training or Descent(steps=1000, lot_size=max(math.isqrt(setup.problem.n), 1))
    longest = setup.longest_gradient(rule.lipschitz)
    std = rule.std(setup.problem, descent, epsilon, setup.budget.stated_delta, longest)
    claim = setup.budget.claim(f"Kang et al. 2021, theorem 1 with c = {rule.constant:g}")
    method, because = f"{_NAME} (Kang et al. 2021)", _BECAUSE[noise]
    return train_as_published(setup, std, noise, claim, descent, method=method, because=because, returns_data=True)
