"""Pruning with error feedback (Xiang, Li, Yang, Wang and Li 2023): only the largest coordinates move the model.

As published, the largest coordinates of the private sum are kept and get noise, and the rest is added to the next
gradients. That is refuted: private data decide without noise which coordinates are kept and what is fed back. The idea
is proven if releases decide: the largest coordinates after the noise, with error feedback (at no cost), or a mask from
past releases. docs/reference/methods/pruned.md has both arguments.
"""

from __future__ import annotations

from typing import Literal

from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.methods.directional import TauRule, repair
from tacit.methods.registry import Entry
from tacit.stages.bounds import Clip, FeedbackClip, MaskedClip
from tacit.stages.mechanism import Mechanism, Method, Mode, NoiseName
from tacit.stages.noise import GaussianNoise, PrunedNoise
from tacit.stages.post import TopK

ENTRY = Entry(
    name="pruned",
    kind="gradient",
    paper="Xiang et al. 2023",
    idea="Only the largest coordinates move the model; the rest is fed back into the next gradients.",
    status="refuted",
    verdict="Private data decide without noise which coordinates are kept, and the rest enters every gradient of the "
    "next step without noise.",
    rigorous="The largest coordinates after the noise, with error feedback; or a mask from past releases.",
    options={
        "keep": "share of the coordinates that is kept",
        "select_by": "release (after the noise) or past (a mask from past releases)",
        "refresh": "with past: every so many steps all coordinates are used",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
    exposed=("support", "residual"),
)

Selection = Literal["release", "past"]


def pruned(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    keep: float = 0.1,
    select_by: Selection | None = None,
    refresh: int | None = None,
    mode: Mode = "rigorous",
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """Keep the share `keep` of the coordinates. Without a multiplier, the budget sets the noise.

    `select_by` "release" (the default) keeps the largest coordinates of each release, and adds the rest to the next;
    "past" uses only coordinates that were large in past releases, and all of them every `refresh`-th step (default 10).
    In paper form, with the published rule for the noise, nothing is proven: support and residual leak. The claim is
    that rule's answer for the same noise, in either mode.

    >>> pruned(mode="paper").method.unprotected
    ('support', 'residual')
    """
    # Constructed for every form, so that wrong values are refused even if the form does not use them.
    masked = MaskedClip(clip_norm, keep, 10 if refresh is None else refresh)
    if select_by not in (None, "release", "past"):
        raise InvalidArgument(f"select_by must be 'release' or 'past'. Got {select_by!r}.")
    if mode != "rigorous":
        if select_by is not None or refresh is not None:
            raise InvalidArgument(
                "select_by and refresh apply if releases decide which coordinates are kept; as published, private data "
                "decide. Leave them out, or leave out mode='paper'."
            )
        published = Mechanism(FeedbackClip(clip_norm), PrunedNoise(multiplier, keep), method=_describe_published(mode))
        return published.with_noise(noise, bands)
    method = repair("pruned")
    if select_by == "past":
        return Mechanism(masked, GaussianNoise(multiplier), method=method).with_noise(noise, bands)
    if refresh is not None:
        raise InvalidArgument("refresh applies to select_by='past' only. Leave it out, or give select_by='past'.")
    return Mechanism(Clip(clip_norm), GaussianNoise(multiplier), (TopK(keep),), method).with_noise(noise, bands)


def _describe_published(mode: Mode) -> Method:
    about = "pruned", ENTRY.paper, mode, Status.REFUTED, TauRule(), ENTRY.verdict
    return Method(
        *about,
        unprotected=("support", "residual"),
        violations=("private_support", "private_residual"),
    )
