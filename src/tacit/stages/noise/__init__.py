"""Noise: the only way from private to public."""

from tacit.stages.noise.directional import DirectionalNoise, NoisyMean
from tacit.stages.noise.families import FAMILIES, Cauchy, Family, Laplace, Normal, Sech, StudentT, VarianceGamma
from tacit.stages.noise.gaussian import GaussianNoise
from tacit.stages.noise.product import BoxNoise
from tacit.stages.noise.pruned import PrunedNoise
from tacit.stages.noise.realised import RealisedMeanNoise

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
