"""Bounds: from private gradients to a sum to which one example contributes only so much."""

from tacit.bounds.adaclip import AdaClip
from tacit.bounds.clip import Clip, NormalisedClip
from tacit.bounds.counted import Counted
from tacit.bounds.encode import Encode
from tacit.bounds.prune import FeedbackClip, MaskedClip
from tacit.bounds.quantile import QuantileClip
from tacit.bounds.shaped import ShapedClip
from tacit.bounds.vectors import DrawnVectors, GivenVectors, Profile
from tacit.bounds.whiten import Whiten

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
