"""NoisySGD (Bu, Dong, Long, Su 2019): DP-SGD, accounted for by a central limit theorem.

It releases what DP-SGD releases and costs the same; only the claim differs. As printed, the sum is divided by the
realised lot size, which is refuted (see `dpsgd`) and done in paper mode only.
"""

from __future__ import annotations

from tacit.guarantee import Status
from tacit.methods.dpsgd import Clipping, clip_and_add_noise, divide_by_realised_size
from tacit.methods.registry import Entry
from tacit.stages.mechanism import ByAccountant, Mechanism, Method, Mode, NoiseName

ENTRY = Entry(
    name="noisy_sgd",
    kind="gradient",
    paper="Bu et al. 2019",
    idea="DP-SGD, accounted for by a central limit theorem of Gaussian differential privacy.",
    status="refuted",
    verdict="As printed, sums are divided by the realised lot size, which doubles what one example moves (epsilon "
    "12.9 where 2.4 is claimed); and the central limit is too small in eight of nine published settings.",
    rigorous="A constant denominator, which costs nothing, and the exact privacy curve.",
    options={
        "clipping": "flat, per_layer, normalised or quantile",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
    page="docs/reference/methods/dpsgd.md",
)

_PAPER = "Bu et al. 2019"
_LIMIT = "It is the limit of many small steps, on either side of the truth for any finite number of them."


def noisy_sgd(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    clipping: Clipping = "flat",
    mode: Mode = "rigorous",
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """NoisySGD, to be used with torch.optim.SGD. The claim is asymptotic; the guarantee is not.

    In paper mode sums are divided by the realised lot size, and nothing is proven.
    """
    return bu_mechanism("noisy_sgd", clip_norm, multiplier, clipping, mode).with_noise(noise, bands)


def bu_mechanism(name: str, clip_norm: float, multiplier: float | None, clipping: Clipping, mode: Mode) -> Mechanism:
    """What NoisySGD and NoisyAdam have in common: all but the optimizer."""
    claims = ByAccountant("clt", f"{_PAPER}, central limit theorem", nominal=mode == "paper")
    if mode == "paper":
        return divide_by_realised_size(clip_norm, multiplier, clipping, Method(name, _PAPER, mode, claims=claims))
    method = Method(name, _PAPER, mode, Status.ASYMPTOTIC, claims, _LIMIT)
    return clip_and_add_noise(clip_norm, multiplier, clipping, method)
