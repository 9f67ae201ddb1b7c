"""Noise: the only way from private to public."""

from tacit.noise.gaussian import GaussianNoise

__all__ = ["GaussianNoise"]
