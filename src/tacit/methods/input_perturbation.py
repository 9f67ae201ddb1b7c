"""Input perturbation (Kang et al. 2020): noise on the training data, "between central and local differential privacy".

As published, features get Gaussian noise once, labels none, and gradient steps over all examples follow; the claim is
(epsilon, delta)-DP of the model. It is refuted. One noise vector for all examples, which the proof is about, cancels:
on balanced labels the first step has none of it. Noise per example averages out: one step is exactly Gaussian with
mu = 2 / (std sqrt n), and the noise of the theorem shrinks so fast with n that no constant helps. Labels have no noise
either way. In rigorous form features and labels both get noise, as reports that protect each person locally, and that
shuffling protects centrally.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.erm.losses import Loss
from tacit.erm.noisy_data import Descent, InputRule, Noise, check_noise
from tacit.erm.noisy_training import Result, set_up, train_as_published, train_on_reports
from tacit.erm.reports import Reporting
from tacit.erm.result import Mode, check_mode
from tacit.methods.registry import Entry

if TYPE_CHECKING:
    import torch

ENTRY = Entry(
    name="input_perturbation",
    kind="linear",
    paper="Kang et al. 2020",
    idea="Noise is added to the training data once, and any number of steps follow.",
    status="refuted",
    verdict="Noise that all examples share cancels, noise for each example averages out, and labels have none.",
    rigorous="Features and labels both get noise, as reports that shuffling protects.",
    options={"module": "a torch module to train on the noisy examples, in place of a linear model"},
    exposed=("labels", "examples"),
)

_NAME = "input_perturbation"
_BECAUSE = {
    "per_example": "Noise per example averages out over the examples, so no constant makes the theorem true for all n; "
    "and no noise touches the labels.",
    "shared": "One noise vector for all examples cancels over balanced labels; and no noise touches the labels.",
}


def input_perturbation(
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
    rule: InputRule = InputRule(),  # noqa: B008 - a frozen value
    reporting: Reporting = Reporting(),  # noqa: B008 - a frozen value
    seed: int | None = None,
) -> Result:
    """A model of noisy examples: linear, or `module`. Features are clipped to `data_norm`.

    Guarantee, rigorous: (epsilon, delta)-DP for one example replaced by another, against those who see the shuffled
    reports or the model (with Reporting(shuffled=False), against those who see every report with its sender). The
    guarantee of each report by itself is `guarantee.local`. The reports are returned, shuffled.

    In paper form `noise` is "per_example" (proven: the features of each example by themselves, at a large epsilon) or
    "shared" (nothing is proven). The paper claims epsilon and delta for the noise that `rule` gives for the steps of
    `training`. Only the model is returned, as in the paper.

    >>> import numpy as np
    >>> from tacit.erm import Logistic
    >>> x, y = np.eye(4).repeat(50, axis=0), np.arange(200) % 2
    >>> settings = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 1.0}
    >>> result = input_perturbation(x, y, **settings, epsilon=1.0, delta=1e-5)
    >>> result.guarantee.epsilon(1e-5) <= 1.0 < result.guarantee.local_epsilon(1e-5)
    True
    """
    mode, noise = check_mode(mode), check_noise(noise)
    _validate.kind("rule", rule, InputRule, "InputRule(constant=1.0)")
    _validate.kind("reporting", reporting, Reporting, "Reporting(shuffled=False)")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    about |= {"intercept": intercept, "module": module, "training": training, "seed": seed}
    setup = set_up(x, y, mode, epsilon=epsilon, delta=delta, **about)
    if mode == "rigorous":
        return train_on_reports(setup, _NAME, reporting, training)
    descent = training or Descent()
    if module is not None and rule.condition is None:
        rule = replace(rule, condition="polyak_lojasiewicz")
    longest = setup.longest_gradient(rule.lipschitz)
    std = rule.std(setup.problem, descent.steps, epsilon, setup.budget.stated_delta, longest)
    theorem = 1 if rule.condition_for(setup.problem) == "strongly_convex" else 3
    claim = setup.budget.claim(f"Kang et al. 2020, theorem {theorem} with c = {rule.constant:g}")
    method, because = f"{_NAME} (Kang et al. 2020)", _BECAUSE[noise]
    return train_as_published(setup, std, noise, claim, descent, method=method, because=because, returns_data=False)
