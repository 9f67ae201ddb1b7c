"""Bounds: from private gradients to a sum to which one example contributes only so much."""

from tacit.stages.bounds.adaclip import AdaClip
from tacit.stages.bounds.clip import Clip, NormalisedClip
from tacit.stages.bounds.counted import Counted
from tacit.stages.bounds.encode import Encode
from tacit.stages.bounds.prune import FeedbackClip, MaskedClip
from tacit.stages.bounds.quantile import QuantileClip
from tacit.stages.bounds.shaped import ShapedClip
from tacit.stages.bounds.vectors import DrawnVectors, GivenVectors, Profile
from tacit.stages.bounds.whiten import Whiten

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
