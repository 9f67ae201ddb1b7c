"""Features: functions of one example at a time, which cost no privacy.

`PrivateCells`, `PrivateCentring`, `PrivateWhitening` and `PrivateWordWeights` are the exceptions: they release a mean,
for whitening also second moments, and for cells also counts; `event_` holds the cost.
"""

from tacit.features.cells import KnotsAndCells, PrivateCells
from tacit.features.encoders import EncodedImages
from tacit.features.patches import Patches
from tacit.features.scattering import Scattering
from tacit.features.tables import Knots, PrivateCentring, PrivateWhitening
from tacit.features.text import HashedWords, PrivateWordWeights

__all__ = [
    "EncodedImages",
    "HashedWords",
    "Knots",
    "KnotsAndCells",
    "Patches",
    "PrivateCells",
    "PrivateCentring",
    "PrivateWhitening",
    "PrivateWordWeights",
    "Scattering",
]
