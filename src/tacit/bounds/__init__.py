"""Bounds: from private gradients to a sum to which one example contributes only so much."""

from tacit.bounds.clip import Clip, NormalisedClip
from tacit.bounds.quantile import QuantileClip

__all__ = ["Clip", "NormalisedClip", "QuantileClip"]
