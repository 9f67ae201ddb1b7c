"""Noisy gradients with any optimizer: DP-SGD (Abadi et al. 2016), NoisySGD and NoisyAdam (Bu et al. 2019).

All three release the same thing, a sum of clipped gradients with Gaussian noise, and cost the same. They differ in
the optimizer that the user gives (which is free of charge), and in what their papers claim. Abadi et al. divide the
sum by the expected lot size, which is public. Bu et al. print the size of the lot that came: that doubles the
sensitivity, and is refuted (epsilon 12.9 where 2.4 is claimed). It is done in paper mode only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.stages.bounds import Clip, Counted, NormalisedClip, QuantileClip
from tacit.stages.claims import ByAccountant
from tacit.stages.mechanism import Mechanism, Method, Mode
from tacit.stages.noise import GaussianNoise, RealisedMeanNoise
from tacit.types import Bound

Denominator = Literal["public", "realised"]
Clipping = Literal["flat", "per_layer", "normalised", "quantile"]
_LIMIT = "It is the limit of many small steps, on either side of the truth for any finite number of them."
_REALISED = (
    "Divided by the number of examples that came, the mean moves by twice what the noise is for, where one example "
    "points against all others."
)
_ABADI, _BU = "Abadi et al. 2016", "Bu et al. 2019"
_MOMENTS, _LIMIT_THEOREM = f"{_ABADI}, moments accountant", f"{_BU}, central limit theorem"


def dpsgd(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    clipping: Clipping = "flat",
    mode: Mode = "rigorous",
    denominator: Denominator = "public",
) -> Mechanism:
    """DP-SGD. Without a multiplier, the budget says how much noise there must be.

    `clipping` is "flat", "per_layer", "normalised" (every gradient scaled to about clip_norm) or
    "quantile" (clip_norm is where it starts). The claim is the paper's moments accountant: proven, and never tighter
    than the guarantee; in paper mode the noise is found by it. A `denominator` that is "realised", as
    many implementations have it, is refuted and for paper mode only.

    >>> dpsgd(clip_norm=0.5, multiplier=1.1).noise
    GaussianNoise(multiplier=1.1)
    """
    if denominator not in ("public", "realised"):
        raise InvalidArgument(f"denominator must be 'public' or 'realised'. Got {denominator!r}.")
    if denominator == "public":
        return _public(clip_norm, multiplier, clipping, Method("dpsgd", _ABADI, mode, claims=_moments(nominal=False)))
    return _realised(clip_norm, multiplier, clipping, Method("dpsgd", _ABADI, mode, claims=_moments(nominal=True)))


def noisy_sgd(
    clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: Clipping = "flat", mode: Mode = "rigorous"
) -> Mechanism:
    """NoisySGD: with torch.optim.SGD. The claim, by a central limit theorem, is asymptotic; the guarantee is not.

    In paper mode sums are divided by the size of the lot that came, and nothing is proven.
    """
    return _by_bu("noisy_sgd", clip_norm, multiplier, clipping, mode)


def noisy_adam(
    clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: Clipping = "flat", mode: Mode = "rigorous"
) -> Mechanism:
    """NoisyAdam: with torch.optim.Adam. It costs what NoisySGD costs."""
    return _by_bu("noisy_adam", clip_norm, multiplier, clipping, mode)


def _by_bu(name: str, clip_norm: float, multiplier: float | None, clipping: Clipping, mode: Mode) -> Mechanism:
    if mode == "paper":
        claims = ByAccountant("clt", _LIMIT_THEOREM, nominal=True)
        return _realised(clip_norm, multiplier, clipping, Method(name, _BU, mode, claims=claims))
    claims = ByAccountant("clt", _LIMIT_THEOREM)
    method = Method(name, _BU, mode, Status.ASYMPTOTIC, claims, _LIMIT)
    return _public(clip_norm, multiplier, clipping, method)


def _moments(*, nominal: bool) -> ByAccountant:
    return ByAccountant("moments", _MOMENTS, nominal)


def _public(clip_norm: float, multiplier: float | None, clipping: Clipping, method: Method) -> Mechanism:
    return Mechanism(_bound(clip_norm, clipping), GaussianNoise(multiplier), method=method)


def _realised(clip_norm: float, multiplier: float | None, clipping: Clipping, method: Method) -> Mechanism:
    """As published, or as often done: refuted, whatever the accountant."""
    if method.mode != "paper":
        raise InvalidArgument(
            "A realised denominator has no proof: the size of a lot is private. Leave it out (dividing by the public "
            "lot size costs nothing), or ask for mode='paper' to have it all the same."
        )
    broken = ("random_denominator",)
    refuted = replace(method, status=Status.REFUTED, because=_REALISED, violations=broken)
    return Mechanism(Counted(_bound(clip_norm, clipping)), RealisedMeanNoise(multiplier), method=refuted)


def _bound(clip_norm: float, clipping: Clipping) -> Bound:
    match clipping:
        case "flat":
            return Clip(clip_norm)
        case "per_layer":
            return Clip(clip_norm, per_layer=True)
        case "normalised":
            return NormalisedClip(clip_norm)
        case "quantile":
            return QuantileClip(clip_norm)
    raise InvalidArgument(f"clipping must be one of {', '.join(map(repr, get_args(Clipping)))}. Got {clipping!r}.")
