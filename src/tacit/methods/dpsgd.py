"""Noisy gradients with any optimizer: DP-SGD (Abadi et al. 2016), NoisySGD and NoisyAdam (Bu et al. 2019).

All three release the same thing, a sum of clipped gradients with Gaussian noise, and cost the same. They differ in
the optimizer that the user gives (which is free of charge), and in what their papers claim. In one respect none
is taken from the papers: the sum is divided by the expected lot size, never by the size of the lot that came, which
is what Bu et al. print. That doubles the sensitivity, and is refuted (epsilon 12.9 where 2.4 is claimed).
"""

from __future__ import annotations

from tacit.bounds import Clip, NormalisedClip, QuantileClip
from tacit.claims import ByAccountant
from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.mechanism import Mechanism, Method
from tacit.noise import GaussianNoise
from tacit.types import Bound

_BOUNDS = ("flat", "per_layer", "normalised", "quantile")
_LIMIT = "It is the limit of many small steps, on either side of the truth for any finite number of them."
_MOMENTS = ByAccountant("moments", "Abadi et al. 2016, moments accountant")
_LIMIT_THEOREM = ByAccountant("clt", "Bu et al. 2019, central limit theorem")
_ABADI = Method("dpsgd", "Abadi et al. 2016", claims=_MOMENTS)
_NOISY_SGD = Method("noisy_sgd", "Bu et al. 2019", status=Status.ASYMPTOTIC, claims=_LIMIT_THEOREM, because=_LIMIT)
_NOISY_ADAM = Method("noisy_adam", "Bu et al. 2019", status=Status.ASYMPTOTIC, claims=_LIMIT_THEOREM, because=_LIMIT)


def dpsgd(clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: str = "flat") -> Mechanism:
    """DP-SGD. Without a multiplier, the budget says how much noise there must be.

    `clipping` is "flat", "per_layer", "normalised" (every gradient scaled to about clip_norm) or
    "quantile" (clip_norm is where it starts). The claim is the paper's moments accountant: proven, and never tighter
    than the guarantee.

    >>> dpsgd(clip_norm=0.5, multiplier=1.1).noise
    GaussianNoise(multiplier=1.1)
    """
    return Mechanism(_bound(clip_norm, clipping), GaussianNoise(multiplier), method=_ABADI)


def noisy_sgd(clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: str = "flat") -> Mechanism:
    """NoisySGD: with torch.optim.SGD. The claim, by a central limit theorem, is asymptotic; the guarantee is not."""
    return Mechanism(_bound(clip_norm, clipping), GaussianNoise(multiplier), method=_NOISY_SGD)


def noisy_adam(clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: str = "flat") -> Mechanism:
    """NoisyAdam: with torch.optim.Adam. It costs what NoisySGD costs."""
    return Mechanism(_bound(clip_norm, clipping), GaussianNoise(multiplier), method=_NOISY_ADAM)


def _bound(clip_norm: float, clipping: str) -> Bound:
    match clipping:
        case "flat":
            return Clip(clip_norm)
        case "per_layer":
            return Clip(clip_norm, per_layer=True)
        case "normalised":
            return NormalisedClip(clip_norm)
        case "quantile":
            return QuantileClip(clip_norm)
    raise InvalidArgument(f"clipping must be one of {', '.join(map(repr, _BOUNDS))}. Got {clipping!r}.")
