"""What goes in before the noise: features that are computed example by example, from public knowledge alone.

`PrivateCentring` and `PrivateWordWeights` are the exceptions: they release a mean, and say what that costs.
"""

from tacit.features.centring import PrivateCentring, PrivateWordWeights
from tacit.features.scattering import Scattering
from tacit.features.tables import Knots
from tacit.features.text import HashedWords

__all__ = ["HashedWords", "Knots", "PrivateCentring", "PrivateWordWeights", "Scattering"]
