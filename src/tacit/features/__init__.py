"""What goes in before the noise: features that are computed example by example, from public knowledge alone.

`PrivateCentring`, `PrivateWhitening` and `PrivateWordWeights` are the exceptions: they release a mean, and second
moments if they whiten, and say what that costs.
"""

from tacit.features.centring import PrivateCentring, PrivateWordWeights
from tacit.features.scattering import Scattering
from tacit.features.tables import Knots
from tacit.features.text import HashedWords
from tacit.features.whitening import PrivateWhitening

__all__ = ["HashedWords", "Knots", "PrivateCentring", "PrivateWhitening", "PrivateWordWeights", "Scattering"]
