"""Noise: the only way from private to public."""

from tacit.noise.directional import DirectionalNoise, NoisyMean
from tacit.noise.families import FAMILIES, Cauchy, Family, Laplace, Normal, Sech, StudentT, VarianceGamma
from tacit.noise.gaussian import GaussianNoise
from tacit.noise.product import BoxNoise
from tacit.noise.pruned import PrunedNoise
from tacit.noise.realised import RealisedMeanNoise

__all__ = [
    "FAMILIES",
    "BoxNoise",
    "Cauchy",
    "DirectionalNoise",
    "Family",
    "GaussianNoise",
    "Laplace",
    "NoisyMean",
    "Normal",
    "PrunedNoise",
    "RealisedMeanNoise",
    "Sech",
    "StudentT",
    "VarianceGamma",
]
