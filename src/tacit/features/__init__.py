"""What goes in before the noise: features that are computed example by example, from public knowledge alone."""

from tacit.features.scattering import Scattering

__all__ = ["Scattering"]
