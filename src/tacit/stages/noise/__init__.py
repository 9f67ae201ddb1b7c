"""Noise: the only way from private to public. `laws` says how to add a noise law."""

from tacit.stages.noise.banded import BandedNoise
from tacit.stages.noise.buffered import BufferedNoise, InverseBandedNoise, TreeNoise
from tacit.stages.noise.gaussian import GaussianNoise, Normal
from tacit.stages.noise.laws import (
    Cauchy,
    Family,
    Laplace,
    Sech,
    StudentT,
    VarianceGamma,
    find_family,
    list_families,
    register_family,
)
from tacit.stages.noise.product import BoxNoise
from tacit.stages.noise.published import DirectionalNoise, NoisyMean, PrunedNoise, RealisedMeanNoise

__all__ = [
    "BandedNoise",
    "BoxNoise",
    "BufferedNoise",
    "Cauchy",
    "DirectionalNoise",
    "Family",
    "GaussianNoise",
    "InverseBandedNoise",
    "Laplace",
    "NoisyMean",
    "Normal",
    "PrunedNoise",
    "RealisedMeanNoise",
    "Sech",
    "StudentT",
    "TreeNoise",
    "VarianceGamma",
    "find_family",
    "list_families",
    "register_family",
]
