"""AdaClip (Pichapati, Suresh, Yu, Reddi, Kumar 2019): clipping in coordinates whitened by past releases. Proven."""

from __future__ import annotations

from tacit.methods.registry import Entry
from tacit.stages.bounds import AdaClip
from tacit.stages.mechanism import ByAccountant, Mechanism, Method, Mode, NoiseName
from tacit.stages.noise import GaussianNoise

ENTRY = Entry(
    name="adaclip",
    kind="gradient",
    paper="Pichapati et al. 2019",
    idea="Gradients are clipped in coordinates that past releases have centred and whitened.",
    status="proven",
    verdict="Mean and width come from past releases alone, so every step is a Gaussian release.",
    rigorous="The same, with the exact privacy curve.",
    options={
        "gamma": "expected squared length of a whitened gradient",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
)

_CLAIMS = ByAccountant("moments", "Pichapati et al. 2019, moments accountant")


def adaclip(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    mode: Mode = "rigorous",
    gamma: float = 1.0,
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """AdaClip, which starts with ordinary clipping at `clip_norm`. Without a multiplier, the budget sets the noise.

    `gamma` is the expected squared length of a whitened gradient, which is clipped at 1. The published form is private:
    mean and width come from past releases alone. In paper mode the moments accountant sets the noise, and asks for
    slightly more than is needed.

    >>> adaclip(clip_norm=0.1).bound.norm
    0.1
    """
    method = Method("adaclip", "Pichapati et al. 2019", mode, claims=_CLAIMS)
    return Mechanism(AdaClip(clip_norm, gamma), GaussianNoise(multiplier), method=method).with_noise(noise, bands)
