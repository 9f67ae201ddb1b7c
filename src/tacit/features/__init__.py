"""Features: functions of one example at a time, which cost no privacy.

`PrivateCentring`, `PrivateWhitening` and `PrivateWordWeights` are the exceptions: they release a mean, and for
whitening second moments, and `event_` holds the cost.
"""

from tacit.features.scattering import Scattering
from tacit.features.tables import Knots, PrivateCentring, PrivateWhitening
from tacit.features.text import HashedWords, PrivateWordWeights

__all__ = ["HashedWords", "Knots", "PrivateCentring", "PrivateWhitening", "PrivateWordWeights", "Scattering"]
