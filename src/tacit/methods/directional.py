"""Directional noise (Xiang, Li, Yang, Wang, Li 2023): noise shaped by what matters to the loss.

As published it is refuted: the noise is smallest in directions that an example can use in full, and the budget is
divided by the sampling rate, which is no theorem. The idea has a form with a proof: whitened clipping. With w = 1 it is
ordinary isotropic noise, with the paper's own rule for the amount; so is the correct solution of its equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from tacit import _validate
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import InvalidArgument, NotAchievable
from tacit.guarantee import Claim, Status
from tacit.methods.registry import Entry
from tacit.stages.bounds import Clip, ShapedClip, Whiten
from tacit.stages.bounds.whiten import Grain, Objective
from tacit.stages.mechanism import Mechanism, Method, Mode, NoiseName, Settings
from tacit.stages.noise import DirectionalNoise, GaussianNoise, NoisyMean
from tacit.types import Bound

ENTRY = Entry(
    name="directional",
    kind="gradient",
    paper="Xiang et al. 2023",
    idea="Noise that differs between coordinates, by how much each matters to the loss.",
    status="refuted",
    verdict="The noise is least in directions that one example can use in full, the noisy direction has twice the "
    "sensitivity that it is given, and dividing the budget by the sampling rate is no theorem.",
    rigorous="Whitened clipping with a scale from past releases: less noise where it matters, and a proof.",
    options={
        "variant": "full, w1 (isotropic), minimax (its equations solved correctly) or floored",
        "objective": "l1 or l2: which noise is made small",
        "grain": "coordinate or parameter: how finely the scale varies",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
)

Beta = Literal["integer", "real"]
Variant = Literal["full", "w1", "minimax", "floored"]
_VARIANTS = ("full", "w1", "minimax", "floored")
_PAPER = "Xiang et al. 2023"
_RULE = (
    "Dividing the whole budget by the sampling rate is no theorem: over few epochs at a large epsilon it gives less "
    "noise than is needed, over many it wastes some."
)
_FULL = (
    "The noise is least in directions that one example can use in full, the noisy w has twice the sensitivity that it "
    "is given, and dividing the budget by the sampling rate is no theorem."
)


def tau(epsilon: float, delta: float, steps: int, beta: Beta = "integer") -> float:
    """The largest clip_norm^2 / sigma^2 in each of `steps` releases without sampling, by Markov's inequality.

    The best over the moments beta = 1, 2, 3, ...; or over all real ones. Proven, for isotropic noise.

    >>> 1 / math.sqrt(tau(1.0, 1e-5, 1))
    4.901514315076063
    """
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    log = math.log(1 / delta)
    best = (log + math.sqrt(log**2 + epsilon * log)) / epsilon
    return max(2 * (epsilon - log / b) / (steps * (1 + b)) for b in _moments(best, beta))


def epsilon_of(squared_ratio: float, delta: float, beta: Beta = "integer") -> float:
    """The epsilon for which the rule gives this much noise: `squared_ratio` is tau, summed over the steps."""
    log = math.log(1 / _validate.open_unit("delta", delta))
    return min(squared_ratio * (1 + b) / 2 + log / b for b in _moments(math.sqrt(2 * log / squared_ratio), beta))


def _moments(best: float, beta: Beta) -> tuple[float, ...]:
    """The real optimum, or the integers on either side of it: the objective has a single peak."""
    return (best,) if beta == "real" else (max(1, math.floor(best)), max(1, math.ceil(best)))


@dataclass(frozen=True)
class TauRule:
    """How Xiang et al. choose their noise: tau for the budget, divided by the sampling rate.

    `beta` is the moment, "any positive integer" in the paper. The noisy w, if there is one, gets `share` of the budget.
    `alpha_of` relates the noise to the "sum" or, as Algorithm 1 reads literally, to the "average": too much by a factor
    of the lot size, which cannot be what the authors ran.
    """

    beta: Beta = "integer"
    share: float = 1 / 8
    alpha_of: Literal["sum", "average"] = "sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", _validate.open_unit("share", self.share))
        for name, allowed in (("beta", ("integer", "real")), ("alpha_of", ("sum", "average"))):
            if getattr(self, name) not in allowed:
                raise InvalidArgument(f"{name} must be {allowed[0]!r} or {allowed[1]!r}. Got {getattr(self, name)!r}.")

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """The rule inverted, from the noise to the budget. None if the steps differ, because it has one tau."""
        if settings.is_scheduled or settings.multiplier is None:
            return None
        guide, delta = settings.mechanism.guide, settings.delta
        kept = 1.0 if guide is None else 1 - self.share
        multiplier = settings.multiplier / self._units(settings)
        amplified = kept * delta / settings.rate
        if not amplified < 1:
            return None
        epsilon = settings.rate * epsilon_of(settings.steps / multiplier**2, amplified, self.beta)
        if guide is not None and guide.multiplier is not None:
            epsilon += epsilon_of(settings.steps / guide.multiplier**2, self.share * delta, self.beta)
        return Claim(epsilon, delta, f"{_PAPER}, Theorem 1")

    def calibrate(self, settings: Settings, budget: Budget) -> Mechanism:
        """The noise of Algorithm 1 for this budget."""
        guide, rate = settings.mechanism.guide, settings.rate
        kept = 1.0 if guide is None else 1 - self.share
        if not kept * budget.delta / rate < 1:
            raise NotAchievable(
                f"The rule of {_PAPER} divides delta by the sampling rate, and {kept * budget.delta:g} / {rate:g} is "
                "not below 1. Use a smaller delta or larger lots."
            )
        ratio = tau(kept * budget.epsilon / rate, kept * budget.delta / rate, settings.steps, self.beta)
        found = settings.mechanism.with_multiplier(self._units(settings) / math.sqrt(ratio))
        if guide is None:
            return found
        ratio = tau(self.share * budget.epsilon, self.share * budget.delta, settings.steps, self.beta)
        assert isinstance(guide, NoisyMean)
        return replace(found, guide=replace(guide, multiplier=1 / math.sqrt(ratio)))

    def _units(self, settings: Settings) -> float:
        return settings.lot_size if self.alpha_of == "average" else 1.0


def directional(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    mode: Mode = "rigorous",
    variant: Variant = "full",
    objective: Objective | None = None,
    grain: Grain | None = None,
    rule: TauRule | None = None,
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """Directional noise. Without a multiplier, the budget sets the noise.

    The variant "full" is whitened clipping with the scale from past releases: least noise by `objective` ("l1", the
    default, or "l2"), one scale for each `grain` ("coordinate", the default, or "parameter"). In paper mode it is
    Algorithm 1, with a noisy w from all the data before each lot, and `rule` sets the noise. The claim is the rule's
    answer for the same noise, in either mode. "w1" is isotropic noise, and so is "minimax", the correct solution of the
    paper's problem. "floored" shapes the noise as published, by a w from past releases, never below isotropic noise.

    >>> directional(clip_norm=0.1, variant="w1", mode="paper").method.status
    <Status.REFUTED: 'refuted'>
    """
    if variant not in _VARIANTS:
        raise InvalidArgument(f"variant must be one of {', '.join(map(repr, _VARIANTS))}. Got {variant!r}.")
    method = _method(mode, variant, rule)
    # Constructed for every variant, so that wrong values are refused even if the variant does not use them.
    whitened = Whiten(clip_norm, objective or "l1", grain or "coordinate")
    _refuse_unused(mode, variant, objective=objective, grain=grain)
    if mode == "paper" and variant == "full":
        guided = ShapedClip(clip_norm, floored=False)
        published = Mechanism(
            guided, DirectionalNoise(clip_norm, multiplier), method=method, guide=NoisyMean(clip_norm)
        )
        return published.with_noise(noise, bands)
    bounds: dict[str, Bound] = {"floored": ShapedClip(clip_norm), "full": whitened}
    plain = Mechanism(bounds.get(variant, Clip(clip_norm)), GaussianNoise(multiplier), method=method)
    return plain.with_noise(noise, bands)


def repair(name: str) -> Method:
    """A method of the paper in a form with a proof; the claim is the paper's own rule for the same noise.

    The rule needs only that one example moves a release by at most 1 / multiplier standard deviations of its noise, in
    the coordinates in which it is clipped. So it has an answer here too, and stays refuted.
    """
    return Method(name, _PAPER, status=Status.REFUTED, claims=TauRule(), because=_RULE)


def _refuse_unused(mode: Mode, variant: Variant, **shape: str | None) -> None:
    given = [name for name, value in shape.items() if value is not None]
    if given and (mode == "paper" or variant != "full"):
        where = "the published noise" if mode == "paper" else f"the variant {variant!r}"
        raise InvalidArgument(
            f"Only variant 'full' in mode 'rigorous' (whitened clipping) uses {' and '.join(given)}; {where} does not. "
            "Leave that out."
        )


def _method(mode: Mode, variant: Variant, rule: TauRule | None) -> Method:
    if mode == "rigorous":
        if rule is not None:
            raise InvalidArgument(
                "rule sets the paper's noise, but in mode 'rigorous' the budget sets it. Leave it out, or ask for "
                "mode='paper'."
            )
        return repair("directional")
    rule = rule or TauRule()
    if variant in ("minimax", "floored"):
        raise InvalidArgument(
            f"{_PAPER} do not publish the variant {variant!r}: it is a corrected form of their method. Use "
            "mode='rigorous'."
        )
    if variant == "w1":
        return Method("directional", _PAPER, mode, Status.REFUTED, rule, _RULE)
    return Method(
        "directional",
        _PAPER,
        mode,
        Status.REFUTED,
        rule,
        _FULL,
        violations=("noise_by_direction", "doubled_sensitivity_of_w"),
        notes=("The noisy w was not rounded to a grid: some of its entries would have become exactly zero.",),
    )
