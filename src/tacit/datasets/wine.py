"""Wine: three growers by thirteen chemical measures."""

from tacit.datasets import TrainingDefaults
from tacit.datasets._tables import SklearnTable

_TABLE = SklearnTable(
    "wine",
    178,
    low=(10.0, 0.0, 1.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0),
    high=(16.0, 6.0, 4.0, 30.0, 200.0, 5.0, 6.0, 1.0, 4.0, 15.0, 2.0, 4.0, 2000.0),
    classes=3,
)
DATASET = _TABLE.dataset(TrainingDefaults("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1))
