"""What goes in before the noise: features that are computed example by example, from public knowledge alone.

`PrivateCentring` is the exception: it releases a mean, and says what that costs.
"""

from tacit.features.centring import PrivateCentring
from tacit.features.scattering import Scattering
from tacit.features.tables import Knots
from tacit.features.text import HashedWords

__all__ = ["HashedWords", "Knots", "PrivateCentring", "Scattering"]
