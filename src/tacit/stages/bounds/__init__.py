"""Bounds: from private gradients to a sum to which one example contributes only so much."""

from tacit.stages.bounds.clip import Clip, Counted, NormalisedClip, QuantileClip
from tacit.stages.bounds.encode import DrawnVectors, Encode, GivenVectors, Profile
from tacit.stages.bounds.prune import FeedbackClip, MaskedClip
from tacit.stages.bounds.whiten import AdaClip, ShapedClip, Whiten

__all__ = [
    "AdaClip",
    "Clip",
    "Counted",
    "DrawnVectors",
    "Encode",
    "FeedbackClip",
    "GivenVectors",
    "MaskedClip",
    "NormalisedClip",
    "Profile",
    "QuantileClip",
    "ShapedClip",
    "Whiten",
]
