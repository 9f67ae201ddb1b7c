"""AdaClip (Pichapati, Suresh, Yu, Reddi, Kumar 2019): clipping in coordinates whitened by past releases. Proven."""

from __future__ import annotations

from tacit.stages.bounds import AdaClip
from tacit.stages.claims import ByAccountant
from tacit.stages.mechanism import Mechanism, Method, Mode
from tacit.stages.noise import GaussianNoise

_CLAIMS = ByAccountant("moments", "Pichapati et al. 2019, moments accountant")


def adaclip(
    clip_norm: float = 1.0, multiplier: float | None = None, *, mode: Mode = "rigorous", gamma: float = 1.0
) -> Mechanism:
    """AdaClip, at first with ordinary clipping at `clip_norm`. Without a multiplier, the budget says how much noise.

    `gamma` is the expected squared length of a whitened gradient, clipped at 1. It is private as published: mean
    and width come from past releases alone. In paper mode the noise is what the moments accountant asks for, which is
    somewhat more than is needed.

    >>> adaclip(clip_norm=0.1).bound.norm
    0.1
    """
    method = Method("adaclip", "Pichapati et al. 2019", mode, claims=_CLAIMS)
    return Mechanism(AdaClip(clip_norm, gamma), GaussianNoise(multiplier), method=method)
