"""DP-SGD (Abadi et al. 2016): clipped gradients, summed over a random lot, with Gaussian noise, for any optimizer.

Abadi et al. divide the sum by the expected lot size, which is public. Many implementations divide by the realised lot
size. That doubles the sensitivity and is refuted (epsilon 12.9 where 2.4 is claimed), so it needs paper mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from tacit._other_names import refuse_other_names
from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.methods.registry import Entry
from tacit.stages.bounds import Clip, Counted, NormalisedClip, QuantileClip
from tacit.stages.mechanism import ByAccountant, Mechanism, Method, Mode, NoiseName
from tacit.stages.noise import GaussianNoise, RealisedMeanNoise
from tacit.types import Bound

ENTRY = Entry(
    name="dpsgd",
    kind="gradient",
    paper="Abadi et al. 2016",
    idea="Every example's gradient is clipped, the gradients of a random lot are summed, and Gaussian noise is added.",
    status="proven",
    verdict="The moments accountant is an upper bound: about a third too large over many steps, more over few.",
    rigorous="The same, with the exact privacy curve.",
    options={
        "clipping": "flat, per_layer, normalised or quantile",
        "denominator": "public; realised divides by the realised lot size, which is refuted",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
)

Denominator = Literal["public", "realised"]
Clipping = Literal["flat", "per_layer", "normalised", "quantile"]
_PAPER = "Abadi et al. 2016"
_REALISED = (
    "Divided by the realised lot size, the mean moves by twice what the noise is for, where one example points against "
    "all others."
)


@refuse_other_names
def dpsgd(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    clipping: Clipping = "flat",
    mode: Mode = "rigorous",
    denominator: Denominator = "public",
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """DP-SGD. Without a multiplier, the budget sets the noise.

    `clipping` is "flat", "per_layer", "normalised" (every gradient scaled to about clip_norm) or "quantile" (the norm
    starts at clip_norm and adapts). The claim is the paper's moments accountant: proven, and never tighter than the
    guarantee; in paper mode it sets the noise. `denominator="realised"` is refuted and needs paper mode.
    `noise="banded"` correlates the noise over `bands` steps, which needs `CyclicPoisson` lots; `tacit plan` says
    whether it pays.

    >>> dpsgd(clip_norm=0.5, multiplier=1.1).noise
    GaussianNoise(multiplier=1.1)
    """
    if denominator not in ("public", "realised"):
        raise InvalidArgument(f"denominator must be 'public' or 'realised'. Got {denominator!r}.")
    is_realised = denominator == "realised"
    claims = ByAccountant("moments", f"{_PAPER}, moments accountant", nominal=is_realised)
    method = Method("dpsgd", _PAPER, mode, claims=claims)
    make = divide_by_realised_size if is_realised else clip_and_add_noise
    return make(clip_norm, multiplier, clipping, method).with_noise(noise, bands)


def clip_and_add_noise(clip_norm: float, multiplier: float | None, clipping: Clipping, method: Method) -> Mechanism:
    """Clip, sum, add Gaussian noise: PrivateRun divides by the public lot size."""
    return Mechanism(_bound(clip_norm, clipping), GaussianNoise(multiplier), method=method)


def divide_by_realised_size(
    clip_norm: float, multiplier: float | None, clipping: Clipping, method: Method
) -> Mechanism:
    """The same with the realised lot size as the denominator: refuted, whatever the accountant. Paper mode only."""
    if method.mode != "paper":
        raise InvalidArgument(
            "A realised denominator has no proof, because the size of a lot is private. Leave it out (dividing by the "
            "public lot size costs nothing), or ask for mode='paper'."
        )
    refuted = replace(method, status=Status.REFUTED, because=_REALISED, violations=("random_denominator",))
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
