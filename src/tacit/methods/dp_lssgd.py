"""DP-LSSGD (Wang, Gu, Boedihardjo, Barekat and Osher 2019): noisy gradients, smoothed before the step.

Smoothing is a fixed linear map of the release and costs nothing: the guarantee is that of the noisy gradient. The
paper's noise follows a closed formula with a free parameter and conditions on the sampling rate; in rigorous form the
exact privacy curve sets it. docs/reference/methods/dp_lssgd.md compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import _validate
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.guarantee import Claim
from tacit.methods.registry import Entry
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import Mechanism, Method, Mode, NoiseName, Settings
from tacit.stages.noise import GaussianNoise
from tacit.stages.post import LaplacianSmoothing

ENTRY = Entry(
    name="dp_lssgd",
    kind="gradient",
    paper="Wang et al. 2019",
    idea="Noisy gradients are smoothed over neighbouring coordinates before the step.",
    status="proven",
    verdict="Smoothing is a fixed map of the release and costs nothing; the published noise is several times what is "
    "needed.",
    rigorous="The same, with as much noise as the exact privacy curve asks for.",
    options={
        "strength": "how strongly neighbouring coordinates are smoothed",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
)

_THEOREM = "Wang et al. 2019, Theorem 1"
_CONDITIONS = "The theorem has conditions on noise and sampling rate, which do not hold here."
_SHARES = np.linspace(0.005, 0.995, 199)


def dp_lssgd(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    strength: float = 1.0,
    rule: VarianceRule | None = None,
    mode: Mode = "rigorous",
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """DP-SGD whose releases are smoothed over neighbouring coordinates by `strength`, before the optimizer's step.

    In paper form the paper's formula (`rule`) sets the noise, in rigorous form the budget.

    >>> dp_lssgd(multiplier=1.1).post
    (LaplacianSmoothing(strength=1.0),)
    """
    method = Method("dp_lssgd", "Wang et al. 2019", mode, claims=rule or VarianceRule())
    plain = Mechanism(Clip(clip_norm), GaussianNoise(multiplier), (LaplacianSmoothing(strength),), method)
    return plain.with_noise(noise, bands)


@dataclass(frozen=True)
class VarianceRule:
    """The noise of the paper's Theorem 1: its variance is constant * rate^2 * steps * order / (share * epsilon).

    In units of the clip norm, on the sum over a lot; order = log(1/delta) / ((1 - share) * epsilon) + 1. `share` is
    free between 0 and 1; by default the best is used. The theorem is for replaced examples and has conditions; a claim
    states if they do not hold.
    """

    share: float | None = None
    constant: float = 20.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, open_unit="share", positive="constant")

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """The formula inverted, from the noise to epsilon. None if the steps differ."""
        if settings.is_scheduled or settings.multiplier is None:
            return None
        amount = self.constant * settings.rate**2 * settings.steps / settings.multiplier**2
        epsilon, share = min((_epsilon(amount, settings.delta, share), share) for share in self._shares())
        order = math.log(1 / settings.delta) / ((1 - share) * epsilon) + 1
        holds = conditions_hold(settings.multiplier, settings.rate, order)
        return Claim(epsilon, settings.delta, _THEOREM, "" if holds else _CONDITIONS)

    def calibrate(self, settings: Settings, budget: Budget) -> Mechanism:
        """The formula as printed."""
        return settings.mechanism.with_multiplier(self.multiplier(budget, settings.rate, settings.steps))

    def multiplier(self, budget: Budget, rate: float, steps: int) -> float:
        """The standard deviation on the sum, over the clip norm."""
        log = math.log(1 / budget.delta)
        factor = min((log / ((1 - share) * budget.epsilon) + 1) / share for share in self._shares())
        return rate * math.sqrt(self.constant * steps * factor / budget.epsilon)

    def _shares(self) -> list[float]:
        return [self.share] if self.share is not None else _SHARES.tolist()


def conditions_hold(multiplier: float, rate: float, order: float) -> bool:
    """Whether the theorem covers such a run: enough noise for a replaced example, and a small rate for the order."""
    relative = multiplier**2 / 4
    return relative >= 1.5 and order <= math.log(1 / (rate * (1 + relative)))


def _epsilon(amount: float, delta: float, share: float) -> float:
    """The epsilon with amount * (log(1/delta) / ((1 - share) epsilon) + 1) = share * epsilon."""
    half = amount / (2 * share)
    return half + math.sqrt(half**2 + amount * math.log(1 / delta) / (share * (1 - share)))
